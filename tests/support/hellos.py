"""TLS hellos as OpenSSL writes them, with any bytes as the name."""

import ssl
from functools import cache
from typing import Final

# A name of this length is replaced, and the lengths around it are written anew.
_PLACE: Final = b"placeholder.test"


def hello(name: bytes | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """Return a client's first flight, one record; None for a hello without a name.

    Args:
        name: any bytes, at most some thousand.
        version: the newest version that the client offers.
    """
    written = _written(None if name is None else _PLACE.decode(), version)
    if name is None:
        return written
    at = written.index(_PLACE)
    # Before the name: its length, its type (0), the length of the list of names, of the extension, and its type (0).
    head = written[at - 9 : at]
    size = len(_PLACE)
    assert head == bytes((0, 0, 0, size + 5, 0, size + 3, 0, 0, size)), "the layout of RFC 6066 §3"
    named = len(name)
    extension = b"".join((b"\0\0", _uint16(named + 5), _uint16(named + 3), b"\0", _uint16(named), name))
    body = bytearray(written[: at - 9] + extension + written[at + size :])
    grown = named - size
    for place, width in ((3, 2), (6, 3), (_extensions_at(written), 2)):
        length = int.from_bytes(body[place : place + width], "big") + grown
        body[place : place + width] = length.to_bytes(width, "big")
    return bytes(body)


@cache
def _written(name: str | None, version: ssl.TLSVersion) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = version
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("there was no server")


def _extensions_at(written: bytes) -> int:
    """Return where the length of all extensions stands (RFC 8446 §4.1.2)."""
    at = 5 + 4 + 2 + 32  # the record's and the message's heads, the version, the random bytes
    at += 1 + written[at]  # the session's id
    at += 2 + int.from_bytes(written[at : at + 2], "big")  # ciphers
    return at + 1 + written[at]  # compressions


def _uint16(value: int) -> bytes:
    return value.to_bytes(2, "big")
