"""Distributes a recorded request over the target's partitions.

Recorded partitions that map to the same target partition are added up, up to the size of one batch; captured records
cannot be added. Bytes that were summed at the capture (partition -1) are distributed evenly over the other partitions
of the last named topic. Bytes without a partition, or beyond its bound, are left out and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from offline.replay.schedule import Part, Recorded
from offline.replay.target import Placement

__all__ = ["LeftOut", "Share", "Shares"]

Topics = dict[str, dict[int, "Share"]]


@dataclass(slots=True)
class LeftOut:
    """The recorded partitions that were not sent completely, and the bytes left out."""

    partitions: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count one partition with `size` bytes left out."""
        self.partitions += 1
        self.bytes += size


@dataclass(slots=True)
class Share:
    """One partition's part: bytes and records; captured records if there are some."""

    size: int
    records: int
    own: bytes | None = None


class Shares:
    """Distributes requests over partitions."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self.left_out = LeftOut()

    def of(self, row: Recorded, limit: int, own: Sequence[bytes | None] = ()) -> Topics:
        """Return the shares of a request by topic and partition.

        Args:
            limit: the bound of a partition's bytes, unless it is a single recorded one.
            own: the captured records, in the order of the request's partitions.
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
        free = [index for index in self._placement.partitions_led(topic, row.broker) if index not in used]
        each = -(-rest // max(len(free), 1))
        for index in free:
            if rest > 0:
                used[index] = Share(min(each, rest, limit), 1)
                rest -= used[index].size
        if rest > 0:
            self.left_out.add(rest)
