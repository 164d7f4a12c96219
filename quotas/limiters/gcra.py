"""The virtual schedule of policy `schedule`: the generic cell rate algorithm (GCRA).

Bytes that pass are paid for at the rate, one after the other. `_paid_ms` is the time at which all of them are paid for.
A request may pass while this time is at most the burst ahead of now; it moves the time on by size / rate. So in any
time t, at most burst + rate * t bytes and one request pass.

The rate is the process's share of the limit: all of it, or less if several processes share the limit
(`quotas.sharing`); and what is lent to it of a capacity (`quotas.sharing.capacities`). A change of the limit keeps the
debt in bytes; the burst becomes that of the new limit. A change of the share keeps credit and debt in bytes: a higher
share adds no burst, a lower one clips it. So moving shares between processes, which add up to at most 1, creates no
credit.
"""

from collections.abc import Iterable
from math import ceil

from quotas.limiters.limiter import Flow
from quotas.limiters.virtual_time import Backlog, BudgetTime, PacedBacklog


class VirtualSchedule:
    """The virtual schedule (GCRA) of a quota: the time at which all bytes that have passed are paid for at the rate.

    Args:
        limit: the limit of all processes together, in bytes/s.

    >>> schedule = VirtualSchedule(1_000_000, burst_ms=1000, now_ms=0)
    >>> schedule.lend(0.25, 0)  # 1 MB of credit, clipped to a quarter of it
    >>> schedule.credit_bytes(0)
    250000.0
    >>> schedule.lend(1, 0)
    >>> schedule.credit_bytes(0), schedule.credit_bytes(750)  # no more at once; the rest comes with time
    (250000.0, 1000000.0)
    """

    __slots__ = ("_burst_ms", "_loan", "_paid_ms", "_rate", "_returned_ms", "_share", "limit", "virtual_time")

    def __init__(self, limit: float, burst_ms: int, now_ms: int) -> None:
        assert limit > 0, "a definition checks this"
        self.limit = limit
        self._share = 1.0
        self._loan = 0.0  # bytes/s beyond the share
        self._rate = limit / 1000.0  # bytes per ms
        self._burst_ms = burst_ms
        self._paid_ms = float(now_ms)
        self.virtual_time: BudgetTime | None = None
        self._returned_ms = 0.0  # how much of the schedule was given back so far

    def limit_to(self, limit: float, now_ms: int) -> None:
        """Change the limit; the debt in bytes stays the same."""
        assert limit > 0, "a definition checks this"
        self.limit = limit
        self._change_rate((limit * self._share + self._loan) / 1000.0, now_ms, now_ms)

    def lend(self, share: float, now_ms: int, loan: float = 0.0) -> None:
        """Use this share (0 to 1) of the limit, and a loan in bytes/s; credit and debt stay the same in bytes."""
        assert share > 0, "a schedule without a rate never ends"
        self._share, self._loan = share, loan
        self._change_rate((self.limit * share + loan) / 1000.0, now_ms + self._burst_ms, now_ms)

    def credit_bytes(self, now_ms: int) -> float:
        """Return the bytes that may pass now; if negative, the debt beyond the burst."""
        return (self._burst_ms + now_ms - max(self._paid_ms, now_ms)) * self._rate

    def elapse(self, ms: int) -> None:
        """Act as if `ms` more had passed: a predicted wait, while quotas are not enforced (`virtual_time`)."""
        self._paid_ms -= ms

    def free_ms(self, now_ms: int) -> int:
        """Return the unused part of the burst, in ms; 0 if the burst is used up."""
        return max(0, int(now_ms + self._burst_ms - self._paid_ms))

    @property
    def rate(self) -> float:
        """This process's share of the limit, with what is lent to it, in bytes/s."""
        return self._rate * 1000

    def new_backlog(self) -> Backlog:
        """Return a new backlog: the bytes that clients would have left to send if the quota were enforced."""
        return PacedBacklog(self._burst_ms)

    def settle(self, now_ms: int) -> None:
        """Clear the debt made while quotas were not enforced; the used part of the burst stays used."""
        self._paid_ms = min(self._paid_ms, float(now_ms + self._burst_ms))
        self.virtual_time = None

    def use_up_burst(self, now_ms: int) -> None:
        """Use up the burst, without debt: this limiter replaces another one, whose bytes it does not know."""
        self._paid_ms = float(now_ms + self._burst_ms)

    def begin_empty(self, since_ms: int, now_ms: int) -> None:
        """Start without a burst, as if it had been used up at `since_ms`: only the time since then counts as credit."""
        self._paid_ms = float(max(now_ms, since_ms + self._burst_ms))

    def debt_bytes(self, now_ms: int) -> float:
        """Return the bytes that passed beyond the burst and are not paid for yet."""
        return max(0.0, (self._paid_ms - self._burst_ms - now_ms) * self._rate)

    def pay(self, size: int, now_ms: int) -> int:
        """Pay for `size` bytes at once, since another limiter has paid for them; returns how many were still owed."""
        before_ms = self._paid_ms
        self._paid_ms = min(before_ms, max(float(now_ms), before_ms - size / self._rate))
        self._returned_ms += before_ms - self._paid_ms
        return int((before_ms - self._paid_ms) * self._rate)

    def _charge(self, size: int, now_ms: int) -> None:
        """Move the schedule on by `size` bytes; credit older than the burst is lost."""
        self._paid_ms = max(self._paid_ms, now_ms) + size / self._rate

    def _note_charge(self, flow: Flow) -> None:
        """Store the end of the flow's charge in the schedule, for `_give_back`."""
        flow.until_ms = int(self._paid_ms)
        flow.returned_ms = int(self._returned_ms)

    def _give_back(self, flow: Flow, size: int, now_ms: int) -> None:
        """Take back `size` bytes of a flow's charge, except the part that time has paid for, which is no credit.

        Charges that were given back since then have moved the end of this charge as well.
        """
        left_ms = flow.until_ms - (ceil(self._returned_ms) - flow.returned_ms) - now_ms
        if left_ms > 0:
            returned_ms = size / self._rate
            returned_ms = min(returned_ms, left_ms)
            self._paid_ms -= returned_ms
            self._returned_ms += returned_ms

    def _under_way(self) -> Iterable[Flow]:
        """Return the channels with a charge that may be given back."""
        return ()

    def _change_rate(self, rate: float, fixed_ms: int, now_ms: int) -> None:
        """Change the rate (bytes per ms) so that the bytes between `fixed_ms` and `_paid_ms` stay the same."""
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
