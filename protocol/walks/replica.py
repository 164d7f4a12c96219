"""The walk through a leader's Fetch response that notes where each replica stands (KIP-73, KIP-227).

It is `FetchWalk` with a sink (`Standings`). Of every partition: the error, the high watermark, how many bytes of
records there are and how large the first batch is (from its own first bytes). Everything passes as it came. Versions
12 to 18; how to feed it: `walk`.
"""

from struct import Struct
from typing import Final, NamedTuple

from protocol.messages.fetch import TopicPartition
from protocol.primitives import skip
from protocol.walks.fetch import FetchWalk
from protocol.walks.walk import FullError

__all__ = ["FOUND_MAX", "ReplicaWalk", "Standing", "Standings"]

# A batch's base offset, and the bytes that follow its length.
_BATCH: Final = Struct(">qi").unpack_from
_BATCH_HEAD_BYTES: Final = 12
# Partitions that are found before they have to be taken away: one costs up to 6 us where it counts against two rates.
FOUND_MAX: Final = 250


class Standing(NamedTuple):
    """What a response says of one partition; `batch_bytes` 0 where there are no records."""

    key: TopicPartition
    error_code: int
    high_watermark: int
    records_bytes: int
    batch_bytes: int


class Standings:
    """A sink that notes where each replica stands.

    Attributes:
        found: its reader empties it; with FOUND_MAX of them the walk is `full`.
    """

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[Standing] = []

    def partition(
        self,
        topic: bytes,
        index: int,
        error_code: int,
        high_watermark: int,
        buf: bytearray | memoryview,
        records_at: int,
        size: int,
        limit: int,
    ) -> None:
        """`PartitionSink.partition`."""
        if len(self.found) >= FOUND_MAX:
            raise FullError
        batch_bytes = 0
        if size >= _BATCH_HEAD_BYTES:
            skip(records_at, _BATCH_HEAD_BYTES, limit)
            batch_bytes = max(0, _BATCH(buf, records_at)[1]) + _BATCH_HEAD_BYTES
        self.found.append(Standing((topic, index), error_code, high_watermark, max(size, 0), batch_bytes))


class ReplicaWalk(FetchWalk):
    """A walk through a leader's response to a follower.

    Attributes:
        found: the partitions seen since its reader emptied it.
    """

    __slots__ = ("found",)

    def __init__(self, version: int, frame_length: int) -> None:
        """Take a response by its request's version and the number in its length prefix."""
        standings = Standings()
        self.found = standings.found
        super().__init__(version, frame_length, sink=standings)
