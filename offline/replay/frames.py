"""One recorded request -> the frame to send: its recorded bytes if they were captured, or synthetic ones.

    Produce     the same bytes and records to each partition: batches of zeros with a valid checksum
    Fetch       the same bytes from each partition, from its beginning, without a session and without waiting;
                partitions that returned no bytes are left out, since a broker returns at least a whole batch
    others      a ping of similar size: Metadata of no topics if the response was below 512 bytes, Metadata of all
                topics if it was above 4 KiB, ApiVersions in between

A request with several partitions stays one request; `target.Shares` assigns partitions, and says which are left out.
Client ids are the recorded ones, so that the same quotas apply; principals are not, since their secrets are not known.

Captured records of a Produce are sent again, without the fields of their former producer (id, epoch, sequence and
transaction, KIP-98), in a request for the target's partitions. The checksum of a batch is updated only for these
fields: a wrong one stays wrong, and is refused again.

Other captured requests are sent as recorded only if they are read-only and any broker can respond. Joining a group,
committing or altering again would fail or do harm; such a request becomes a ping, as without a frame. So do requests to
a partition's leader (ListOffsets, OffsetForLeaderEpoch), since the counterpart of the recorded broker may not lead it,
and requests with topic ids, which are those of the recorded cluster. In Metadata the auto-creation of topics is
switched off; before version 4 it has no such field, and becomes a ping. Versions are the recorded ones.
"""

import struct
from typing import Final, NamedTuple

import msgspec

from offline.replay import messages
from offline.replay.messages import Batches
from offline.replay.schedule import Recorded
from offline.replay.target import LeftOut, Placement, Shares
from protocol import api
from protocol.api import API_VERSIONS, FETCH, METADATA, PRODUCE
from protocol.errors import WireError
from protocol.header import REQUEST_HEAD, body_start
from protocol.messages import metadata
from protocol.messages.produce import acks as acks_of
from protocol.walks.produce import ProduceWalk

_SMALL_RESPONSE_BYTES: Final = 512
_LARGE_RESPONSE_BYTES: Final = 4096
# Of a synthetic batch: a little below a topic's default max.message.bytes.
_BATCH_BYTES_MAX: Final = 1_000_000
_INT32_MAX: Final = 0x7FFFFFFF

_LIST_GROUPS, _DESCRIBE_GROUPS, _ACLS, _CONFIGS, _LOG_DIRS = 16, 15, 29, 32, 35
_ASKING: Final = frozenset(
    (
        api.METADATA, api.OFFSET_FETCH, api.FIND_COORDINATOR, api.API_VERSIONS, api.DESCRIBE_CLUSTER,
        api.DESCRIBE_CLIENT_QUOTAS, _LIST_GROUPS, _DESCRIBE_GROUPS, _ACLS, _CONFIGS, _LOG_DIRS,
    )
)  # fmt: skip
_OFFSET_FETCH_IDS_SINCE: Final = 10
_CORRELATION_ID: Final = slice(8, 12)

# A record batch of magic 2.
_MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT, _PRODUCER_AT, _COUNT_AT = 16, 17, 21, 43, 57
_MAGIC: Final = 2
_NO_TRANSACTION: Final = 0xFFCF  # mask that clears the bits for transactional and control batches
_NO_PRODUCER: Final = struct.pack(">qhi", -1, -1, -1)


class Frame(NamedTuple):
    """A request frame to send, and the API key and version with which its response is decoded.

    Attributes:
        expects_response: False for a Produce with acks=0, which gets no response.
    """

    data: bytes
    api_key: int
    version: int
    expects_response: bool = True


