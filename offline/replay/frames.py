"""One recorded request -> the frame to send: its recorded bytes if they were captured (`recorded_frames`), or
synthetic ones.

    Produce     the same bytes and records to each partition: batches of zeros with a valid checksum
    Fetch       the same bytes from each partition, from its beginning, without a session and without waiting;
                partitions that returned no bytes are left out, since a broker returns at least a whole batch
    others      a ping of similar size: Metadata of no topics if the response was below 512 bytes, Metadata of all
                topics if it was above 4 KiB, ApiVersions in between

A request with several partitions stays one request; `shares` assigns partitions, and says which are left out. Client
ids are the recorded ones, so that the same quotas apply; principals are not, since their secrets are not known.
"""

from typing import Final, NamedTuple

from offline.replay import messages, recorded_frames
from offline.replay.payload import Batches
from offline.replay.schedule import Recorded
from offline.replay.shares import LeftOut, Shares
from offline.replay.target import Placement
from protocol.api import API_VERSIONS, FETCH, METADATA, PRODUCE

__all__ = ["Encoder", "Frame"]

_SMALL_RESPONSE_BYTES: Final = 512
_LARGE_RESPONSE_BYTES: Final = 4096
_BATCH_BYTES_MAX: Final = (
    1_000_000  # of a synthetic batch: a little below a topic's default max.message.bytes
)
_INT32_MAX: Final = 0x7FFFFFFF


class Frame(NamedTuple):
    """A request's bytes, and how its response is read; it has none if `expects_response` is False."""

    data: bytes
    api_key: int
    version: int
    expects_response: bool = True


class Encoder:
    """Encodes frames.

    Args:
        acks: the acks of a Produce whose recorded request had a response; 0 for others.
        now_ms: the timestamp of records.
    """

    def __init__(self, placement: Placement, acks: int, now_ms: int) -> None:
        self._placement = placement
        self._acks = acks
        self._now_ms = now_ms
        self._shares = Shares(placement)
        self._batches = Batches()

    @property
    def left_out(self) -> LeftOut:
        """The requests and partitions without a place at the target."""
        return self._shares.left_out

    def encode(self, row: Recorded, correlation_id: int) -> Frame | None:
        """Encode a request's frame; None if none of its partitions has a place at the target."""
        if row.frame and row.api_key != PRODUCE:
            low, high = self._placement.ranges.get(row.api_key, (0, -1))
            if low <= row.api_version <= high:
                data = recorded_frames.resendable(row.frame, row.api_key, row.api_version, correlation_id)
                if data is not None:
                    return Frame(data, row.api_key, row.api_version)
        if row.api_key == PRODUCE:
            return self._produce(row, correlation_id)
        if row.api_key == FETCH:
            return self._fetch(row, correlation_id)
        return self._ping(row, correlation_id)

    def _produce(self, row: Recorded, correlation_id: int) -> Frame | None:
        asked = recorded_frames.read_produce(row.frame) if row.frame else None
        own = (
            []
            if asked is None
            else [recorded_frames.without_producer(records) for _, records in asked.records]
        )
        topics = self._shares.of(row, _BATCH_BYTES_MAX, own)
        if row.partitions and not topics:
            return None
        entries = [
            (
                topic,
                [
                    (index, share.own or self._batches.batch(share.size, share.records, self._now_ms))
                    for index, share in parts.items()
                ],
            )
            for topic, parts in topics.items()
        ]
        acks = 0 if row.response_bytes < 0 else self._acks
        if asked is not None:
            acks = asked.acks
        version = self._placement.produce_version
        data = messages.request(
            PRODUCE, version, correlation_id, row.client_id, messages.produce(acks, entries)
        )
        return Frame(data, PRODUCE, version, acks != 0)

    def _fetch(self, row: Recorded, correlation_id: int) -> Frame | None:
        brought = row._replace(partitions=tuple(part for part in row.partitions if part.bytes))
        topics = self._shares.of(brought, _INT32_MAX)
        if brought.partitions and not topics:
            return None
        offsets = self._placement.offsets
        entries = [
            (topic, [(index, offsets.get((topic, index), 0), share.size) for index, share in parts.items()])
            for topic, parts in topics.items()
        ]
        total = sum(share.size for parts in topics.values() for share in parts.values())
        body = messages.fetch(min(max(total, 1), _INT32_MAX), entries)
        version = messages.VERSIONS[FETCH]
        data = messages.request(FETCH, version, correlation_id, row.client_id, body, row.request_bytes)
        return Frame(data, FETCH, version)

    def _ping(self, row: Recorded, correlation_id: int) -> Frame:
        key, body = METADATA, messages.metadata(())
        if row.response_bytes > _LARGE_RESPONSE_BYTES:
            body = messages.metadata(None)
        elif row.response_bytes >= _SMALL_RESPONSE_BYTES:
            key, body = API_VERSIONS, messages.api_versions()
        version = messages.VERSIONS[key]
        return Frame(
            messages.request(key, version, correlation_id, row.client_id, body, row.request_bytes),
            key,
            version,
        )
