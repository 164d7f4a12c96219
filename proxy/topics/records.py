"""The values that a log and its reader exchange. Pure: the reader imports no Kafka library."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

from proxy.system.signatures import SIGNATURE_BYTES, Signer

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
    """A record of one of Sluice's own topics.

    Attributes:
        value: None for a tombstone.
        mark: the value of its header `sluice-signature`: a time in µs and the signature; empty without the header.
        offset: the offset of a record that was read; -1 for a record that is to be appended.
    """

    key: bytes | None
    value: bytes | None
    mark: bytes = b""
    offset: int = -1


class Portion(NamedTuple):
    """Consecutive records of a topic that were read at once.

    Attributes:
        next_offset: the offset after these records.
        begins: whether these are the topic's first records. If the topic was read before, it is now read again: once a
            `complete` portion has arrived, these and later records replace all that were read before.
        complete: whether all records that existed when reading began are now read; True for all later portions too.
        topic_id: the topic's id, 16 bytes.
        dropped: the number of records in this range of offsets that `TopicLog.wanted` has left out.
    """

    records: Sequence[Record]
    next_offset: int
    begins: bool
    complete: bool
    topic_id: bytes
    dropped: int = 0


class Problem(NamedTuple):
    """The reason why a topic cannot be read or appended to.

    Attributes:
        cause: one of CAUSES, the label of a metric.
        text: the reason as text for people.
    """

    cause: str
    text: str


class AppendError(Exception):
    """Records were not appended, or it is not known whether they were.

    Attributes:
        unknown: whether the records may have been appended, since no acknowledgement arrived.
        fenced: whether the reason is that a later writer with this transactional id was opened.
    """

    def __init__(self, text: str, *, unknown: bool = False, fenced: bool = False) -> None:
        super().__init__(text)
        self.unknown = unknown
        self.fenced = fenced


# The interface of a log for its readers; `proxy.topics.log` implements it.


class Inbox(Protocol):
    """The queue of the portions of a log that were read and not yet taken."""

    def take(self, seconds: float = 0) -> Portion | None:
        """Remove and return the oldest portion; None if none comes within `seconds`."""


class ReadLog(Protocol):
    """A topic that is read from its beginning to its end and then followed, as its reader sees it."""

    @property
    def topic(self) -> str:
        """The topic's name, for messages and metrics."""

    @property
    def inbox(self) -> Inbox:
        """The queue of portions that were read and not yet taken."""

    @property
    def problem(self) -> Problem | None:
        """The reason why the topic cannot be read; None if it can."""

    @property
    def write_problem(self) -> Problem | None:
        """The reason why the topic cannot be appended to; None if it can."""


# Signed records: which records of a topic are the fleet's own, and which of these are not repeated. Pure.
#
# A topic can be written by clients that reach the brokers directly, so with a secret each record has a header
# `sluice-signature`, its mark: a stamp of 8 bytes, and the signature of the topic's name and id, the stamp, the key,
# and the value or its absence. Keys and values stay as they are, and compaction keeps headers. The topic's id makes the
# records of a topic that was deleted and created again invalid.
#
# A genuine record may be appended again by others: an earlier, higher quota, or a removal. Stamps prevent that. They
# are microseconds since the epoch, and greater than every stamp that the writer has seen, so they follow the order of
# the topic; a clock that is ahead costs nothing. Only a writer that has not read the last records yet writes a lower
# stamp than an earlier record has. So of the records of one key a stamp that is not greater is a replay, and in the
# whole topic one that is more than `late_us` below the greatest before it. Stamps of single keys are kept for no longer
# than that, which bounds their memory by what was signed in that time.


HEADER: Final = "sluice-signature"
LATE_US: Final = 300_000_000  # a writer may be so far behind the end of the topic: five minutes
TAKEN_OVER_MAX: Final = 1_000_000_000  # stamps of records that were taken over unsigned are up to this
_STAMP: Final = Struct(">Q")
MARK_BYTES: Final = _STAMP.size + SIGNATURE_BYTES
_STAMPS_MAX: Final = 2**63 - 1
_PRUNED_AT: Final = 1024  # marks