class Encoder:
    """Encodes recorded requests for the target.

    Args:
        placement: the target's counterparts of the recorded brokers and partitions.
        acks: the acks of a Produce whose frame was not captured. If its recorded request had no response, 0 is sent.
        now_ms: the timestamp of synthetic records.
    """

    def __init__(self, placement: Placement, acks: int, now_ms: int) -> None:
        self._placement = placement
        self._acks = acks
        self._now_ms = now_ms
        self._shares = Shares(placement)
        self._batches = Batches()

    @property
    def left_out(self) -> LeftOut:
        """The number of recorded partitions, and the bytes, for which the target has no partition."""
        return self._shares.left_out

    def encode(self, row: Recorded, correlation_id: int) -> Frame | None:
        """Encode the frame for a recorded request; None if none of its partitions has a counterpart at the target."""
        if row.frame and row.api_key != PRODUCE:
            low, high = self._placement.ranges.get(row.api_key, (0, -1))
            if low <= row.api_version <= high:
                data = resendable(row.frame, row.api_key, row.api_version, correlation_id)
                if data is not None:
                    return Frame(data, row.api_key, row.api_version)
        if row.api_key == PRODUCE:
            return self._produce(row, correlation_id)
        if row.api_key == FETCH:
            return self._fetch(row, correlation_id)
        return self._ping(row, correlation_id)

    def _produce(self, row: Recorded, correlation_id: int) -> Frame | None:
        asked = read_produce(row.frame) if row.frame else None
        own = [] if asked is None else [without_producer(records) for records in asked.records]
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
        if asked is not None and asked.acks is not None:
            acks = asked.acks
        version = self._placement.produce_version
        data = messages.request(
            PRODUCE, version, correlation_id, row.client_id, messages.produce(acks, entries)
        )
        return Frame(data, PRODUCE, version, acks != 0)

    def _fetch(self, row: Recorded, correlation_id: int) -> Frame | None:
        brought = msgspec.structs.replace(
            row, partitions=tuple(part for part in row.partitions if part.bytes)
        )
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


class RecordedProduce:
    """The acks and record batches of a recorded Produce request, which `ProduceWalk` reads into it.

    Attributes:
        acks: its acks; None if the request is cut off before them.
        records: the record bytes of each partition, in the request's order.
    """

    def __init__(self, frame: bytes) -> None:
        """Read a whole request.

        Raises:
            WireError: it is malformed.
        """
        _, key, version, _, _ = REQUEST_HEAD.unpack_from(frame)
        end = len(frame)
        self.records: list[bytes] = []
        self.acks = acks_of(frame, body_start(frame, 0, end, key, version) or end, end, version)
        walk, at = ProduceWalk(version, end - 4, None, self), 0
        while not walk.done:
            at += walk.feed(memoryview(frame), at, end, None)

    def partition(
        self,
        _topic: bytes,
        _index: int,
        _error_code: int,
        _high_watermark: int,
        buf: bytearray | memoryview,
        records_at: int,
        size: int,
        _limit: int,
    ) -> None:
        """Add the records of a partition; called by `ProduceWalk` (see `PartitionSink`)."""
        self.records.append(bytes(buf[records_at : records_at + max(size, 0)]))


def read_produce(frame: bytes) -> RecordedProduce | None:
    """Read acks and records of a recorded Produce frame; None if it is malformed or cut off."""
    try:
        found = RecordedProduce(frame)
    except (WireError, struct.error):
        return None
    return found if found.acks is not None else None


def resendable(frame: bytes, api_key: int, version: int, correlation_id: int) -> bytes | None:
    """Return a recorded frame with another correlation id, to be sent again; None if that might change anything.

    Only APIs that read are sent again; Metadata is changed so that it creates no topics.
    """
    if api_key not in _ASKING or (api_key == api.OFFSET_FETCH and version >= _OFFSET_FETCH_IDS_SINCE):
        return None
    out = bytearray(frame)
    out[_CORRELATION_ID] = correlation_id.to_bytes(4, "big")
    if api_key == api.METADATA:
        try:
            body = body_start(frame, 0, len(frame), METADATA, version)
            asked = None if body is None else metadata.read_request(frame, body, version)
        except WireError:
            return None
        if asked is None or asked.creates_at < 0 or asked.by_id:
            return None
        out[asked.creates_at] = 0
    return bytes(out)


def without_producer(batch: bytes) -> bytes | None:
    """Return a record batch without producer id, epoch, sequence and transaction; None if it is not of magic 2.

    With them, the target would refuse a batch of an unknown or fenced producer. The CRC is updated.
    """
    if len(batch) < _COUNT_AT + 4 or batch[_MAGIC_AT] != _MAGIC:
        return None
    out = bytearray(batch)
    (attributes,) = struct.unpack_from(">H", batch, _ATTRIBUTES_AT)
    struct.pack_into(">H", out, _ATTRIBUTES_AT, attributes & _NO_TRANSACTION)
    out[_PRODUCER_AT:_COUNT_AT] = _NO_PRODUCER
    import google_crc32c  # an extra: the commands are there without it

    (crc,) = struct.unpack_from(">I", batch, _CRC_AT)
    for whole in (batch, out):
        crc ^= google_crc32c.value(bytes(whole[_ATTRIBUTES_AT:]))
    struct.pack_into(">I", out, _CRC_AT, crc)
    return bytes(out)
