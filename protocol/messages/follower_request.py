"""A follower's Fetch, read as a whole: what it wants of each partition that it names (KIP-73, KIP-903)."""

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

__all__ = ["VERSION_MIN", "FollowerRequest", "Replica", "names_all", "read_follower"]

VERSION_MIN: Final = 12

_INT32 = Struct(">i")
# A partition's entry since version 12: index, leader epoch, fetch offset, last fetched epoch, log start, limit.
_ENTRY = Struct(">iiqiqi")
_LIMIT_AT: Final = _ENTRY.size - 4


class Replica:
    """One partition as the follower wants it.

    Attributes:
        entry: its entry in the follower's words.
        told: its entry as the leader was last told it; None where the leader does not hold it.
        high_watermark: the last one seen; -1 where none was, or none of this leader epoch.
    """

    __slots__ = ("entry", "fetch_offset", "high_watermark", "leader_epoch", "max_bytes", "told")

    fetch_offset: int
    max_bytes: int

    def __init__(self, entry: bytes, told: bytes | None) -> None:
        self.told = told
        self.high_watermark = -1
        self.leader_epoch = 0
        self.take(entry)

    def take(self, entry: bytes) -> None:
        """Take over what the follower says anew."""
        self.entry = entry
        _, epoch, self.fetch_offset, _, _, self.max_bytes = _ENTRY.unpack_from(entry)
        if epoch != self.leader_epoch:
            self.leader_epoch = epoch
            self.high_watermark = -1

    @property
    def in_sync(self) -> bool:
        """Whether it is not behind the last high watermark seen; not where none was (Kafka: no lag)."""
        return self.fetch_offset >= self.high_watermark >= 0

    def limited(self, max_bytes: int) -> bytes:
        """Its entry, asking for less."""
        entry = self.entry
        return entry[:_LIMIT_AT] + _INT32.pack(max_bytes) + entry[_LIMIT_AT + 4 :]


class FollowerRequest(ReadRequest):
    """A whole request that is read already. One that names everything has what its follower wants in `replicas`, and no
    entries in `topics`.
    """

    replicas: dict[TopicPartition, Replica]


def names_all(fields: FetchFields) -> bool:
    """Whether a request names everything that its follower wants."""
    return fields.session_id == 0 or fields.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)


def read_follower(frame: bytes, body_pos: int, version: int, full: bool) -> tuple[int, FollowerRequest]:
    """Read a follower's whole request, beside the loop if it is a large one: the id that it says in its tags, -1 for
    none, and itself.

    Args:
        full: it names everything.

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
