"""Dissects a captured packet down to its TCP segment: link layers, VLAN tags, IPv4, IPv6, TCP (RFC 791, 8200, 9293).

A packet may be cut off by the capture's snapshot length. What its headers say of its length still counts: a segment has
its size on the wire, and the bytes of it that were captured. Checksums are ignored, since a packet that is captured
before the network card has completed it has none. IP fragments are counted, not joined: TCP avoids them.
"""

from collections import Counter
from struct import Struct
from typing import Final, NamedTuple

# Link types, as libpcap numbers them on Linux.
_NULL, _ETHERNET, _RAW, _RAW_BSD, _RAW_FILE, _LOOP = 0, 1, 12, 14, 101, 108
_COOKED, _IPV4_ONLY, _IPV6_ONLY, _COOKED_2 = 113, 228, 229, 276

_UINT16: Final = Struct(">H").unpack_from
# Ports, sequence number, acknowledgment number, data offset, flags.
_TCP: Final = Struct(">HHIIBB").unpack_from
_TCP_BYTES: Final = 20
_IPV4_BYTES: Final = 20
_IPV6_BYTES: Final = 40
_PROTOCOL_TCP: Final = 6
_FRAGMENT: Final = 0x3FFF  # more fragments, or an offset
_IPV6_FRAGMENT: Final = 44
# Hop-by-hop options, routing, destination options: next header, and the length in units of 8 bytes, less one.
_IPV6_OPTIONS: Final = frozenset((0, 43, 60))
_EXTENSIONS_MAX: Final = 8
_TYPE_IPV4, _TYPE_IPV6 = 0x0800, 0x86DD
_VLAN: Final = frozenset((0x8100, 0x88A8, 0x9100))
_TAGS_MAX: Final = 4

FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
ACK: Final = 0x10


# Why a packet is left out.
_OTHER: Final = "other protocols"
_FRAGMENTS: Final = "fragments"
_CUT: Final = "cut within their headers"
_DAMAGED: Final = "damaged"


class _NoSegmentError(Exception):
    """The packet has no TCP segment that can be read."""


class LinkTypeError(ValueError):
    """The capture is of a kind of link whose packets cannot be read here."""


class Segment(NamedTuple):
    """A captured TCP segment.

    Attributes:
        source, target: the address as 4 or 16 bytes, and the port as two.
        acknowledged: the acknowledgment number; only valid with the flag ACK.
        payload: the captured bytes.
        size: the number of bytes on the wire, at least as many.
    """

    source: bytes
    target: bytes
    sequence: int
    acknowledged: int
    flags: int
    payload: bytes
    size: int


class Dissector:
    """Dissects the packets of one capture file.

    Args:
        link_type: libpcap's number of the link type.
        skipped: counts the packets that have no readable TCP segment, by reason.

    Raises:
        LinkTypeError: packets of this link type cannot be read.
    """

    def __init__(self, link_type: int, skipped: Counter[str]) -> None:
        if link_type not in _NETWORK_AT:
            raise LinkTypeError(f"has packets of link type {link_type}, which cannot be read")
        self._type_at, self._network_at = _NETWORK_AT[link_type]
        self._skipped = skipped

    def segment(self, packet: bytes, wire_bytes: int) -> Segment | None:
        """Return the segment in a packet; None, counted in `skipped`, if there is none.

        Args:
            wire_bytes: the packet's size on the wire.
        """
        try:
            at = self._network_at
            if self._type_at is not None:
                at = _after_tags(packet, self._type_at, at)
            version = packet[at] >> 4 if at < len(packet) else 0
            if version == 4:
                return _ipv4(packet, at, wire_bytes)
            if version == 6:
                return _ipv6(packet, at, wire_bytes)
            raise _NoSegmentError(_OTHER)
        except _NoSegmentError as error:
            self._skipped[str(error)] += 1
            return None


def _after_tags(packet: bytes, type_at: int, at: int) -> int:
    """Return where the IP header begins, after VLAN tags."""
    for _ in range(_TAGS_MAX):
        if type_at + 2 > len(packet):
            break
        (kind,) = _UINT16(packet, type_at)
        if kind not in _VLAN:
            if kind in (_TYPE_IPV4, _TYPE_IPV6):
                return at
            break
        # A tag: its own type was the last one; two bytes of tag, then the next type.
        type_at = at + 2
        at += 4
    raise _NoSegmentError(_OTHER)


def _ipv4(packet: bytes, at: int, wire_bytes: int) -> Segment:
    if at + _IPV4_BYTES > len(packet):
        raise _NoSegmentError(_CUT)
    if packet[at + 9] != _PROTOCOL_TCP:
        raise _NoSegmentError(_OTHER)
    if _UINT16(packet, at + 6)[0] & _FRAGMENT:
        raise _NoSegmentError(_FRAGMENTS)
    header = (packet[at] & 15) * 4
    # 0: the network card will cut it into packets, or it is longer than 64 KiB.
    length = _UINT16(packet, at + 2)[0]
    end = at + length if length else wire_bytes
    if header < _IPV4_BYTES:
        raise _NoSegmentError(_DAMAGED)
    return _tcp(packet, at + header, end, packet[at + 12 : at + 16], packet[at + 16 : at + 20])


def _ipv6(packet: bytes, at: int, wire_bytes: int) -> Segment:
    if at + _IPV6_BYTES > len(packet):
        raise _NoSegmentError(_CUT)
    length = _UINT16(packet, at + 4)[0]
    end = at + _IPV6_BYTES + length if length else wire_bytes
    following, tcp_at = packet[at + 6], at + _IPV6_BYTES
    for _ in range(_EXTENSIONS_MAX):
        if following not in _IPV6_OPTIONS:
            break
        if tcp_at + 2 > len(packet):
            raise _NoSegmentError(_CUT)
        following, tcp_at = packet[tcp_at], tcp_at + 8 * (packet[tcp_at + 1] + 1)
    if following == _IPV6_FRAGMENT:
        raise _NoSegmentError(_FRAGMENTS)
    if following != _PROTOCOL_TCP:
        raise _NoSegmentError(_OTHER)
    return _tcp(packet, tcp_at, end, packet[at + 8 : at + 24], packet[at + 24 : at + 40])


def _tcp(packet: bytes, at: int, end: int, source: bytes, target: bytes) -> Segment:
    if at + _TCP_BYTES > len(packet):
        raise _NoSegmentError(_CUT)
    _, _, sequence, acknowledged, offset, flags = _TCP(packet, at)
    start = at + (offset >> 4) * 4
    if start < at + _TCP_BYTES or start > end:
        raise _NoSegmentError(_DAMAGED)
    ports = packet[at : at + 2], packet[at + 2 : at + 4]
    payload = packet[start:end]
    return Segment(source + ports[0], target + ports[1], sequence, acknowledged, flags, payload, end - start)


# Where the EtherType is (None: there is none), and where the IP header begins.
_NETWORK_AT: Final[dict[int, tuple[int | None, int]]] = {
    _NULL: (None, 4),
    _LOOP: (None, 4),
    _ETHERNET: (12, 14),
    _RAW: (None, 0),
    _RAW_BSD: (None, 0),
    _RAW_FILE: (None, 0),
    _IPV4_ONLY: (None, 0),
    _IPV6_ONLY: (None, 0),
    _COOKED: (14, 16),
    _COOKED_2: (0, 20),
}
