"""The walk through a leader's Fetch response that collects the status of each replica (KIP-73, KIP-227).

It is `FetchWalk` with a sink (`ReplicaStatuses`): of every partition the error, the high watermark, the size of the
records, and the size of the first batch, from its header. Nothing is changed. Versions 12 to 18.
"""

from struct import Struct
from typing import Final, NamedTuple

from protocol.messages.fetch import TopicPartition
from protocol.primitives import skip
from protocol.walks.fetch import FetchWalk
from protocol.walks.walk import FullError

__all__ = ["STATUSES_MAX", "ReplicaStatus", "ReplicaStatuses", "ReplicaWalk"]

# A batch's base offset, and the bytes that follow its length.
_BATCH: Final = Struct(">qi").unpack_from
_BATCH_HEAD_BYTES: Final = 12
# The most statuses before the reader must take them: one costs up to 6 us if it counts against two rates.
STATUSES_MAX: Final = 250


class ReplicaStatus(NamedTuple):
    """The status of one partition in a response. `batch_bytes` is the size of its first batch; 0 without records."""

    key: TopicPartition
    error_code: int
    high_watermark: int
    records_bytes: int
    batch_bytes: int


class ReplicaStatuses:
    """A sink that collects the status of each replica.

    Attributes:
        statuses: the partitions so far; their reader empties the list. With STATUSES_MAX of them the walk is `full`.
    """

    __slots__ = ("statuses",)

    def __init__(self) -> None:
        self.statuses: list[ReplicaStatus] = []

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
        """Add a partition of the frame (see `PartitionSink`)."""
        if len(self.statuses) >= STATUSES_MAX:
            raise FullError
        batch_bytes = 0
        if size >= _BATCH_HEAD_BYTES:
            skip(records_at, _BATCH_HEAD_BYTES, limit)
            batch_bytes = max(0, _BATCH(buf, records_at)[1]) + _BATCH_HEAD_BYTES
        self.statuses.append(
            ReplicaStatus((topic, index), error_code, high_watermark, max(size, 0), batch_bytes)
        )


class ReplicaWalk(FetchWalk):
    """A walk through a leader's response to a follower.

    Attributes:
        statuses: the partitions since its reader emptied the list.
    """

    __slots__ = ("statuses",)

    def __init__(self, version: int, frame_length: int) -> None:
        """Create a walk from the request's version and the response's length prefix."""
        statuses = ReplicaStatuses()
        self.statuses = statuses.statuses
        super().__init__(version, frame_length, sink=statuses)
