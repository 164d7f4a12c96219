"""This process's share of a limit over Kafka's sampled windows (`rate`).

The share is 1, or less if several processes share the limit (`quotas.sharing`). A change of the share leaves the room
in the windows as it is: a higher share adds no burst, a lower one takes effect as the windows move on. So moving shares
between processes, which add up to at most 1, creates no credit.

What is recorded, and what happens above the limit, is defined by the limiters of bytes (`kip13`), of request time
(`throttles.request`) and of connections (`throttles.connections`).
"""

from dataclasses import InitVar, dataclass, field
from typing import Final

from quotas.limiters.limiter import LimiterKey
from quotas.limiters.rate import SampledRate
from quotas.limiters.virtual_time import BudgetTime

# Per second, in the limit's unit. Less would overflow the arithmetic.
_LIMIT_MIN: Final = 1e-6


@dataclass(slots=True, eq=False)
class SampledLimit:
    """A limit per second over Kafka's sampled windows, and this process's share of it.

    Args:
        limit: the limit of all processes together, per second.

    >>> limit = SampledLimit(1_000, samples=11, window_ms=1000)
    >>> limit.lend(0.25, 0)
    >>> limit.begin_empty(0, 0)
    >>> limit.lend(1, 0)
    >>> limit.room(0), limit.room(11_000)  # no more at once; the rest comes with time
    (0, 10000)
    """

    limit: float
    samples: InitVar[int]
    window_ms: int  # of one sample
    limiter_key: LimiterKey | None = field(default=None, init=False)
    virtual_time: BudgetTime | None = field(default=None, init=False)
    _samples: int = field(init=False)
    _share: float = field(default=1.0, init=False)
    _rate: SampledRate = field(init=False)
    _limit: float = field(init=False)
    _safe: float = field(init=False)

    def __post_init__(self, samples: int) -> None:
        self._samples = samples
        self._rate = SampledRate(samples, self.window_ms)
        self.limit_to(self.limit)

    def limit_to(self, limit: float) -> None:
        """Change the limit; what was recorded stays."""
        self.limit = max(limit, _LIMIT_MIN)
        self._update()

    def resize(self, samples: int, window_ms: int, now_ms: int) -> bool:
        """Set number and length of the windows. If they change, all records move to one window; returns whether they
        do.
        """
        if (samples, window_ms) == (self._samples, self.window_ms):
            return False
        recorded = self._rate.total
        self._samples, self.window_ms = samples, window_ms
        self._rate = SampledRate(samples, window_ms)
        self._rate.record(recorded, now_ms)
        self.virtual_time = None  # its backlog has other windows
        self._update()
        return True

    def lend(self, share: float, now_ms: int) -> None:
        """Use this share (0 to 1) of the limit from now on; the room in the windows stays the same."""
        before, self._share = self._share, share
        self._rate.spread((share - before) * self.limit, now_ms)
        self._update()

    def begin_empty(self, since_ms: int, now_ms: int) -> None:
        """Start as if all windows had been full at `since_ms`: there is only the room of the time since then."""
        if now_ms < since_ms + self._rate.keep_ms:
            self._rate.begin_full(self._limit, since_ms)

    def elapse(self, ms: int) -> None:
        """Act as if `ms` more had passed: a predicted wait, while quotas are not enforced (`virtual_time`)."""
        self._rate.elapse(ms)

    def free_ms(self, now_ms: int) -> int:
        """Return the room in the windows as time in ms at the limit's rate; 0 if there is no room."""
        return max(0, int(self.room(now_ms) * 1000 / self._limit))

    def settle(self, now_ms: int) -> None:
        """Clear the excess made while quotas were not enforced; the windows stay full up to the limit."""
        self._rate.trim(self._limit, now_ms)
        self.virtual_time = None

    @property
    def decides_again(self) -> bool:
        """False: every request is charged when it arrives, so its mute is never shortened (`Lendable`)."""
        return False

    def room(self, now_ms: int) -> int:
        """Return the amount that may be recorded now within this process's share; negative if it is exceeded."""
        return self._rate.left(self._limit, now_ms)

    def _update(self) -> None:
        """Compute this process's share of the limit per second, and what the smallest window allows (`_safe`)."""
        self._limit = max(self.limit * self._share, _LIMIT_MIN)
        self._safe = self._limit * (self._samples - 1) * self.window_ms / 1000.0
