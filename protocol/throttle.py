"""The position of throttle_time_ms in a response, and how a larger value is written there (KIP-219).

Nearly always it is the body's first field. In Produce, ApiVersions and the four delegation token APIs it is the last
one, before the tag section of flexible versions, so all fields before it must be skipped; OffsetDelete has it after an
error code. Some APIs have none: their clients are muted without a throttle time in the response.

The throttle time itself is decided by the quota engine.
"""

from struct import Struct
from typing import Final

from protocol.api import (
    API_VERSIONS,
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    MAX_VERSION,
    OFFSET_DELETE,
    PRODUCE,
    RENEW_DELEGATION_TOKEN,
    flexible,
)
from protocol.header import response_body_start
from protocol.primitives import Buffer, count, int16, skip, skip_bytes, skip_string, skip_tags

# The response of this version has no throttle time.
NONE: Final = -1
# The field follows fields of variable length, which `locate` skips.
LAST: Final = -2

_INT32: Final = Struct(">i")
_UNSUPPORTED_VERSION: Final = 35

# The first version with the field, if it is not 0.
_SINCE: Final[dict[int, int]] = {
    0: 1, 1: 1, 2: 2, 3: 3, 8: 3, 9: 3, 10: 1, 11: 2, 12: 1,
    13: 1, 14: 1, 15: 1, 16: 1, 18: 1, 19: 2, 20: 1, 23: 2,
}  # fmt: skip
# SaslHandshake, WriteTxnMarkers, SaslAuthenticate, the quorum's, Envelope, share group state.
_WITHOUT: Final = frozenset({17, 27, 36, 52, 53, 54, 55, 58, 83, 84, 85, 86, 87})

_LAST: Final = frozenset({PRODUCE, API_VERSIONS, CREATE_DELEGATION_TOKEN, DESCRIBE_DELEGATION_TOKEN})
# The bytes of the body before it, if it is not the first field: an error code; an error code and an expiry.
_OFFSET: Final[dict[int, int]] = {OFFSET_DELETE: 2, RENEW_DELEGATION_TOKEN: 10, EXPIRE_DELEGATION_TOKEN: 10}


def position(api_key: int, version: int) -> int:
    """Return the offset of throttle_time_ms in a response's body; LAST if it is the last field, NONE without one."""
    if version > MAX_VERSION.get(api_key, -1) or api_key in _WITHOUT or version < _SINCE.get(api_key, 0):
        return NONE
    if api_key in _LAST:
        return LAST
    return _OFFSET.get(api_key, 0)


def locate(frame: Buffer, api_key: int, version: int) -> int:
    """Return the offset of throttle_time_ms in a complete response with its length prefix; NONE if it has none.

    Raises:
        WireError: the frame ends before it.
    """
    offset = position(api_key, version)
    if offset == NONE:
        return NONE
    end = len(frame)
    pos = response_body_start(frame, 0, end, api_key, version)
    if offset == LAST:
        if api_key == PRODUCE:
            pos = skip_produce_responses(frame, pos, end, version)
        elif api_key == API_VERSIONS:
            # A version the broker does not support gets a response of version 0, which has no such field (KIP-511).
            if int16(frame, pos, end) == _UNSUPPORTED_VERSION:
                return NONE
            pos = _skip_api_keys(frame, pos + 2, end, version)
        elif api_key == CREATE_DELEGATION_TOKEN:
            pos = _skip_token(frame, pos + 2, end, version)
        else:
            pos = _skip_tokens(frame, pos + 2, end, version)
        offset = 0
    skip(pos, offset + 4, end)
    return pos + offset


def patch(frame: bytearray | memoryview, api_key: int, version: int, throttle_ms: int) -> bool:
    """Raise throttle_time_ms in a complete response to `throttle_ms`, unless it is larger already.

    Returns False if the response has no such field.
    """
    pos = locate(frame, api_key, version)
    if pos == NONE:
        return False
    if throttle_ms > _INT32.unpack_from(frame, pos)[0]:
        _INT32.pack_into(frame, pos, throttle_ms)
    return True


def skip_produce_responses(buf: Buffer, pos: int, end: int, version: int) -> int:
    """Return the position after the topics of a Produce response; since version 1 its throttle time is there."""
    compact = flexible(PRODUCE, version)
    # Index, error code, base offset; log append time since version 2, log start offset since 5.
    fixed = 14 + (8 if version >= 2 else 0) + (8 if version >= 5 else 0)
    topics, pos = count(buf, pos, end, compact)
    for _ in range(topics):
        pos = skip(pos, 16, end) if version >= 13 else skip_string(buf, pos, end, compact)
        partitions, pos = count(buf, pos, end, compact)
        for _ in range(partitions):
            pos = skip(pos, fixed, end)
            if version >= 8:
                # No record errors, no message, no tags: the three last bytes of a partition without an error.
                if compact and pos + 3 <= end and buf[pos] == 1 and not buf[pos + 1] and not buf[pos + 2]:
                    pos += 3
                    continue
                pos = _skip_record_errors(buf, pos, end, compact)
        if compact:
            pos = skip_tags(buf, pos, end)
    return pos


def _skip_record_errors(buf: Buffer, pos: int, end: int, compact: bool) -> int:
    errors, pos = count(buf, pos, end, compact)
    for _ in range(errors):
        pos = skip_string(buf, pos + 4, end, compact)
        if compact:
            pos = skip_tags(buf, pos, end)
    pos = skip_string(buf, pos, end, compact)
    return skip_tags(buf, pos, end) if compact else pos


def _skip_api_keys(buf: Buffer, pos: int, end: int, version: int) -> int:
    compact = flexible(API_VERSIONS, version)
    keys, pos = count(buf, pos, end, compact)
    if not compact:
        return skip(pos, 6 * max(keys, 0), end)
    for _ in range(keys):
        pos = skip_tags(buf, pos + 6, end)
    return pos


def _skip_token(buf: Buffer, pos: int, end: int, version: int) -> int:
    """Return the position after the fields that creating and describing a delegation token share."""
    compact = flexible(CREATE_DELEGATION_TOKEN, version)
    for _ in range(4 if version >= 3 else 2):
        pos = skip_string(buf, pos, end, compact)
    pos = skip_string(buf, skip(pos, 24, end), end, compact)
    return skip_bytes(buf, pos, end, compact)


def _skip_tokens(buf: Buffer, pos: int, end: int, version: int) -> int:
    compact = flexible(DESCRIBE_DELEGATION_TOKEN, version)
    tokens, pos = count(buf, pos, end, compact)
    for _ in range(tokens):
        pos = _skip_token(buf, pos, end, version)
        renewers, pos = count(buf, pos, end, compact)
        for _ in range(renewers):
            pos = skip_string(buf, skip_string(buf, pos, end, compact), end, compact)
            if compact:
                pos = skip_tags(buf, pos, end)
        if compact:
            pos = skip_tags(buf, pos, end)
    return pos
