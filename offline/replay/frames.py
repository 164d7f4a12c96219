"""One recorded request -> the bytes that are sent for it: its own where they were kept (`kept`), or made up.

    Produce     the same bytes and records to each partition: batches of zeros with a valid checksum
    Fetch       the same bytes from each partition, from its beginning, without a session and without waiting
    others      a ping of the same size: Metadata of no topics where the answer was below 512 bytes, Metadata of all
                topics where it was above 4 KiB, ApiVersions in between

A request with several partitions stays one request. What was summed when it was captured (partition -1) goes to other
partitions of the topic named last, evenly. Partitions of topics that nobody on the target leads in its broker's place,
and sums for which there is no other partition, are left out and counted. Client ids are the recorded ones, so that the
same quotas apply; principals are not, since nobody has their secrets.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from offline.replay import kept, messages
from offline.replay.payload import batch
from offline.replay.schedule import Recorded
from offline.replay.target import Placement
from protocol.api import API_VERSIONS, FETCH, METADATA, PRODUCE

__all__ = ["Encoder", "Frame"]

_SMALL_ANSWER_BYTES: Final = 512
_LARGE_ANSWER_BYTES: Final = 4096
_REST_BYTES_MAX: Final = 1_000_000  # of a batch that is made up: what a topic takes by default, nearly
_INT32_MAX: Final = 0x7FFFFFFF


class Frame(NamedTuple):
    """What is sent, and how its answer is read; no answer is owed where `answered` is False."""

    data: bytes
    api_key: int
    version: int
    answered: bool = True


class Encoder:
    """Makes frames.

    Args:
        acks: of a Produce that was answered; one that was not asked for no answer.
        now_ms: what records are stamped with.

    Attributes:
        unplaced: partitions that no broker leads where they would have to be.
    """

    def __init__(self, placement: Placement, acks: int, now_ms: int) -> None:
        self._placement = placement
        self._acks = acks
        self._now_ms = now_ms
        self.unplaced = 0

    def encode(self, row: Recorded, correlation_id: int) -> Frame | None:
        """Make the frame of a request; None where nothing is left of it."""
        if row.frame and row.api_key != PRODUCE:
            low, high = self._placement.ranges.get(row.api_key, (0, -1))
            if row.api_key in kept.ASKING and low <= row.api_version <= high:
                data = kept.with_correlation_id(row.frame, correlation_id)
                return Frame(data, row.api_key, row.api_version)
        if row.api_key == PRODUCE:
            return self._produce(row, correlation_id)
        if row.api_key == FETCH:
            return self._fetch(row, correlation_id)
        return self._ping(row, correlation_id)

    def _produce(self, row: Recorded, correlation_id: int) -> Frame | None:
        topics: dict[str, dict[int, bytes]] = defaultdict(dict)
        asked = kept.read_produce(row.frame) if row.frame else None
        own = [] if asked is None else [kept.freed(records) for _, records in asked.records]
        for place, part in enumerate(row.partitions):
            partition = self._place(part.topic, part.partition, row.broker)
            if partition >= 0 and partition not in topics[part.topic]:
                records = own[place] if place < len(own) else None
                topics[part.topic][partition] = records or batch(part.bytes, part.records, self._now_ms)
        for topic, partition, size in self._rest(row, topics):
            topics[topic][partition] = batch(size, 1, self._now_ms)
        entries = [(topic, list(parts.items())) for topic, parts in topics.items() if parts]
        if row.partitions and not entries:
            return None
        acks = 0 if row.response_bytes < 0 else self._acks
        if asked is not None:
            acks = asked.acks
        version = self._placement.produce_version
        data = messages.request(
            PRODUCE, version, correlation_id, row.client_id, messages.produce(acks, entries)
        )
        return Frame(data, PRODUCE, version, acks != 0)

    def _fetch(self, row: Recorded, correlation_id: int) -> Frame | None:
        topics: dict[str, dict[int, tuple[int, int, int]]] = defaultdict(dict)
        total = 0
        for part in row.partitions:
            partition = self._place(part.topic, part.partition, row.broker)
            if partition >= 0:
                offset = self._placement.offsets.get((part.topic, partition), 0)
                topics[part.topic][partition] = (partition, offset, part.bytes)
                total += part.bytes
        for topic, partition, size in self._rest(row, topics):
            topics[topic][partition] = (partition, self._placement.offsets.get((topic, partition), 0), size)
            total += size
        entries = [(topic, list(parts.values())) for topic, parts in topics.items() if parts]
        if row.partitions and not entries:
            return None
        body = messages.fetch(min(max(total, 1), _INT32_MAX), entries)
        version = messages.VERSIONS[FETCH]
        data = messages.request(FETCH, version, correlation_id, row.client_id, body, row.request_bytes)
        return Frame(data, FETCH, version)

    def _ping(self, row: Recorded, correlation_id: int) -> Frame:
        key, body = METADATA, messages.metadata(())
        if row.response_bytes > _LARGE_ANSWER_BYTES:
            body = messages.metadata(None)
        elif row.response_bytes >= _SMALL_ANSWER_BYTES:
            key, body = API_VERSIONS, messages.api_versions()
        version = messages.VERSIONS[key]
        return Frame(
            messages.request(key, version, correlation_id, row.client_id, body, row.request_bytes),
            key,
            version,
        )

    def _place(self, topic: str, partition: int, broker: int) -> int:
        if partition < 0:
            return -1  # see `_rest`
        found = self._placement.partition(topic, partition, broker)
        self.unplaced += found < 0
        return found

    def _rest(
        self, row: Recorded, topics: Mapping[str, Mapping[int, object]]
    ) -> Iterator[tuple[str, int, int]]:
        """Where what was summed goes: topic, partition, bytes."""
        rest = sum(part.bytes for part in row.partitions if part.partition < 0)
        if not rest:
            return
        topic = next(reversed(list(topics)), "")
        free = [index for index in self._placement.led(topic, row.broker) if index not in topics[topic]]
        if not free:
            self.unplaced += 1
        each = -(-rest // max(len(free), 1))
        for index in free:
            if rest > 0:
                yield topic, index, min(each, rest, _REST_BYTES_MAX)
            rest -= each
