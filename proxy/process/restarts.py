"""When a worker that has ended is started again: pure arithmetic, the shell is `workers`.

    it was ready, and ran for STEADY_MS     at once
    otherwise                               after a pause that doubles from PAUSE_MS_MIN to PAUSE_MS_MAX

So one that is killed now and then is replaced at once, and one that cannot start does not occupy a processor.
"""

from typing import Final

PAUSE_MS_MIN: Final = 100
PAUSE_MS_MAX: Final = 30_000
STEADY_MS: Final = 10_000
# A worker sends something every second. One that is silent for so many seconds is killed: new connections lead to its
# ports too, and wait there.
SILENT_TICKS_MAX: Final = 30


class Restarts:
    """The lives of one worker.

    >>> restarts = Restarts()
    >>> [restarts.ended(ran_ms=50, was_ready=False) for _ in range(4)]
    [100, 200, 400, 800]
    >>> restarts.ended(ran_ms=60_000, was_ready=True), restarts.ended(ran_ms=50, was_ready=True)
    (0, 100)
    """

    def __init__(self) -> None:
        self._pause_ms = PAUSE_MS_MIN
        self._silent_ticks = 0

    def ended(self, *, ran_ms: int, was_ready: bool) -> int:
        """Return how long to wait before it is started again, in ms."""
        self._silent_ticks = 0
        if was_ready and ran_ms >= STEADY_MS:
            self._pause_ms = PAUSE_MS_MIN
            return 0
        pause_ms = self._pause_ms
        self._pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
        return pause_ms

    def message_received(self) -> None:
        """Note that the worker has sent something."""
        self._silent_ticks = 0

    def tick(self) -> bool:
        """Count one second; True if the worker is to be killed.

        Seconds are counted here, and not compared with a clock: when the whole machine was suspended, all processes
        were silent, and this one too.
        """
        self._silent_ticks += 1
        return self._silent_ticks >= SILENT_TICKS_MAX
