"""Whether a broker answers Kafka's protocol, asked with the fewest bytes: Metadata v1 over a plain socket; and which
versions it offers.

Written by hand, not with the proxy's own `protocol` package: what judges the cluster must not share its mistakes.
"""

import socket
import struct
from typing import Final

Address = tuple[str, int]

# Length, key, version, correlation id, no client id, no topics.
_METADATA_V1: Final = struct.Struct(">ihhihi")
# The same without topics: ApiVersions v0.
_API_VERSIONS_V0: Final = struct.Struct(">ihhih")
_FRAME_BYTES_MAX: Final = 1 << 20


def brokers(address: Address, *, seconds: float = 2.0) -> dict[int, Address]:
    """Return the brokers that the one at `address` names, by node id; OSError or ValueError when it cannot.

    A client id of length -1 is null; an empty topic list asks for no topic (version 1 and later).
    """
    return parse_brokers(_ask(address, _METADATA_V1.pack(_METADATA_V1.size - 4, 3, 1, 7, -1, 0), seconds))


def offered(address: Address, *, seconds: float = 10.0) -> dict[int, int]:
    """Return the newest version of each API that the broker at `address` offers; OSError or ValueError if it cannot."""
    body = _ask(address, _API_VERSIONS_V0.pack(_API_VERSIONS_V0.size - 4, 18, 0, 7, -1), seconds)
    _correlation_id, error, count = struct.unpack_from(">ihi", body)
    if error:
        raise ValueError(f"ApiVersions: error {error}")
    rows = (struct.unpack_from(">hhh", body, 10 + 6 * index) for index in range(count))
    return {key: newest for key, _oldest, newest in rows}


def _ask(address: Address, request: bytes, seconds: float) -> bytes:
    with socket.create_connection(address, timeout=seconds) as connection:
        connection.settimeout(seconds)
        connection.sendall(request)
        (length,) = struct.unpack(">i", _receive(connection, 4))
        if not 8 <= length <= _FRAME_BYTES_MAX:
            raise ValueError(f"a response of {length} bytes is not the one that was asked for")
        return _receive(connection, length)


def parse_brokers(body: bytes) -> dict[int, Address]:
    """Read the brokers of a Metadata v1 response that begins with its correlation id."""
    named: dict[int, Address] = {}
    try:
        _correlation_id, count = struct.unpack_from(">ii", body)
        position = 8
        for _ in range(count):
            node, host_length = struct.unpack_from(">ih", body, position)
            host = body[position + 6 : position + 6 + host_length].decode()
            port, rack_length = struct.unpack_from(">ih", body, position + 6 + host_length)
            named[node] = (host, port)
            position += 12 + host_length + max(0, rack_length)
    except struct.error as error:
        raise ValueError("the Metadata response ends too early") from error
    return named


def _receive(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("closed before the response was whole")
        data += piece
    return bytes(data)
