"""How large the replicas of moves are: for the status, never for a decision (KIP-435). Pure.

A partition counts as large as the largest replica that was ever seen of it while it is moved. Its leader's replica now
would not do: in the middle of a move the leader may be a new replica, read before it was complete, or there may be
none, and logs are cut by retention meanwhile. The totals of the status would then fall while bytes are moved.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from quotas.reassignment.step import TopicPartition

__all__ = ["Sizes"]


class Sizes(NamedTuple):
    """Replicas' bytes, as they were last read.

    Args:
        by_broker: bytes of every replica of each broker that is concerned.
        largest: of each partition that is moved, the most that any replica had at any reading.
    """

    by_broker: Mapping[int, Mapping[TopicPartition, int]] = {}
    largest: Mapping[TopicPartition, int] = {}

    def with_read(
        self, found: Mapping[int, Mapping[TopicPartition, int]], moved: Collection[TopicPartition]
    ) -> "Sizes":
        """Return the sizes after another reading; partitions that are not moved any more are forgotten."""
        largest = {
            key: max(self.largest.get(key, 0), *(sizes.get(key, 0) for sizes in found.values()), 0)
            for key in moved
        }
        return Sizes(found, largest)

    def partition(self, key: TopicPartition) -> int:
        """Return how many bytes a replica of a partition has when it is complete; 0 while that is not known."""
        return self.largest.get(key, 0)

    def replica(self, broker: int, key: TopicPartition) -> int:
        """Return how many bytes a broker has of a partition."""
        return self.by_broker.get(broker, {}).get(key, 0)