class Seal:
    """Signs and verifies the records of one topic. The signature includes a stamp: a time in µs that orders records.

    Args:
        secret: the fleet's secret.
        use: the kind of records, such as "quota"; a signature for another kind is not valid.
        topic: the topic's name; a signature for another topic is not valid.

    >>> seal = Seal(b"x" * 32, "quota", "quotas")
    >>> signed = seal.sign(Record(b"k", None), 7, b"id")
    >>> seal.stamp_of(signed, b"id"), seal.stamp_of(signed, b"other id"), seal.stamp_of(Record(b"k", None), b"id")
    (7, None, None)
    """

    def __init__(self, secret: bytes, use: str, topic: str) -> None:
        self._signer = Signer(secret, f"{use} record")
        self._topic = topic.encode()

    def sign(self, record: Record, stamp: int, topic_id: bytes) -> Record:
        """Return the record with its mark: the stamp (a time in µs that orders records) and the signature."""
        packed = _STAMP.pack(stamp)
        mark = packed + self._signer.sign(self._topic, topic_id, packed, record.key, record.value)
        return record._replace(mark=mark)

    def stamp_of(self, record: Record, topic_id: bytes) -> int | None:
        """Return the record's stamp; None without a signature that is valid for this secret, topic and topic id."""
        mark = record.mark
        if len(mark) != MARK_BYTES:
            return None
        packed, signature = mark[: _STAMP.size], mark[_STAMP.size :]
        if not self._signer.verifies(signature, self._topic, topic_id, packed, record.key, record.value):
            return None
        stamp: int = _STAMP.unpack(packed)[0]
        return stamp


class Stamps:
    """Creates the stamps of new records, and detects replays: copies of signed records that a client appends again.

    A stamp is a time in microseconds since the epoch that grows with each record of a topic.

    Args:
        late_us: how far a stamp may be below the greatest one that was read, in µs; more than 0 if several processes
            append at once. 0, for a single writer: each stamp must be above all earlier ones.

    Attributes:
        of_keys: by the hash of a key (the keys themselves would be a hundred bytes each), the last stamp that was read;
            stamps too old by `late_us` may be left out. Empty if it is 0.

    >>> stamps = Stamps(late_us=10)
    >>> stamps.accepts(b"k", 100), stamps.accepts(b"k", 100), stamps.accepts(b"l", 90), stamps.accepts(b"m", 89)
    (True, False, True, False)
    >>> stamps.next(50)
    101
    """

    def __init__(self, *, late_us: int = LATE_US) -> None:
        self._late_us = late_us
        self._newest = 0  # read or written
        self._read = 0  # the greatest that was read
        self.of_keys: dict[int, int] = {}
        self._prune_at = _PRUNED_AT

    def begin(self) -> None:
        """Forget the stamps that were read, before the topic is read from its beginning again."""
        self._read = 0
        self.of_keys.clear()
        self._prune_at = _PRUNED_AT

    def next(self, now_us: int) -> int:
        """Return the stamp for a new record: `now_us`, or one more than the greatest known stamp if that is later."""
        self._newest = min(_STAMPS_MAX, max(now_us, self._newest + 1))
        return self._newest

    def accepts(self, key: bytes | None, stamp: int) -> bool:
        """Register the next record that was read, with a valid signature; returns False if it is a replay.

        An accepted record's stamp is stored. To be called once for each record, in the order of the topic.
        """
        if not self._late_us:
            if stamp <= self._read:
                return False
        elif stamp < self._read - self._late_us or stamp <= self.of_keys.get(hash(key), -1):
            return False
        self._read = max(self._read, stamp)
        self._newest = max(self._newest, stamp)
        if self._late_us:
            self.of_keys[hash(key)] = stamp
            if len(self.of_keys) >= self._prune_at:
                self._prune()
        return True

    def sign(self, records: Sequence[Record], seal: Seal, topic_id: bytes, now_us: int) -> list[Record]:
        """Sign new records, each with its own next stamp, and return them."""
        return [seal.sign(record, self.next(now_us), topic_id) for record in records]

    def _prune(self) -> None:
        """Forget stamps so old that `accepts` refuses them without looking at their key."""
        late = self._read - self._late_us
        self.of_keys = {key: stamp for key, stamp in self.of_keys.items() if stamp >= late}
        self._prune_at = max(_PRUNED_AT, 2 * len(self.of_keys))
