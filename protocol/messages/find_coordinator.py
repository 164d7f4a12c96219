"""FindCoordinator: replaces the addresses of coordinators by Sluice's (KIP-699 batches).

A coordinator without an address for clients is reported as not available yet: clients wait and retry.
"""

from struct import Struct
from typing import Final

from protocol.api import FIND_COORDINATOR, flexible
from protocol.header import response_body_start
from protocol.messages.endpoints import AddressMap
from protocol.primitives import count, int16, int32, skip, skip_string, skip_tags, string, string_bytes

COORDINATOR_NOT_AVAILABLE: Final = 15

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_BATCHED_SINCE: Final = 4


def rewrite(frame: bytes, version: int, address_map: AddressMap) -> bytes:
    """Return a whole frame with the coordinators' addresses for clients."""
    end = len(frame)
    compact = flexible(FIND_COORDINATOR, version)
    pos = response_body_start(frame, 0, end, FIND_COORDINATOR, version)
    if version >= 1:
        pos = skip(pos, 4, end)
    if version >= _BATCHED_SINCE:
        coordinators, after = count(frame, pos, end, compact)
        out = [frame[4:after]]
        pos = after
        for _ in range(coordinators):
            entry, pos = _coordinator(frame, pos, end, address_map)
            out.append(entry)
    else:
        entry, after = _single(frame, pos, end, version, address_map)
        out = [frame[4:pos], entry]
        pos = after
    out.append(frame[pos:])
    body = b"".join(out)
    return _INT32.pack(len(body)) + body


def _single(frame: bytes, pos: int, end: int, version: int, address_map: AddressMap) -> tuple[bytes, int]:
    """Rewrite a response of versions 0 to 3: error code, message since 1, node id, host, port."""
    compact = flexible(FIND_COORDINATOR, version)
    error = int16(frame, pos, end)
    message_pos = node_pos = pos + 2
    if version >= 1:
        node_pos = skip_string(frame, message_pos, end, compact)
    node_id = int32(frame, node_pos, end)
    host, after = string(frame, node_pos + 4, end, compact)
    port = int32(frame, after, end)
    after += 4
    error, node = _mapped(error, node_id, host, port, compact, address_map)
    return _INT16.pack(error) + frame[message_pos:node_pos] + node, after


def _coordinator(frame: bytes, pos: int, end: int, address_map: AddressMap) -> tuple[bytes, int]:
    """Rewrite one coordinator of version 4 and later: key, node id, host, port, error code, message, tags."""
    node_pos = skip_string(frame, pos, end, True)
    node_id = int32(frame, node_pos, end)
    host, port_pos = string(frame, node_pos + 4, end, True)
    port = int32(frame, port_pos, end)
    error = int16(frame, port_pos + 4, end)
    message_pos = port_pos + 6
    after = skip_tags(frame, skip_string(frame, message_pos, end, True), end)
    error, node = _mapped(error, node_id, host, port, True, address_map)
    return frame[pos:node_pos] + node + _INT16.pack(error) + frame[message_pos:after], after


def _mapped(
    error: int, node_id: int, host: str | None, port: int, compact: bool, address_map: AddressMap
) -> tuple[int, bytes]:
    """Return the error code, and node id, host and port for clients as bytes."""
    address: tuple[str, int] | None = (host or "", port)
    # A response with an error has no node: node -1, no host, port -1.
    if not error or node_id >= 0:
        address = address_map(node_id, host or "", port)
        if address is None:
            error, node_id, address = error or COORDINATOR_NOT_AVAILABLE, -1, ("", -1)
    assert address is not None
    return error, _INT32.pack(node_id) + string_bytes(address[0], compact) + _INT32.pack(address[1])
