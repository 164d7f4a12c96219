"""A shell in memory: carries out a channel's orders over two byte streams, with a broker that is a function.

What `proxy.net` does with sockets, in the plainest way: passthrough bytes are passed without being shown, kept bytes
are shown again, nothing is read while a WAIT is in force. Time stands still while there is anything to do, so that how
the streams are cut cannot change when things happen; it jumps to the end of a wait when there is not.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from proxy.channel import MORE, PASS, REFUSE, REPLACE, WAIT, Direction, Machine
from tests.support.playbook import local_response_due, mute_left_ms, ordered_job, owed_of

# A whole request, and the response to it; b"" where the broker owes none.
Broker = Callable[[bytes], bytes]

_STALE: Final = b"\xaa" * 5
_STEPS_MAX: Final = 1_000_000


@dataclass
class _Stream:
    """One direction of the channel: what is still to come, what is kept, what went out."""

    direction: Direction
    source: bytearray = field(default_factory=bytearray)
    kept: bytes = b""
    out: bytearray = field(default_factory=bytearray)
    waiting: bool = False
    refused: bool = False

    def read(self, size: int, now_ms: int) -> None:
        """Take at most `size` bytes of the source, or of the passthrough bytes, and carry out what is ordered."""
        assert size > 0, "a read brings something"
        piece = bytes(self.source[:size])
        if self.direction.verdict.passthrough > 0 and not self.kept:
            piece = piece[: self.direction.verdict.passthrough]
            del self.source[: len(piece)]
            self.out += piece
            self.direction.passed(len(piece), now_ms * 1_000_000)
            if not self.direction.verdict.passthrough:
                self.show(b"", now_ms)  # a frame may be over: the direction acts on it
            return
        del self.source[: len(piece)]
        self.show(piece, now_ms)

    def show(self, piece: bytes, now_ms: int) -> None:
        """Show the kept bytes and a piece, between bytes that must not matter."""
        shown = self.kept + piece
        buf = bytearray(_STALE + shown + _STALE)
        start, end = len(_STALE), len(_STALE) + len(shown)
        direction = self.direction
        for _ in range(_STEPS_MAX):
            patches = direction.verdict.patches
            count = direction.receive(buf, start, end, now_ms * 1_000_000).passing
            passed, at = buf[start : start + count], start - len(_STALE)
            assert direction.verdict.patches > patches or passed == shown[at : at + count], (
                "patched bytes are told"
            )
            self.out += passed
            start += count
            if (job := ordered_job(direction)) is not None:
                job.run()
                continue
            if direction.verdict.order != REPLACE:
                break
            self.out += direction.verdict.insert
            start += direction.verdict.drop
        assert direction.verdict.order in (PASS, MORE, WAIT, REFUSE)
        assert start <= end, "an order reaches beyond what was shown"
        assert direction.verdict.order != PASS or start == end, "PASS leaves nothing over"
        self.kept = bytes(buf[start:end])
        self.waiting = direction.verdict.order == WAIT
        if direction.verdict.order == REFUSE:  # what follows is read and dropped
            self.refused = True
            self.kept = b""
            self.source.clear()


class MemoryShell:
    """One channel between a client that has sent all it has to say, and a broker."""

    def __init__(self, channel: Machine, broker: Broker, requests: bytes, pieces: list[int]) -> None:
        self.now_ms = 0
        self.channel = channel
        self._broker = broker
        self._sizes: Iterator[int] = cycle(pieces or [1 << 30])
        self._parsed = 0
        self.requests = _Stream(channel.requests, bytearray(requests))
        self.responses = _Stream(channel.responses)
        self.waits: list[tuple[int, bool]] = []

    def run(self) -> "MemoryShell":
        """Relay until nothing is left to do.

        Responses are delivered before the next request is read only where the requests wait, so that their order
        does not depend on the cutting.
        """
        for _ in range(_STEPS_MAX):
            if self.requests.source and not self.requests.waiting:
                self.requests.read(next(self._sizes), self.now_ms)
                self._respond()
            elif self.responses.source:
                self.responses.read(next(self._sizes), self.now_ms)
            elif local_response_due(self.channel):
                self.responses.show(b"", self.now_ms)
            elif self.requests.refused:
                return self
            elif self.requests.waiting:
                if not self._wait():
                    return self
            elif mute_left_ms(self.channel, self.now_ms) and not self.requests.direction.mid_frame():
                self.requests.show(b"", self.now_ms)
            else:
                return self
        raise AssertionError("the relay never ends")

    def _wait(self) -> bool:
        """Show what waits once its time has come; False where it waits for responses that do not come."""
        direction = self.requests.direction
        owed = owed_of(self.channel)
        self.waits.append((direction.verdict.until_ms, direction.verdict.held))
        self.now_ms = max(self.now_ms, direction.verdict.until_ms)
        self.requests.waiting = False
        self.requests.show(b"", self.now_ms)
        self._respond()
        stuck = self.requests.waiting and not direction.verdict.until_ms and not self.responses.source
        return not (stuck and owed_of(self.channel) == owed)

    def _respond(self) -> None:
        """Let the broker respond to every request that has arrived whole."""
        out = self.requests.out
        while len(out) - self._parsed >= 4:
            (length,) = struct.unpack_from(">i", out, self._parsed)
            end = self._parsed + 4 + length
            if end > len(out):
                return
            self.responses.source += self._broker(bytes(out[self._parsed : end]))
            self._parsed = end
