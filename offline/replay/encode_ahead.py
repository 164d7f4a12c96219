"""Encodes frames ahead while no request is due: encoding may take milliseconds, which would make the request late."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from offline.replay.frames import Encoder, Frame
from offline.replay.schedule import Planned

__all__ = ["FRAMES_MAX", "EncodeAhead"]

FRAMES_MAX: Final = 500
BYTES_MAX: Final = 64 * 1024 * 1024
_TURN_US: Final = 1000  # the longest time between two checks for responses
_SPARE_US: Final = 2000  # about the time for one frame


class EncodeAhead:
    """The encoded next frames of a plan; requests take them in order."""

    def __init__(self, sends: Sequence[Planned], encoder: Encoder, now_us: Callable[[], int]) -> None:
        self._sends = sends
        self._encoder = encoder
        self._now_us = now_us
        self._ready: deque[Frame | None] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._ready)

    def take(self, place: int) -> Frame | None:
        """Return the frame of the next request, at `place`; None if nothing of it can be sent."""
        if not self._ready:
            return self._encoder.encode(self._sends[place].request, place)
        frame = self._ready.popleft()
        self._bytes -= 0 if frame is None else len(frame.data)
        return frame

    def make(self, place: int, until_us: int) -> bool:
        """Encode frames from `place` on until a time; returns whether there is time for more."""
        turn_us = self._now_us() + _TURN_US
        while True:
            at = place + len(self._ready)
            now_us = self._now_us()
            full = len(self._ready) >= FRAMES_MAX or self._bytes >= BYTES_MAX
            if full or at >= len(self._sends) or now_us + _SPARE_US > until_us:
                return False
            if now_us >= turn_us:
                return True
            frame = self._encoder.encode(self._sends[at].request, at)
            self._bytes += 0 if frame is None else len(frame.data)
            self._ready.append(frame)
