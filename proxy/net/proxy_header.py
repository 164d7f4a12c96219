r"""The PROXY protocol, versions 1 and 2: the header a load balancer puts before a client's first byte. Pure.

    v1    PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n        107 bytes at most
    v2    a signature of 12 bytes, version and command, family, length, addresses, TLVs

A header without a client's address (LOCAL, UNKNOWN, UNIX sockets) has no effect: the address of the connection counts.
Datagrams are refused. TLVs are skipped, with their checksum: TCP has one. Lengths are bounded here, time by the caller.

Non-obvious:

- A PROXY header is read by peeking. The bytes after it belong to TLS or to Kafka, and must stay in the socket.
"""

import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

V1_BYTES_MAX: Final = 107
V2_BYTES_MAX: Final = (
    4096  # the specification's largest use, the names of a TLS client certificate, is far smaller
)

_V1: Final = b"PROXY "
_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_HEAD: Final = struct.Struct(">12sBBH")
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_LOCAL: Final = 0x20
_PROXIED: Final = 0x21
_NO_ADDRESS: Final = frozenset((0x00, 0x31))  # unspecified; a UNIX stream
_PORT_MAX: Final = 65535


class ProxyHeaderError(ValueError):
    """The bytes are not a valid header of the PROXY protocol."""


class ProxyHeader(NamedTuple):
    """A complete header of the PROXY protocol.

    Args:
        length: in bytes.
        source: the client's host and port; None if it has none, as for a health check of the load balancer.
    """

    length: int
    source: tuple[str, int] | None


def parse(data: bytes) -> ProxyHeader | None:
    r"""Parse the header at the beginning of a connection; None if it is incomplete.

    Raises:
        ProxyHeaderError: the bytes do not begin a valid header.

    >>> parse(b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 9092\r\nabc")
    ProxyHeader(length=46, source=('192.0.2.1', 56324))
    """
    if data[:12] == _V2[: len(data)]:
        return _parse_v2(data)
    if data[:6] == _V1[: len(data)]:
        return _parse_v1(data)
    raise ProxyHeaderError(f"{data[:12]!r} does not begin a PROXY header")


def _parse_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, V1_BYTES_MAX)
    if end < 0:
        if len(data) >= V1_BYTES_MAX:
            raise ProxyHeaderError(f"no line end within {V1_BYTES_MAX} bytes")
        return None
    length = end + 2
    words = data[:end].split(b" ")
    if words[1:2] == [b"UNKNOWN"]:
        return ProxyHeader(length, None)
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise ProxyHeaderError(f"{data[:end]!r} is not a header of version 1")
    try:
        host = _host(words[2], words[1])
        _host(words[3], words[1])
        return ProxyHeader(length, (host, _port(words[4], words[5])))
    except ValueError as error:
        raise ProxyHeaderError(f"{data[:end]!r} is not a header of version 1: {error}") from None


def _host(word: bytes, family: bytes) -> str:
    text = word.decode("ascii")
    return str(IPv4Address(text) if family == b"TCP4" else IPv6Address(text))


def _port(source: bytes, destination: bytes) -> int:
    for word in (source, destination):
        if not word.isdigit() or len(word) > 5 or int(word) > _PORT_MAX:
            raise ValueError(f"{word!r} is not a port")
    return int(source)


def _parse_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < _V2_HEAD.size:
        return None
    _, command, family, rest = _V2_HEAD.unpack_from(data)
    length = _V2_HEAD.size + rest
    if length > V2_BYTES_MAX:
        raise ProxyHeaderError(f"a header of {length} bytes, at most {V2_BYTES_MAX} are supported")
    if command not in (_LOCAL, _PROXIED):
        raise ProxyHeaderError(f"unsupported version and command {command:#04x}")
    if len(data) < length:
        return None
    if command == _LOCAL or family in _NO_ADDRESS:
        return ProxyHeader(length, None)
    body = data[_V2_HEAD.size : length]
    if family == _TCP4 and rest >= 12:
        return ProxyHeader(length, (str(IPv4Address(body[:4])), int.from_bytes(body[8:10], "big")))
    if family == _TCP6 and rest >= 36:
        return ProxyHeader(length, (str(IPv6Address(body[:16])), int.from_bytes(body[32:34], "big")))
    raise ProxyHeaderError(f"addresses of family {family:#04x} in {rest} bytes")
