"""What a class uses of its capacity in one process, and its demand there (`capacities`).

A class is lent what others leave, so its demand should be what it uses, neither its rate nor what it was lent: a loan
that is not used is lost to the others until it is lowered. It is measured every USE_MS.

    use      bytes/s that time has paid for, averaged: a request as large as a second's rate is a second's use
    unused   what the class was allowed and did not use, since it had nothing to pay for

A class *has enough* if no connection waits, or a part of what it was allowed is unused: then its connections wait for
their turns in what is sent at once.

    has enough             its use, and a little more beyond its own rate, so that it can grow
    has used all for 0.3 s at least its rate: it has begun to use it. The same if what it has sent takes as long to pay
                           for. A name below a default wants it as soon as a connection waits: many that begin
                           together may be promised more than there is
    has not enough         more than it is allowed; the longer it lasts, the more. A few large requests that come
                           together are paid for before much is lent to them, which they would not use

Beyond its own rate, it is lent to the processes whose demand is larger than their share of the rate: the weight of a
demand is their number of waiting connections (at least 1), and 0 elsewhere. While the class has not enough, SHORT is
added to it: what no demand wants goes to such classes first.
"""

from typing import Final

from quotas.limiters.limiter import Borrowing
from quotas.sharing.lease_values import SHORT, Wish

# What a class uses is measured at least so far apart, and averaged over about the second time.
USE_MS: Final = 100
_MEAN_MS: Final = 300
# So many throttles are added up in a measurement for each ms between two: some 1 % of the time.
_THROTTLES_A_MS: Final = 50
# What is unused is added up over one to two of these. A class that has this part of it unused has enough.
_PERIOD_MS: Final = 500
_UNUSED_PART: Final = 0.03
# A measurement with this part unused says that the class has paused.
_PAUSED_PART: Final = 0.1
_BUSY_MS: Final = 300
_BEGUN_PART: Final = 0.25  # of its rate: it uses so much on average soon after it has begun to use all
# A class that has not enough for this time wants twice what it has, and this part of the capacity at least. It does not
# want all: its connections may wait here for a share of its rate that other processes have.
_DOUBLE_MS: Final = 4000
_MORE_MIN: Final = 0.01
# A connection waits for so long after its mute at most: others can use the rate.
BACK_MS: Final = 300
# What a class that has enough may use beyond what it uses now.
_GROWTH: Final = 1.03
# A demand that differs by less than this part is not worth a message; a smaller part of a capacity is none. One that is
# stated too high keeps a loan from others.
_DEMAND_PART: Final = 0.03
_DEMAND_LOWER_PART: Final = 0.01
_DEMAND_MIN: Final = 1e-5
# A number of waiting connections that differs by less than this part is not worth a message.
_WEIGHT_PART: Final = 8


def differs(before: Wish | None, wish: Wish | None) -> bool:
    """Whether a demand differs from the reported one by enough for a message.

    >>> [differs(Wish(0.5, 1), wish) for wish in (Wish(0.51, 1), Wish(0.52, 1), Wish(0.49, 1), Wish(0.5, 0), None)]
    [False, True, True, True, True]
    """
    if before is None or wish is None:
        return before is not wish
    if (before.weight == 0) != (wish.weight == 0) or before.is_short != wish.is_short:
        return True
    part = _DEMAND_PART if wish.wanted > before.wanted else _DEMAND_LOWER_PART
    return abs(wish.wanted - before.wanted) > part * before.wanted or abs(wish.weight - before.weight) >= max(
        1, before.weight // _WEIGHT_PART
    )


