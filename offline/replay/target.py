"""The target cluster of a replay: the requirements of a recording, and the counterparts of its brokers and partitions.

A recorded broker's counterpart is the target's broker of the same id, else one without a counterpart yet, else any
(`prepare`). A partition's counterpart is the same partition if the broker's counterpart leads it, else another one of
that topic that it leads.

Recorded partitions of a request that map to the same target partition are added up, up to the size of one batch;
captured records cannot be added. Bytes that were summed at the capture (partition -1) are distributed evenly over the
other partitions of the last named topic. Bytes without a partition, or beyond its bound, are left out and counted.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from offline.replay import messages
from offline.replay.messages import Broker, Topic
from offline.replay.schedule import Part, Recorded
from protocol.api import FETCH, PRODUCE

Topics = dict[str, dict[int, "Share"]]


@dataclass(slots=True)
class Requirements:
    """The brokers, partitions and bytes that a recording needs at the target cluster.

    Attributes:
        leaders: by topic and partition, the recorded broker that led it; -1 if it is not known.
        fetched: by topic, partition and recorded broker, the largest number of bytes that a Fetch brought.
        brokers: the recorded brokers.
    """

    leaders: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    fetched: dict[tuple[str, int, int], int] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)


def requirements_of(requests: Iterable[Recorded]) -> Requirements:
    """Return what these recorded requests need at their target."""
    found = Requirements()
    for row in requests:
        if row.broker >= 0:
            found.brokers.add(row.broker)
        for part in row.partitions:
            if part.partition < 0 or (row.api_key == FETCH and not part.bytes):
                continue
            leaders = found.leaders[part.topic]
            if row.broker >= 0 or part.partition not in leaders:
                leaders[part.partition] = row.broker
            if row.api_key == FETCH:
                key = (part.topic, part.partition, row.broker)
                found.fetched[key] = max(found.fetched.get(key, 0), part.bytes)
    return found


@dataclass(slots=True)
class Placement:
    """The target's counterparts of the recorded brokers and partitions.

    Attributes:
        brokers: the address at the target, by recorded broker; -1 stands for unknown brokers.
        nodes: the broker id at the target, by recorded broker.
        topics: the target's topics by name.
        offsets: the first offset of each of its partitions.
        ranges: the version range that the target supports, by API key.
        produce_version: the version of Produce to send.
    """

    brokers: dict[int, Broker]
    nodes: dict[int, int]
    topics: dict[str, Topic]
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    produce_version: int = messages.VERSIONS[PRODUCE]
    _known: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def partition(self, topic: str, partition: int, broker: int) -> int:
        """Return the target's partition for a recorded one that `broker` led; -1 if there is none.

        It has the same number if the counterpart of `broker` leads it, and else is one that this counterpart leads.
        """
        key = (topic, partition, broker)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._choose(*key)
        return known

    def partitions_led(self, topic: str, broker: int) -> list[int]:
        """Return the target's partitions of a topic that a recorded broker's counterpart leads."""
        there = self.topics.get(topic)
        node = self.nodes.get(broker, -1)
        if there is None:
            return []
        return sorted(index for index, leader in there.leaders.items() if leader == node)

    def _choose(self, topic: str, partition: int, broker: int) -> int:
        led = self.partitions_led(topic, broker)
        if partition in led:
            return partition
        return led[partition % len(led)] if led else -1


@dataclass(slots=True)
class LeftOut:
    """Counts the recorded partitions of requests that were not sent completely, and the bytes that are missing."""

    partitions: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count one partition of which `size` bytes were left out."""
        self.partitions += 1
        self.bytes += size


@dataclass(slots=True)
class Share:
    """What one partition of the target gets of a request: the bytes, and the number of records.

    Attributes:
        own: the captured records; None if synthetic ones are to be sent.
    """

    size: int
    records: int
    own: bytes | None = None


class Shares:
    """Distributes the bytes and records of recorded requests over the target's partitions."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self.left_out = LeftOut()

    def of(self, row: Recorded, limit: int, own: Sequence[bytes | None] = ()) -> Topics:
        """Return what each of the target's partitions gets of a recorded request, by topic and partition.

        Bytes for which there is no partition are counted in `left_out`.

        Args:
            limit: the largest number of bytes for one partition if it stands in for several recorded ones; a single
                recorded one may exceed it.
            own: the captured records of each partition, in the request's order; None for synthetic ones.
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
