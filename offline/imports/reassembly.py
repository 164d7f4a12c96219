"""Puts the captured TCP segments of a connection in order: both directions, with retransmissions, overlaps and losses.

A direction's bytes go to its receiver in order, each byte once: the first copy that was captured counts. Bytes that are
missing are skipped by their number, which sequence numbers tell; they are never made up:

    cut        beyond the capture's snapshot length: skipped at once
    lost       the peer has acknowledged them, so they arrived, and the capture has no packet with them

A segment is held back while bytes before it are missing, or bytes of the other direction that its sender had received
(its acknowledgment number) are: so a response never overtakes its request, in whatever order the packets were captured.
After REORDER_US of the capture's time, what is missing and was acknowledged is lost; what was not acknowledged is sent
again, and waited for until HELD_MAX bytes are held.

Positions are sequence numbers that go on beyond 2^32.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from offline.imports.packets import ACK, FIN, SYN, Segment

# Packets that were captured at several queues of a network card are out of order by much less.
REORDER_US: Final = 1_000_000
# In one direction; a receive window of the usual size is smaller.
HELD_MAX: Final = 4 * 1024 * 1024
# The memory of a held segment without its bytes.
SEGMENT_BYTES: Final = 250

_POSITION: Final = itemgetter(0)
_HALF: Final = 1 << 31
_MODULUS: Final = 1 << 32


class Receiver(Protocol):
    """Receives the bytes of one direction in order."""

    def receive(self, data: bytes, time_us: int) -> None:
        """Receive the next bytes, which arrived at this time."""

    def skip(self, size: int, time_us: int) -> None:
        """Skip the next bytes: there are so many, and they are not known."""


class Held(NamedTuple):
    """A segment that waits for bytes before it; `acknowledged` is a position of the other direction, -1 if unknown."""

    position: int
    size: int
    payload: bytes
    time_us: int
    acknowledged: int


@dataclass(slots=True, eq=False)
class Way:
    """One direction of a connection.

    Attributes:
        receiver: receives its bytes in order.
        next: the position of the next byte for the receiver; -1 before any is known.
        acknowledged: the position up to which the peer has received it, -1 if unknown.
        end: the position of its FIN; -1 before.
        held: segments that wait, by position.
        held_bytes: the memory of these.
        waiting_us: since when the first of them waits.
        received: bytes that came in order or were cut; retransmitted, lost, cut: see the module.
    """

    receiver: Receiver
    next: int = -1
    acknowledged: int = -1
    end: int = -1
    held: list[Held] = field(default_factory=list)
    held_bytes: int = 0
    waiting_us: int = 0
    time_us: int = 0
    received: int = 0
    retransmitted: int = 0
    lost: int = 0
    cut: int = 0

    def begin(self, sequence: int) -> None:
        """Set the position of the first byte, unless it is known."""
        if self.next < 0:
            self.next = self.acknowledged = sequence

    def position(self, sequence: int) -> int:
        """Return the position that is nearest to the next one and has this sequence number."""
        return self.next + ((sequence - self.next + _HALF) % _MODULUS) - _HALF

    @property
    def closed(self) -> bool:
        """Whether all bytes up to the FIN have come."""
        return 0 <= self.end < self.next

    def deliver(self, segment: Held) -> None:
        """Give the receiver the bytes of a segment that begins at the next position or before."""
        position, size, payload, time_us, _ = segment
        known = self.next - position
        if known:
            self.retransmitted += min(known, size)
            size -= known
            payload = payload[known:]
        if size > 0:
            self.next += size
            self.received += size
            self.time_us = time_us = max(time_us, self.time_us)
            if payload:
                self.receiver.receive(payload, time_us)
            missing = size - len(payload)
            if missing:
                self.cut += missing
                self.receiver.skip(missing, time_us)
        if self.next == self.end:
            self.next += 1  # the FIN has a number of its own

    def hold(self, segment: Held) -> None:
        """Keep a segment until what it waits for has come."""
        if not self.held:
            self.waiting_us = segment.time_us
        insort(self.held, segment, key=_POSITION)
        self.held_bytes += SEGMENT_BYTES + len(segment.payload)

    def release(self) -> Held:
        """Return the first held segment, which is held no longer."""
        segment = self.held.pop(0)
        self.held_bytes -= SEGMENT_BYTES + len(segment.payload)
        self.waiting_us = self.held[0].time_us if self.held else 0
        return segment

    def lose(self, until: int) -> None:
        """Skip what is missing before this position."""
        missing = until - self.next
        if missing > 0:
            self.lost += missing
            self.next = until
            self.receiver.skip(missing, self.time_us)
            if self.next == self.end:
                self.next += 1


class Reassembly:
    """Reassembles both directions of one connection; see the module.

    Args:
        receivers: of the bytes of the two directions.

    Attributes:
        ways: the two directions.
    """

    __slots__ = ("ways",)

    def __init__(self, receivers: Sequence[Receiver]) -> None:
        self.ways = tuple(Way(receiver) for receiver in receivers)

    @property
    def closed(self) -> bool:
        """Whether both directions have ended."""
        return all(way.closed for way in self.ways)

    @property
    def held_bytes(self) -> int:
        """The memory of all held segments."""
        return self.ways[0].held_bytes + self.ways[1].held_bytes

    def add(self, index: int, segment: Segment, time_us: int) -> None:
        """Add a segment of the direction with this index, captured at this time."""
        way, other = self.ways[index], self.ways[1 - index]
        flags, sequence, size = segment.flags, segment.sequence, segment.size
        if flags & SYN:
            sequence = (sequence + 1) % _MODULUS
        way.begin(sequence)
        acknowledged = -1
        if flags & ACK:
            other.begin(segment.acknowledged)
            acknowledged = other.position(segment.acknowledged)
            other.acknowledged = max(other.acknowledged, acknowledged)
        position = way.position(sequence)
        if flags & FIN and way.end < 0:
            way.end = position + size
            if way.next == way.end and not size:
                way.next += 1
        if size:
            found = Held(position, size, segment.payload, time_us, acknowledged)
            if not way.held and position <= way.next and acknowledged <= other.next:
                way.deliver(found)
            else:
                way.hold(found)
        if way.held or other.held:
            self._advance(time_us)

    def flush(self) -> None:
        """Give all held segments to the receivers: what is missing is lost, since no more packets come."""
        self._release_ready()
        while any(way.held for way in self.ways):
            for way, other in self._both():
                if way.held:
                    _lose(way, other, acknowledged_only=False)
            self._release_ready()
        for way in self.ways:
            way.lose(way.end if way.end >= 0 else way.acknowledged)

    def _both(self) -> tuple[tuple[Way, Way], tuple[Way, Way]]:
        first, second = self.ways
        return (first, second), (second, first)

    def _advance(self, time_us: int) -> None:
        self._release_ready()
        for way, other in self._both():
            while way.held:
                is_full = way.held_bytes > HELD_MAX
                if not is_full and time_us - way.waiting_us <= REORDER_US:
                    break
                if not _lose(way, other, acknowledged_only=not is_full):
                    break
                self._release_ready()

    def _release_ready(self) -> None:
        """Deliver the held segments that wait for nothing."""
        moved = True
        while moved:
            moved = False
            for way, other in self._both():
                while (
                    way.held and way.held[0].position <= way.next and way.held[0].acknowledged <= other.next
                ):
                    way.deliver(way.release())
                    moved = True


def _lose(way: Way, other: Way, *, acknowledged_only: bool) -> bool:
    """Skip the missing bytes for which the first held segment of `way` waits; returns whether there were any.

    Args:
        acknowledged_only: skip none that may still be sent again.
    """
    first = way.held[0]
    if first.position > way.next:
        until = first.position
        if acknowledged_only:
            until = min(until, way.acknowledged)
        if until <= way.next:
            return False
        way.lose(until)
        return True
    until = min(first.acknowledged, other.held[0].position if other.held else first.acknowledged)
    if until > other.next:
        other.lose(until)
        return True
    if acknowledged_only:
        return False
    # Both directions wait for each other, which no two hosts can bring about.
    way.held[0] = first._replace(acknowledged=-1)
    return True
