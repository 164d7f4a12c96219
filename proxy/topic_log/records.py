"""The values that a log and its reader exchange. Pure: the reader imports no Kafka library."""

from collections.abc import Sequence
from typing import Final, NamedTuple

# Why a log cannot be used: each is a label of a metric.
CAUSES: Final = (
    "unreachable",  # no broker responds in time
    "denied",  # an ACL forbids an operation
    "missing",  # the topic was deleted while this process had read it
    "recreated",  # another topic of the same name, which is another log
    "cleanup_policy",
    "partitions",
    "failed",  # anything else; the text says what
)


class Record(NamedTuple):
    """A record.

    Attributes:
        value: None for a tombstone.
        mark: the value of its header `proxy.topic_log.signed.HEADER`; empty without one.
        offset: of a record that was read; -1 of one that is to be appended.
    """

    key: bytes | None
    value: bytes | None
    mark: bytes = b""
    offset: int = -1


class Portion(NamedTuple):
    """Consecutive records.

    Attributes:
        next_offset: the offset after these records.
        begins: whether the log is read from its beginning, for the first time or again; records read before are void
            as soon as a `complete` portion has arrived.
        complete: whether the log has been read to its end as of the start of reading; also set for all later portions.
        topic_id: the topic's id, 16 bytes.
        dropped: the number of records between these that the log's `wanted` has left out.
    """

    records: Sequence[Record]
    next_offset: int
    begins: bool
    complete: bool
    topic_id: bytes
    dropped: int = 0


class Problem(NamedTuple):
    """The reason why a log cannot be used; `cause` is one of CAUSES."""

    cause: str
    text: str


class AppendError(Exception):
    """Records were not appended; or, if `unknown`, it is not known whether they were.

    Attributes:
        fenced: a later writer of this transactional id was opened.
    """

    def __init__(self, text: str, *, unknown: bool = False, fenced: bool = False) -> None:
        super().__init__(text)
        self.unknown = unknown
        self.fenced = fenced
