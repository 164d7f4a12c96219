"""Certificates as bytes, put together by hand: a subject with whatever types and values, unsigned."""

from collections.abc import Sequence
from typing import Final

UTF8: Final = 0x0C
Names = Sequence[Sequence[tuple[str, int, bytes]]]
"""Relative names, the most general first; each a list of type, tag of the value, value."""


def encoded(tag: int, content: bytes) -> bytes:
    """One item: tag, length, content."""
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def object_identifier(dotted: str) -> bytes:
    """A type, written with dots."""
    first, second, *rest = (int(number, 0) for number in dotted.split("."))
    content = b""
    for number in (40 * first + second, *rest):
        septets = [number & 0x7F]
        while number := number >> 7:
            septets.append(number & 0x7F | 0x80)
        content += bytes(reversed(septets))
    return encoded(0x06, content)


def name(names: Names) -> bytes:
    """A distinguished name."""
    relative = [
        b"".join(encoded(0x30, object_identifier(kind) + encoded(tag, value)) for kind, tag, value in one)
        for one in names
    ]
    return encoded(0x30, b"".join(encoded(0x31, one) for one in relative))


def certificate(names: Names, ends: tuple[int, bytes] = (0x17, b"491231235959Z")) -> bytes:
    """A certificate of this subject; fields that are not read are empty."""
    version, serial = encoded(0xA0, encoded(0x02, b"\x02")), encoded(0x02, b"\x01")
    nothing = encoded(0x30, b"")
    validity = encoded(0x30, encoded(0x17, b"200101000000Z") + encoded(*ends))
    inner = encoded(0x30, version + serial + nothing + nothing + validity + name(names) + nothing)
    return encoded(0x30, inner)
