"""The sizes of moved replicas: for the status, never for a decision (KIP-435). Pure.

A partition's size is that of the largest replica seen during its move. The leader's current replica is no substitute:
during a move the leader may be a new replica that was read before it was complete, or may be missing, and retention
shortens logs. The status's totals would then fall while bytes are moved.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from quotas.reassignment.step import TopicPartition


class Sizes(NamedTuple):
    """The replicas' sizes as last read.

    Args:
        by_broker: the bytes of every replica of each broker involved.
        largest: for each moved partition, the most bytes of any replica in any reading.
    """

    by_broker: Mapping[int, Mapping[TopicPartition, int]] = {}
    largest: Mapping[TopicPartition, int] = {}

    def updated(
        self, found: Mapping[int, Mapping[TopicPartition, int]], moved: Collection[TopicPartition]
    ) -> "Sizes":
        """Return the sizes after another reading; partitions that are no longer moved are removed."""
        largest = {
            key: max(self.largest.get(key, 0), *(sizes.get(key, 0) for sizes in found.values()), 0)
            for key in moved
        }
        return Sizes(found, largest)

    def partition(self, key: TopicPartition) -> int:
        """Return the bytes of a complete replica of a partition; 0 if unknown."""
        return self.largest.get(key, 0)

    def replica(self, broker: int, key: TopicPartition) -> int:
        """Return the bytes of a partition's replica at a broker."""
        return self.by_broker.get(broker, {}).get(key, 0)
