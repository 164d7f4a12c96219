"""Metadata: replaces the addresses in the array of brokers (KIP-4, KIP-36 racks).

The array precedes the topics, so only the head of a response is read and replaced; topics and partitions, which may be
megabytes, are not changed. They identify brokers by id. Brokers without an address for clients are removed from the
array; clients then treat their partitions as leaderless and retry.
"""

from struct import Struct
from typing import Final

from protocol.api import METADATA, flexible
from protocol.errors import MalformedFieldError, TruncatedError
from protocol.header import response_body_start
from protocol.messages.endpoints import AddressMap
from protocol.primitives import (
    count,
    count_bytes,
    int32,
    skip,
    skip_string,
    skip_tags,
    string,
    string_bytes,
)

_INT32 = Struct(">i")
_THROTTLE_SINCE: Final = 3
_RACK_SINCE: Final = 1


def rewrite_head(frame: bytes, version: int, address_map: AddressMap) -> tuple[int, bytes]:
    """Return the head of a response up to the array of brokers; `frame` may be incomplete.

    Returns:
        The number of replaced bytes, and the new bytes with the frame's new length; 0 and none if incomplete.

    Raises:
        WireError: the frame ends before its array, or its fields cannot be.
    """
    if len(frame) < 4:
        return 0, b""
    length: int = _INT32.unpack_from(frame)[0]
    if length < 0:
        raise MalformedFieldError(f"frame of {length} bytes")
    frame_end = 4 + length
    try:
        return _rewrite(frame, min(len(frame), frame_end), length, version, address_map)
    except TruncatedError:
        if len(frame) >= frame_end:
            raise
        return 0, b""


def _rewrite(buf: bytes, end: int, length: int, version: int, address_map: AddressMap) -> tuple[int, bytes]:
    compact = flexible(METADATA, version)
    pos = response_body_start(buf, 0, end, METADATA, version)
    if version >= _THROTTLE_SINCE:
        pos = skip(pos, 4, end)
    brokers_pos = pos
    brokers, pos = count(buf, pos, end, compact)
    entries: list[bytes] = []
    for _ in range(brokers):
        node_id = int32(buf, pos, end)
        host, pos = string(buf, pos + 4, end, compact)
        port = int32(buf, pos, end)
        pos += 4
        rest = pos
        if version >= _RACK_SINCE:
            pos = skip_string(buf, pos, end, compact)
        if compact:
            pos = skip_tags(buf, pos, end)
        address = address_map(node_id, host or "", port)
        if address is not None:
            head = _INT32.pack(node_id) + string_bytes(address[0], compact) + _INT32.pack(address[1])
            entries.append(head + buf[rest:pos])
    array = count_bytes(len(entries), compact) + b"".join(entries)
    grown = brokers_pos + len(array) - pos
    return pos, _INT32.pack(length + grown) + buf[4:brokers_pos] + array
