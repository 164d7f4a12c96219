"""NodeEndpoints: the broker addresses at the end of Produce, Fetch and share responses (KIP-951, KIP-932).

An entry is node id, host, port, rack and a tag section. In Produce and Fetch responses the array is tag 0 of the body's
tag section; in share responses it precedes that section.

If the frame's length has already been forwarded, the new bytes must have exactly the old length: shorter ones are
padded with an unknown tagged field, which every client must ignore (KIP-482); longer ones lose their racks, and if that
is not enough the endpoints are removed: clients then request metadata, as before KIP-951.

Non-obvious:

- NodeEndpoints at the end of a Fetch are rewritten to the same length. The frame's length was sent long before. If
  the new endpoints are shorter, an unknown tagged field fills the rest; if they are longer, racks are left out,
  then endpoints.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from protocol.errors import MalformedFieldError
from protocol.primitives import Buffer, int32, skip, skip_string, skip_tags, string, uvarint, uvarint_bytes

# (node id, host, port) -> the address for clients; None: remove this broker.
AddressMap: TypeAlias = Callable[[int, str, int], tuple[str, int] | None]
# The fields of a tag section, in order.
Tags: TypeAlias = list[tuple[int, bytes]]

_ENDPOINTS_TAG: Final = 0
# The highest tag of one byte: Kafka assigns tags from 0 upwards, one or two per message.
_FILL_TAG: Final = 127
# No Kafka message has more than four; the bound keeps the count of tags one byte long.
_TAGS_MAX: Final = 64
# The most endpoints that are rewritten in a forwarded frame: each blocks the loop for about 5 us. If there are more,
# which needs as many brokers, all are removed.
FITTED_MAX: Final = 500
_INT32 = Struct(">i")
_NULL_RACK: Final = b"\x00"


class Endpoint(NamedTuple):
    """A broker's address, with its rack and tags as received bytes."""

    node_id: int
    host: str
    port: int
    rack: bytes
    tags: bytes


def read_endpoints(buf: Buffer, pos: int, end: int, address_map: AddressMap) -> tuple[list[Endpoint], int]:
    """Return the array at `pos` with the addresses for clients, and the position after it."""
    endpoints: list[Endpoint] = []
    entries, pos = uvarint(buf, pos, end)
    for _ in range(entries - 1):
        node_id = int32(buf, pos, end)
        host, pos = string(buf, pos + 4, end, True)
        port = int32(buf, pos, end)
        rack_pos = pos + 4
        tags_pos = skip_string(buf, rack_pos, end, True)
        pos = skip_tags(buf, tags_pos, end)
        address = address_map(node_id, host or "", port)
        if address is not None:
            rack, tags = bytes(buf[rack_pos:tags_pos]), bytes(buf[tags_pos:pos])
            endpoints.append(Endpoint(node_id, address[0], address[1], rack, tags))
    return endpoints, pos


def _skip_endpoints(buf: Buffer, pos: int, end: int) -> int:
    """Return the position after the array at `pos`."""
    entries, pos = uvarint(buf, pos, end)
    for _ in range(entries - 1):
        pos = skip(skip_string(buf, skip(pos, 4, end), end, True), 4, end)
        pos = skip_tags(buf, skip_string(buf, pos, end, True), end)
    return pos


def _fit(buf: Buffer, pos: int, end: int) -> bool:
    """Whether the array at `pos` has at most as many entries as are rewritten."""
    return uvarint(buf, pos, end)[0] - 1 <= FITTED_MAX


def endpoints_bytes(endpoints: list[Endpoint], racks: bool = True) -> bytes:
    """Encode the array, with or without the racks."""
    out = [uvarint_bytes(len(endpoints) + 1)]
    for node_id, host, port, rack, tags in endpoints:
        name = host.encode()
        out += (
            _INT32.pack(node_id),
            uvarint_bytes(len(name) + 1),
            name,
            _INT32.pack(port),
            rack if racks else _NULL_RACK,
            tags,
        )
    return b"".join(out)


