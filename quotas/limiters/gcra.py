"""GCRA: the schedule on which everything that passed is paid for at a rate (policy `schedule`).

`_paid_ms` is the time at which everything that passed will have been paid for. A request may pass while that is at
most the burst ahead; passing moves it by size / rate. So at most burst + rate * t + one request pass in any t.

The rate is a share of the limit: 1 in a process of its own, less where several processes have the limit together
(`quotas.sharing`). A change of the limit keeps what is owed in bytes, and the burst is the new limit's. A change of the
share keeps credit and debt in bytes: a raised share adds no burst, a lowered one clips it. So shares that are moved
between processes, and add up to at most 1, make no credit.
"""

from collections.abc import Iterable
from math import ceil

from quotas.limiters.backlog import Backlog, PacedBacklog
from quotas.limiters.flow import Flow
from quotas.limiters.virtual_time import BudgetTime

__all__ = ["VirtualSchedule"]


class VirtualSchedule:
    """The schedule of one identity.

    Args:
        limit: in bytes/s, of all processes together.

    >>> schedule = VirtualSchedule(1_000_000, burst_ms=1000, now_ms=0)
    >>> schedule.lend(0.25, 0)  # 1 MB of credit, clipped to a quarter of it
    >>> schedule.credit_bytes(0)
    250000.0
    >>> schedule.lend(1, 0)
    >>> schedule.credit_bytes(0), schedule.credit_bytes(750)  # no more at once; the rest comes with time
    (250000.0, 1000000.0)
    """

    __slots__ = ("_burst_ms", "_paid_ms", "_rate", "_returned_ms", "_share", "limit", "virtual_time")

    def __init__(self, limit: float, burst_ms: int, now_ms: int) -> None:
        assert limit > 0, "a definition checks this"
        self.limit = limit
        self._share = 1.0
        self._rate = limit / 1000.0  # bytes per ms
        self._burst_ms = burst_ms
        self._paid_ms = float(now_ms)
        self.virtual_time: BudgetTime | None = None
        self._returned_ms = 0.0  # how much of the schedule was given back so far

    def limit_to(self, limit: float, now_ms: int) -> None:
        """Change the limit; what is owed in bytes stays owed."""
        assert limit > 0, "a definition checks this"
        self.limit = limit
        self._change_rate(limit * self._share / 1000.0, now_ms, now_ms)

    def lend(self, share: float, now_ms: int) -> None:
        """Use this share of the limit from now on; credit and debt stay the same in bytes."""
        assert share > 0, "a schedule without a rate never ends"
        self._share = share
        self._change_rate(self.limit * share / 1000.0, now_ms + self._burst_ms, now_ms)

    def credit_bytes(self, now_ms: int) -> float:
        """The bytes that may pass at once; negative: what is owed beyond the burst."""
        return (self._burst_ms + now_ms - max(self._paid_ms, now_ms)) * self._rate

    def elapse(self, ms: int) -> None:
        """Be as if so much more time had passed (`virtual_time`)."""
        self._paid_ms -= ms

    def free_ms(self, now_ms: int) -> int:
        """Return for how long the burst has not been used up; 0 if it is."""
        return max(0, int(now_ms + self._burst_ms - self._paid_ms))

    @property
    def rate(self) -> float:
        """The share of the limit, in bytes/s."""
        return self._rate * 1000

    def new_backlog(self) -> Backlog:
        """Return the backlog of clients that do not wait."""
        return PacedBacklog(self._burst_ms)

    def settle(self, now_ms: int) -> None:
        """Enforcement begins: what passed before is no debt, but no more of the burst is left than it left."""
        self._paid_ms = min(self._paid_ms, float(now_ms + self._burst_ms))
        self.virtual_time = None

    def use_up_burst(self, now_ms: int) -> None:
        """Begin without a burst at this time, since what passed before is not known here; it is no debt."""
        self._paid_ms = float(now_ms + self._burst_ms)

    def begin_empty(self, since_ms: int, now_ms: int) -> None:
        """Begin without a burst, but for what has come since that time."""
        self._paid_ms = float(max(now_ms, since_ms + self._burst_ms))

    def debt_bytes(self, now_ms: int) -> float:
        """Bytes that passed and that neither the burst nor the time since has paid for."""
        return max(0.0, (self._paid_ms - self._burst_ms - now_ms) * self._rate)

    def _charge(self, size: int, now_ms: int) -> None:
        """Move the schedule by `size` bytes; credit older than the burst is lost."""
        self._paid_ms = max(self._paid_ms, now_ms) + size / self._rate

    def _note_charge(self, flow: Flow) -> None:
        """Remember where the flow's charge has moved the schedule to."""
        flow.until_ms = int(self._paid_ms)
        flow.returned_ms = int(self._returned_ms)

    def _give_back(self, flow: Flow, size: int, now_ms: int) -> None:
        """Take back a flow's charge, but for what time has paid of it: that is no credit.

        What was given back since then has moved the end of this charge as well.
        """
        left_ms = flow.until_ms - (ceil(self._returned_ms) - flow.returned_ms) - now_ms
        if left_ms > 0:
            returned_ms = size / self._rate
            returned_ms = min(returned_ms, left_ms)
            self._paid_ms -= returned_ms
            self._returned_ms += returned_ms

    def _under_way(self) -> Iterable[Flow]:
        """The channels with a charge that may be given back."""
        return ()

    def _change_rate(self, rate: float, fixed_ms: int, now_ms: int) -> None:
        """Change the rate: bytes between the schedule and the time `fixed_ms` stay the same."""
        before, self._rate = self._rate, rate
        if rate == before:
            return
        scale = before / rate
        self._paid_ms = max(now_ms, fixed_ms + (max(self._paid_ms, now_ms) - fixed_ms) * scale)
        returned_ms = ceil(self._returned_ms)
        for flow in self._under_way():
            until_ms = flow.until_ms - (returned_ms - flow.returned_ms)
            flow.until_ms = int(fixed_ms + (until_ms - fixed_ms) * scale)
            flow.returned_ms = returned_ms
