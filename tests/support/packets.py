"""Packet captures made by hand: TCP conversations as packets, packets as files of pcap and pcapng."""

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from offline.imports.connections import Connection, Connections, Totals
from offline.imports.conversation import Request
from offline.imports.packets import ACK, FIN, RST, SYN, Dissector

ETHERNET: Final = 1
BEGIN_US: Final = 1_790_000_000_000_000  # 2026-09-21
MODULUS: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Caught:
    """A packet as a capture has it; `wire_bytes`: its size on the wire."""

    time_us: int
    data: bytes
    wire_bytes: int

    def cut(self, snaplen: int) -> "Caught":
        """The packet as a capture with this snapshot length has it."""
        return replace(self, data=self.data[:snaplen])


def tcp(
    source: tuple[str, int],
    target: tuple[str, int],
    sequence: int,
    acknowledged: int,
    flags: int,
    payload: bytes = b"",
    *,
    options: bytes = b"",
) -> bytes:
    """An IP packet with a TCP segment."""
    offset = (20 + len(options)) // 4 << 4
    numbers = (sequence % MODULUS, acknowledged % MODULUS)
    header = struct.pack(">HHIIBBHHH", source[1], target[1], *numbers, offset, flags, 65535, 0, 0) + options
    one, two = ip_address(source[0]), ip_address(target[0])
    size = len(header) + len(payload)
    if one.version == 4:
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, 1, 0x4000, 64, 6, 0) + one.packed + two.packed
    else:
        ip = struct.pack(">IHBB", 6 << 28, size, 6, 64) + one.packed + two.packed
    return ip + header + payload


def ethernet(packet: bytes, tags: Sequence[int] = ()) -> bytes:
    """An Ethernet frame with an IP packet, and these VLAN tags."""
    kind = 0x0800 if packet[0] >> 4 == 4 else 0x86DD
    vlan = b"".join(struct.pack(">HH", 0x8100, tag) for tag in tags)
    return bytes(12) + vlan + struct.pack(">H", kind) + packet


@dataclass(slots=True)
class Talk:
    """One TCP connection, of which each call adds packets; times advance by a millisecond each.

    Attributes:
        mss: the most bytes of a packet.
        packets: the IP packets so far, with their times.
    """

    client: tuple[str, int] = ("10.0.0.1", 40_000)
    server: tuple[str, int] = ("10.0.0.2", 9092)
    mss: int = 1448
    now_us: int = BEGIN_US
    numbers: list[int] = field(default_factory=lambda: [4_294_967_000, 77])  # soon beyond 2^32
    packets: list[tuple[int, bytes]] = field(default_factory=list)

    def open(self) -> "Talk":
        """The handshake."""
        self._add(0, SYN)
        self.numbers[0] += 1
        self._add(1, SYN | ACK)
        self.numbers[1] += 1
        self._add(0, ACK)
        return self

    def say(self, way: int, data: bytes) -> "Talk":
        """One side (0: the client) sends bytes, all at one time."""
        for at in range(0, len(data), self.mss):
            part = data[at : at + self.mss]
            self._add(way, ACK, part, wait_us=1000 if at == 0 else 0)
            self.numbers[way] += len(part)
        return self

    def ask(self, request: bytes, response: bytes = b"") -> "Talk":
        """A request, and its response."""
        self.say(0, request)
        return self.say(1, response)

    def close(self) -> "Talk":
        """Both sides end."""
        for way in (0, 1):
            self._add(way, FIN | ACK)
            self.numbers[way] += 1
        self._add(0, ACK)
        return self

    def reset(self) -> "Talk":
        """The client resets the connection."""
        self._add(0, RST)
        return self

    def _add(self, way: int, flags: int, payload: bytes = b"", *, wait_us: int = 1000) -> None:
        self.now_us += wait_us
        ends = (self.client, self.server) if way == 0 else (self.server, self.client)
        acknowledged = self.numbers[1 - way] if flags & ACK else 0
        self.packets.append((self.now_us, tcp(*ends, self.numbers[way], acknowledged, flags, payload)))

    def caught(self, tags: Sequence[int] = ()) -> list[Caught]:
        """The packets as frames of Ethernet."""
        frames = [(time_us, ethernet(packet, tags)) for time_us, packet in self.packets]
        return [Caught(time_us, frame, len(frame)) for time_us, frame in frames]


def write_pcap(
    path: Path, packets: Iterable[Caught], link_type: int = ETHERNET, *, order: str = "<", nano: bool = False
) -> Path:
    """Write a pcap file."""
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262_144, link_type)]
    for packet in packets:
        seconds, part = divmod(packet.time_us, 1_000_000)
        times = (seconds, part * (1000 if nano else 1))
        parts.append(struct.pack(order + "IIII", *times, len(packet.data), packet.wire_bytes) + packet.data)
    path.write_bytes(b"".join(parts))
    return path


def write_pcapng(path: Path, packets: Iterable[Caught], link_type: int = ETHERNET) -> Path:
    """Write a pcapng file with one interface, whose times are nanoseconds."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = struct.pack("<I", len(body) + 12)
        return struct.pack("<I", kind) + size + body + size

    parts = [
        block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)),
        block(1, struct.pack("<HHIHHB3xHH", link_type, 0, 262_144, 9, 1, 9, 0, 0)),
    ]
    for packet in packets:
        high, low = divmod(packet.time_us * 1000, MODULUS)
        head = struct.pack("<IIIII", 0, high, low, len(packet.data), packet.wire_bytes)
        parts.append(block(6, head + packet.data))
    path.write_bytes(b"".join(parts))
    return path


@dataclass(slots=True)
class Read:
    """What the importer makes of packets: requests with their connections' numbers, counts, packets left out."""

    requests: list[tuple[int, Request]]
    totals: Totals
    skipped: Counter[str]
    names: dict[bytes, str]

    def tuples(self) -> list[tuple[object, ...]]:
        """All requests as comparable values, by connection and number."""
        found = [(number, *astuple(request)) for number, request in self.requests]
        return sorted(found, key=lambda row: row[:2])


def read(packets: Iterable[Caught], *, link_type: int = ETHERNET, ports: Sequence[int] = ()) -> Read:
    """Read packets as the importer does."""
    found: list[tuple[int, Request]] = []
    skipped: Counter[str] = Counter()
    dissector = Dissector(link_type, skipped)

    def emit(connection: Connection, request: Request) -> None:
        found.append((connection.number, request))

    connections = Connections(ports, emit)
    for packet in packets:
        segment = dissector.segment(packet.data, packet.wire_bytes)
        if segment is not None:
            connections.add(segment, packet.time_us)
    connections.finish()
    return Read(found, connections.totals, skipped, connections.names)