def rewrite_tags(buf: Buffer, pos: int, end: int, address_map: AddressMap) -> bytes | None:
    """Return all bytes from the body's tag section at `pos` to `end`, with rewritten addresses; None if it has none."""
    tags, rest = _read_tags(buf, pos, end)
    for index, (tag, raw) in enumerate(tags):
        if tag == _ENDPOINTS_TAG:
            endpoints, _ = read_endpoints(raw, 0, len(raw), address_map)
            # An empty array is the default, and defaults are not written.
            tags[index : index + 1] = [(tag, endpoints_bytes(endpoints))] if endpoints else []
            return _tags_bytes(tags) + bytes(buf[rest:end])
    return None


def fit_tags(buf: Buffer, pos: int, end: int, address_map: AddressMap) -> bytes | None:
    """As `rewrite_tags`, but in exactly `end - pos` bytes (Fetch)."""
    tags, rest = _read_tags(buf, pos, end)
    for index, (tag, raw) in enumerate(tags):
        if tag == _ENDPOINTS_TAG:
            fits = _fit(raw, 0, len(raw))
            endpoints = read_endpoints(raw, 0, len(raw), address_map)[0] if fits else []
            others = tags[:index] + tags[index + 1 :]
            for racks in (True, False) if fits else ():
                array = (tag, endpoints_bytes(endpoints, racks))
                fitted = _fill([*tags[:index], array, *tags[index + 1 :]], rest - pos)
                if fitted is not None:
                    return fitted + bytes(buf[rest:end])
            fitted = _fill(others, rest - pos)
            assert fitted is not None, "fewer tags cannot need more bytes"
            return fitted + bytes(buf[rest:end])
    return None


def fit_array(buf: Buffer, pos: int, end: int, address_map: AddressMap) -> bytes | None:
    """Return the array at `pos`, the tag section, and the bytes up to `end`, with the same length (share APIs)."""
    if pos < end and buf[pos] == 1:
        return None
    if _fit(buf, pos, end):
        endpoints, tags_pos = read_endpoints(buf, pos, end, address_map)
    else:
        endpoints, tags_pos = [], _skip_endpoints(buf, pos, end)
    tags, rest = _read_tags(buf, tags_pos, end)
    for array in (endpoints_bytes(endpoints), endpoints_bytes(endpoints, False), endpoints_bytes([])):
        fitted = _fill(tags, rest - pos - len(array))
        if fitted is not None:
            return array + fitted + bytes(buf[rest:end])
    raise AssertionError("an empty array cannot need more bytes")


def _read_tags(buf: Buffer, pos: int, end: int) -> tuple[Tags, int]:
    fields, pos = uvarint(buf, pos, end)
    if fields > _TAGS_MAX:
        raise MalformedFieldError(f"{fields} tagged fields before byte {pos}")
    tags: Tags = []
    for _ in range(fields):
        tag, pos = uvarint(buf, pos, end)
        size, pos = uvarint(buf, pos, end)
        after = skip(pos, size, end)
        tags.append((tag, bytes(buf[pos:after])))
        pos = after
    return tags, pos


def _tags_bytes(tags: Tags) -> bytes:
    out = [uvarint_bytes(len(tags))]
    for tag, raw in tags:
        out += (uvarint_bytes(tag), uvarint_bytes(len(raw)), raw)
    return b"".join(out)


def _fill(tags: Tags, size: int) -> bytes | None:
    """Return a tag section of exactly `size` bytes, or None if these tags need more."""
    section = _tags_bytes(tags)
    gap = size - len(section)
    if gap < 0:
        return None
    if gap == 0:
        return section
    if gap == 1:
        # Too short for another field: the count of tags is encoded in two bytes, which every varint reader
        # accepts.
        return bytes((section[0] | 0x80, 0)) + section[1:]
    # A tag of one byte, a length in as many bytes as are needed for the exact size, and zeros.
    width = 1
    while gap - 1 - width >= 1 << 7 * width:
        width += 1
    filler = gap - 1 - width
    length = bytes(filler >> 7 * i & 0x7F | (0x80 if i < width - 1 else 0) for i in range(width))
    return bytes((section[0] + 1,)) + section[1:] + bytes((_FILL_TAG,)) + length + bytes(filler)
