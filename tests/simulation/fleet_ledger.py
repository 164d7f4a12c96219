"""The bound of a fleet in bytes (fleet.md, "Budgets"), compared at each request."""

from typing import Final

QUOTA: Final = 4_000_000.0  # bytes/s, with a burst of one second
REQUEST: Final = 100_000


class Ledger:
    """What all processes together let pass, compared with the bound in bytes at each request.

    In any interval T at most 1.01 Q T + Q burst + L R, with L processes in it and requests of R bytes. With P(t) for
    what has passed until t, less 1.01 Q t, less R for each process that began: P(end) - P(begin) is at most Q burst,
    and R for each process that there was at the beginning.
    """

    def __init__(self) -> None:
        self.processes = 0
        self.total = 0
        self._potential = 0.0  # P(t), but for the time
        self._lowest = 0.0  # the smallest P(t) + R processes(t) so far
        self.worst = 0.0  # the largest part of Q burst that was used

    def begins(self) -> None:
        """A process begins."""
        self._potential -= REQUEST
        self.processes += 1

    def ends(self) -> None:
        """A process ends."""
        self.processes -= 1

    def passes(self, size: int, now_ms: int) -> None:
        """A request passes; all of it counts at once."""
        before = self._potential - 1.01 * QUOTA * now_ms / 1000
        self._lowest = min(self._lowest, before + REQUEST * self.processes)
        self._potential += size
        self.total += size
        self.worst = max(self.worst, (before + size - self._lowest) / QUOTA)
