"""Which of the target's partitions a recorded request goes to, and how much of it to each.

Recorded partitions that become the same one of the target are added up, as far as one batch may hold; kept records can
not be. What was summed when it was captured (partition -1) goes to other partitions of the topic named last, evenly.
What finds no place, or no room in it, is left out and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from offline.replay.schedule import Part, Recorded
from offline.replay.target import Placement

__all__ = ["LeftOut", "Share", "Shares"]

Topics = dict[str, dict[int, "Share"]]


@dataclass(slots=True)
class LeftOut:
    """Recorded partitions of which nothing, or not all, was sent; and those bytes."""

    partitions: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count one."""
        self.partitions += 1
        self.bytes += size


@dataclass(slots=True)
class Share:
    """What one partition gets: bytes and records; its own where they were kept."""

    size: int
    records: int
    own: bytes | None = None


class Shares:
    """Divides requests."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self.left_out = LeftOut()

    def of(self, row: Recorded, limit: int, own: Sequence[bytes | None] = ()) -> Topics:
        """By topic and partition.

        Args:
            limit: bytes of a partition, where they are not of one that was recorded.
            own: the kept records, in the order of the request's partitions.
        """
        topics: Topics = {}
        for place, part in enumerate(row.partitions):
            if part.partition >= 0:
                self._put(topics, row.broker, part, own[place] if place < len(own) else None, limit)
        self._put_rest(topics, row, limit)
        return topics

    def _put(self, topics: Topics, broker: int, part: Part, own: bytes | None, limit: int) -> None:
        partition = self._placement.partition(part.topic, part.partition, broker)
        if partition < 0:
            self.left_out.add(part.bytes)
            return
        there = topics.setdefault(part.topic, {})
        share = there.get(partition)
        if share is None:
            there[partition] = Share(part.bytes, part.records, own)
        elif share.own is not None or own is not None or share.size + part.bytes > limit:
            self.left_out.add(part.bytes)
        else:
            share.size += part.bytes
            share.records = max(share.records, 0) + max(part.records, 0)

    def _put_rest(self, topics: Topics, row: Recorded, limit: int) -> None:
        rest = sum(part.bytes for part in row.partitions if part.partition < 0)
        if not rest:
            return
        topic = next(reversed(topics), "")
        used = topics.get(topic, {})
        free = [index for index in self._placement.led(topic, row.broker) if index not in used]
        each = -(-rest // max(len(free), 1))
        for index in free:
            if rest > 0:
                used[index] = Share(min(each, rest, limit), 1)
                rest -= used[index].size
        if rest > 0:
            self.left_out.add(rest)
