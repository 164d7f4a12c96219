"""The values that a log and its reader exchange. Pure: the reader imports no Kafka library."""

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["CAUSES", "AppendError", "Portion", "Problem", "Record"]

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
    """A record without its offset; `value` is None for a tombstone."""

    key: bytes | None
    value: bytes | None


class Portion(NamedTuple):
    """Consecutive records.

    Attributes:
        next_offset: the offset after these records.
        begins: whether the log is read from its beginning, for the first time or again; records read before are void
            as soon as a `complete` portion has arrived.
        complete: whether the log has been read to its end as of the start of reading; also set for all later portions.
        topic_id: the topic's id, 16 bytes.
    """

    records: Sequence[Record]
    next_offset: int
    begins: bool
    complete: bool
    topic_id: bytes


class Problem(NamedTuple):
    """The reason why a log cannot be used; `cause` is one of CAUSES."""

    cause: str
    text: str


class AppendError(Exception):
    """Records were not appended; or, if `unknown`, it is not known whether they were."""

    def __init__(self, text: str, *, unknown: bool = False) -> None:
        super().__init__(text)
        self.unknown = unknown