class Use:
    """What the class of one limiter uses of its capacity, and its demand there.

    Attributes:
        key: of its loans.
        capacity: bytes/s.
        named: whether an entry is about exactly this class.
        promised: the limit of all processes together, in bytes/s.
        rate: the use in bytes/s, averaged.
        predicted: connections that would wait if quotas were enforced, and until when.
        wish: the demand that was reported last; None for none.
    """

    __slots__ = (
        "_allowed",
        "_allowed_ms",
        "_before",
        "_busy_ms",
        "_enough_ms",
        "_period",
        "_period_ms",
        "_raised",
        "_refill",
        "_sample",
        "capacity",
        "key",
        "limiter",
        "named",
        "predicted",
        "promised",
        "rate",
        "wish",
    )

    def __init__(self, key: str, limiter: Borrowing, capacity: float, named: bool, now_ms: int) -> None:
        self.key = key
        self.limiter = limiter
        self.capacity = capacity
        self.named = named
        self.promised = limiter.limit
        self.predicted: dict[object, int] = {}
        self.wish: Wish | None = None
        self.rate = 0.0
        self._allowed = 0.0  # bytes since the last measurement
        self._allowed_ms = now_ms  # until when they were added up
        self._raised = (
            0.0  # bytes that a changed rate has added to what is not paid for, since the last measurement
        )
        self._refill = (
            0.0  # the same since ever, as far as they are not paid for: to fill a larger burst is no use
        )
        self._sample = now_ms, limiter.used(), limiter.unpaid_bytes(now_ms)
        # Bytes that were allowed, and not used, in this period and in the one before.
        self._period = self._before = (0.0, 0.0)
        self._period_ms = now_ms
        self._busy_ms = now_ms  # when it last paused
        self._enough_ms = now_ms  # when it last had enough

    @property
    def standby(self) -> float:
        """The rate in bytes/s that it has without a demand, and that is shrunk then: names are without a bound."""
        return 0.0 if self.named else self.promised

    def measured(self, now_ms: int) -> bool:
        """Whether it was measured a moment ago."""
        return now_ms < self._sample[0] + USE_MS

    def costly(self, now_ms: int) -> bool:
        """Whether it has so many throttles that to measure it now would take too much of the time."""
        return now_ms < self._sample[0] + len(self.limiter.throttles) // _THROTTLES_A_MS

    def would_wait_since(self, ms: int) -> int:
        """Return the number of connections that would wait at a time or later, and forget the others."""
        for one in [one for one, until_ms in self.predicted.items() if until_ms < ms]:
            del self.predicted[one]
        return len(self.predicted)

    def lend(self, share: float, loan: float, now_ms: int) -> None:
        """Set the limiter's share of its limit, and its loan in bytes/s."""
        self._allow(now_ms)
        before = self.limiter.unpaid_bytes(now_ms)
        self.limiter.lend(share, now_ms, loan)
        self._raised += self.limiter.unpaid_bytes(now_ms) - before

    def begin_empty(self, since_ms: int, now_ms: int) -> None:
        """Begin without a burst at a time: what time pays for until it is full is no use."""
        before = self.limiter.unpaid_bytes(now_ms)
        self.limiter.begin_empty(since_ms, now_ms)
        self._raised += self.limiter.unpaid_bytes(now_ms) - before

    def renew(self, waiting: int, share: float, now_ms: int) -> bool:
        """Measure the use, and set the demand anew; returns whether it has changed.

        Args:
            waiting: how many connections wait.
            share: the share of its limit that the process has without a loan.
        """
        self._measure(now_ms)
        own = self.limiter.limit * share / self.capacity
        wanted = self._wanted(waiting, own, now_ms)
        weight = max(1, waiting) + SHORT * (self._enough_ms < now_ms) if wanted > own else 0
        wish = Wish(min(1.0, wanted), weight) if wanted > _DEMAND_MIN else None
        if not differs(self.wish, wish):
            return False
        self.wish = wish
        return True

    def _allow(self, now_ms: int) -> None:
        """Add up what was allowed at the present rate."""
        self._allowed += self.limiter.rate * (now_ms - self._allowed_ms) / 1000
        self._allowed_ms = now_ms

    def _measure(self, now_ms: int) -> None:
        began_ms, total_before, unpaid_before = self._sample
        total, unpaid = self.limiter.used(), self.limiter.unpaid_bytes(now_ms)
        self._sample = now_ms, total, unpaid
        self._allow(now_ms)
        allowed, raised, self._allowed, self._raised = self._allowed, self._raised, 0.0, 0.0
        paid = max(0.0, total - total_before - (unpaid - unpaid_before) + raised)
        elapsed_ms = now_ms - began_ms
        part = min(1.0, elapsed_ms / _MEAN_MS)
        refilled = min(paid, self._refill + raised)
        self._refill += raised - refilled
        self.rate += part * ((paid - refilled) * 1000 / elapsed_ms - self.rate)
        if now_ms >= self._period_ms + _PERIOD_MS:
            self._before, self._period, self._period_ms = self._period, (0.0, 0.0), now_ms
        self._period = self._period[0] + allowed, self._period[1] + allowed - paid
        if allowed - paid > _PAUSED_PART * allowed:
            self._busy_ms = now_ms

    @property
    def _has_unused(self) -> bool:
        """Whether a part of what it was allowed lately is unused."""
        return self._period[1] + self._before[1] > _UNUSED_PART * (self._period[0] + self._before[0])

    def _wanted(self, waiting: int, own: float, now_ms: int) -> float:
        """Return the demand as a part of the capacity.

        Args:
            own: the part of it that the process has without a loan.
        """
        wanted = self.rate / self.capacity
        if not waiting or self._has_unused:
            self._enough_ms = now_ms
        lasts_ms = now_ms - self._enough_ms
        if lasts_ms:
            more = 1 + min(1.0, lasts_ms / _DOUBLE_MS)
            return max(_MORE_MIN, more * max(wanted, self.limiter.rate / self.capacity))
        if waiting and (self._is_busy(wanted, own, now_ms) or not self.named):
            return max(wanted, own * _GROWTH)
        return wanted * _GROWTH if wanted > own else wanted

    def _is_busy(self, wanted: float, own: float, now_ms: int) -> bool:
        """Whether it uses all for a while, more than a burst that is refilled.

        What it has sent and time has yet to pay for is use that is certain.
        """
        if self._sample[2] * 1000 >= self.limiter.rate * _BUSY_MS:
            return True
        return now_ms >= self._busy_ms + _BUSY_MS and wanted > own * _BEGUN_PART
