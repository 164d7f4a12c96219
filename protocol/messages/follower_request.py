"""A follower's whole Fetch request: the fields of each partition in it (KIP-73, KIP-903)."""

from struct import Struct
from typing import Final

from protocol.messages.fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchFields,
    ReadRequest,
    TopicPartition,
    Topics,
    read_ahead,
    replica_id,
)

__all__ = ["VERSION_MIN", "FollowerRequest", "Replica", "is_full", "read_follower"]

VERSION_MIN: Final = 12

_INT32 = Struct(">i")
# A partition's entry since version 12: index, leader epoch, fetch offset, last fetched epoch, log start, limit.
_ENTRY = Struct(">iiqiqi")
_LIMIT_AT: Final = _ENTRY.size - 4


class Replica:
    """The fields of one partition in a follower's Fetch.

    Attributes:
        entry: the follower's entry.
        sent: the last entry sent to the leader; None if the leader's session does not contain the partition.
        high_watermark: the last one seen; -1 if there was none in this leader epoch.
    """

    __slots__ = ("entry", "fetch_offset", "high_watermark", "leader_epoch", "max_bytes", "sent")

    fetch_offset: int
    max_bytes: int

    def __init__(self, entry: bytes, sent: bytes | None) -> None:
        self.sent = sent
        self.high_watermark = -1
        self.leader_epoch = 0
        self.take(entry)

    def take(self, entry: bytes) -> None:
        """Take over a new entry of the follower."""
        self.entry = entry
        _, epoch, self.fetch_offset, _, _, self.max_bytes = _ENTRY.unpack_from(entry)
        if epoch != self.leader_epoch:
            self.leader_epoch = epoch
            self.high_watermark = -1

    @property
    def in_sync(self) -> bool:
        """Whether it has reached the last high watermark; False without one (Kafka: no lag)."""
        return self.fetch_offset >= self.high_watermark >= 0

    def limited(self, max_bytes: int) -> bytes:
        """Return its entry with a smaller limit."""
        entry = self.entry
        return entry[:_LIMIT_AT] + _INT32.pack(max_bytes) + entry[_LIMIT_AT + 4 :]


class FollowerRequest(ReadRequest):
    """A decoded whole request. A full request has its partitions in `replicas`, and no entries in `topics`."""

    replicas: dict[TopicPartition, Replica]


def is_full(fields: FetchFields) -> bool:
    """Whether a request is a full one, which names every partition."""
    return fields.session_id == 0 or fields.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)


def read_follower(frame: bytes, body_pos: int, version: int, full: bool) -> tuple[int, FollowerRequest]:
    """Decode a follower's whole request, for a large one in a thread; returns the id in its tags, -1 for none, and it.

    Args:
        full: whether the request names every partition.

    Raises:
        WireError: it is malformed.
    """
    read = FollowerRequest(frame)
    read.topics, read.read_as = read_ahead(frame, body_pos, version).topics, (body_pos, version)
    read.replicas = {}
    if full:
        named, forgotten, end = read.topics
        read.replicas = {key: Replica(entry, None) for key, entry in named.items()}
        read.topics = Topics({}, forgotten, end)
    return replica_id(read, body_pos, version), read
