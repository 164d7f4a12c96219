"""Produce: the acks of a request, the throttle time and node endpoints of a response (KIP-13, KIP-219, KIP-951).

Records are never read. A response is small, so it is handled as a whole: its throttle time follows the topics, and from
version 10 on a tag with the brokers' addresses follows.
"""

from struct import Struct
from typing import Final

from protocol import throttle
from protocol.api import PRODUCE
from protocol.errors import TruncatedError
from protocol.messages.addresses import AddressMap, rewrite_tags
from protocol.primitives import Buffer, uvarint

_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i")
_ENDPOINTS_SINCE: Final = 10


def acks(buf: Buffer, body_pos: int, end: int, version: int) -> int | None:
    """Return the acks of a Produce request (0: there is no response); None if that field has not arrived."""
    pos = body_pos
    if version >= 9:
        if pos >= end:
            return None
        size = buf[pos]
        pos += 1
        if size > 127:
            try:
                size, pos = uvarint(buf, body_pos, end)
            except TruncatedError:
                return None
        if size:
            pos += size - 1
    elif version >= 3:
        if pos + 2 > end:
            return None
        pos += 2 + max(_INT16(buf, pos)[0], 0)
    if pos + 2 > end:
        return None
    value: int = _INT16(buf, pos)[0]
    return value


def read_response(frame: bytes, version: int, address_map: AddressMap | None) -> tuple[bytes, int]:
    """Return a complete Produce response with the brokers' addresses for clients (version 10 and later).

    The second value is the position of its throttle time, -1 in versions without one.

    Args:
        frame: the response with its length prefix; it is returned itself if nothing changes.
        address_map: None if addresses are not rewritten (sidecar).
    """
    pos = throttle.locate(frame, PRODUCE, version)
    if pos == throttle.NONE:
        return frame, pos
    if address_map is None or version < _ENDPOINTS_SINCE or frame[pos + 4 : pos + 5] == b"\x00":
        return frame, pos
    tags = rewrite_tags(frame, pos + 4, len(frame), address_map)
    if tags is None:
        return frame, pos
    body = frame[4 : pos + 4] + tags
    return _INT32.pack(len(body)) + body, pos


def with_throttle_time(frame: bytes, throttle_at: int, throttle_ms: int) -> bytes:
    """Return a Produce response with the larger throttle time: its own, or `throttle_ms`.

    Args:
        throttle_at: the position of the throttle time.
    """
    if throttle_ms <= max(_INT32.unpack_from(frame, throttle_at)[0], 0):
        return frame
    return frame[:throttle_at] + _INT32.pack(throttle_ms) + frame[throttle_at + 4 :]
