"""Requests that were kept whole -> what is sent for them (`protocol.capture.FRAME`).

A Produce keeps its records: they are taken out, freed of what ties them to a producer that is long gone (its id, epoch,
sequence and transaction, KIP-98), and written into a request for the target's partitions. A checksum is linear in what
it sums, so it is put right from the few bytes that change, however large the batch is.

Of the others those are sent as they were that only ask: whoever joined a group, committed or changed something would
fail or do harm a second time, and becomes a ping as without a frame. Versions are the recorded ones.
"""

import struct
from typing import Final, NamedTuple

from offline.replay.crc32c import update, zeros
from protocol import api
from protocol.errors import WireError
from protocol.header import REQUEST_HEAD, body_start
from protocol.primitives import count, int16, int32, skip, skip_string, skip_tags

__all__ = ["ASKING", "KeptProduce", "freed", "read_produce", "with_correlation_id"]

_LIST_GROUPS, _DESCRIBE_GROUPS, _EPOCHS, _ACLS, _CONFIGS, _LOG_DIRS = 16, 15, 23, 29, 32, 35
ASKING: Final = frozenset(
    (
        api.METADATA, api.LIST_OFFSETS, api.OFFSET_FETCH, api.FIND_COORDINATOR, api.API_VERSIONS, api.DESCRIBE_CLUSTER,
        api.DESCRIBE_CLIENT_QUOTAS, _LIST_GROUPS, _DESCRIBE_GROUPS, _EPOCHS, _ACLS, _CONFIGS, _LOG_DIRS,
    )
)  # fmt: skip

_CORRELATION_ID: Final = slice(8, 12)
_TOPIC_IDS_SINCE: Final = 13
_TRANSACTIONS_SINCE: Final = 3
_MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT, _PRODUCER_AT, _COUNT_AT = 16, 17, 21, 43, 57
_MAGIC: Final = 2
_NO_TRANSACTION: Final = 0xFFCF  # neither of a transaction nor its marker
_NO_PRODUCER: Final = struct.pack(">qhi", -1, -1, -1)


class KeptProduce(NamedTuple):
    """What a kept Produce asked for; records in the order of its topics and partitions."""

    acks: int
    records: list[tuple[int, bytes]]


def with_correlation_id(frame: bytes, correlation_id: int) -> bytes:
    """The same request under another number."""
    out = bytearray(frame)
    out[_CORRELATION_ID] = correlation_id.to_bytes(4, "big")
    return bytes(out)


def read_produce(frame: bytes) -> KeptProduce | None:
    """Take the records out; None where they are not as they should be."""
    try:
        return _read(frame)
    except (WireError, struct.error):
        return None


def _read(frame: bytes) -> KeptProduce | None:
    end = len(frame)
    _, key, version, _, _ = REQUEST_HEAD.unpack_from(frame)
    compact = api.flexible(key, version)
    start = body_start(frame, 0, end, key, version)
    if start is None:
        return None
    pos = skip_string(frame, start, end, compact) if version >= _TRANSACTIONS_SINCE else start
    acks = int16(frame, pos, end)
    topics, pos = count(frame, pos + 6, end, compact)
    found: list[tuple[int, bytes]] = []
    for _ in range(topics):
        pos = skip(pos, 16, end) if version >= _TOPIC_IDS_SINCE else skip_string(frame, pos, end, compact)
        partitions, pos = count(frame, pos, end, compact)
        for _ in range(partitions):
            index = int32(frame, pos, end)
            size, pos = count(frame, pos + 4, end, compact)
            after = skip(pos, max(size, 0), end)
            found.append((index, frame[pos:after]))
            pos = skip_tags(frame, after, end) if compact else after
        pos = skip_tags(frame, pos, end) if compact else pos
    return KeptProduce(acks, found)


def freed(batch: bytes) -> bytes | None:
    """The batch as one of no producer in particular; None where it is no batch of magic 2."""
    if len(batch) < _COUNT_AT + 4 or batch[_MAGIC_AT] != _MAGIC:
        return None
    out = bytearray(batch)
    (attributes,) = struct.unpack_from(">H", batch, _ATTRIBUTES_AT)
    struct.pack_into(">H", out, _ATTRIBUTES_AT, attributes & _NO_TRANSACTION)
    out[_PRODUCER_AT:_COUNT_AT] = _NO_PRODUCER
    changed = bytes(
        a ^ b for a, b in zip(batch[_ATTRIBUTES_AT:_COUNT_AT], out[_ATTRIBUTES_AT:_COUNT_AT], strict=True)
    )
    (crc,) = struct.unpack_from(">I", batch, _CRC_AT)
    struct.pack_into(">I", out, _CRC_AT, crc ^ zeros(update(0, changed), len(batch) - _COUNT_AT))
    return bytes(out)
