"""The shares of replication's rates (KIP-73), and what replication may borrow of a capacity.

A follower's leaders may be behind several processes, so its rate is one key that they share. A leader is behind one of
them, which has the whole of its rate.

Where replication is a class of a capacity (`classes.replication_terms`), the throttled rate is what it always gets, and
both sides borrow beyond it as classes of clients do: the key of a rate, and a loan key. Replicas that are not throttled
are another class, which is counted and never delayed.

The demand is computed from the bytes that arrived (`Demands`), since a follower always asks for more than there is.
"""

from collections import deque
from collections.abc import Callable, Mapping
from heapq import nlargest
from math import inf
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from quotas.definitions.classes import Capacity, Terms
from quotas.definitions.kinds import FOLLOWER_RATE, FOLLOWER_UNTHROTTLED, LEADER_RATE, LEADER_UNTHROTTLED
from quotas.replication.replication_quotas import Rate, ReplicationQuotas, Side
from quotas.sharing.lease_values import Wish, loan_key
from quotas.sharing.lessee import Lessee
from quotas.sharing.parts import Parts
from quotas.sharing.uses import differs

# ----------------------------------------------------------------------------------------------------
# The demand of this process for each rate, from what passed lately and whether requests were held back.
#
# A process is *held back* if less was granted than asked for. That alone shows no demand, since a follower asks for
# more than there is; so the received bytes count too (`_USED`). A process that is held back and uses its share, or that
# is held back and receives nothing, wants the whole quota; the holder divides it fairly. Any other process wants twice
# its recent rate: bytes that its leader cannot send are free for others, and the leader still has room to send more.

_WINDOW_MS: Final = 2000
_SHORT_MS: Final = 1000
_SAMPLE_MS: Final = 100
# Held back within this time counts: a Fetch without a grant is repeated within half a second.
_HELD_MS: Final = 1000
_HEADROOM: Final = 2.0
# A share counts as used from this part on. It is above 1 / _HEADROOM; otherwise a slow leader's share would oscillate.
_USED: Final = 0.8
# How long a wish for the whole quota holds, until the effect of a larger share can be measured; and how long the
# highest rate while held back counts, since a slow leader's responses are few and large.
_INSISTS_MS: Final = _WINDOW_MS
_PEAK_MS: Final = 3000


class _Seen:
    """The recent bytes of one leader or follower, as samples."""

    __slots__ = ("_peak", "_peak_ms", "_samples", "insists_until_ms")

    def __init__(self, now_ms: int, total: int) -> None:
        self._samples = deque([(now_ms, total)])
        self._peak = 0.0
        self._peak_ms = now_ms
        self.insists_until_ms = now_ms

    def per_second(self, total: int, now_ms: int) -> tuple[float, float]:
        """Return the bytes/s over the window and over the short window; `total`: the bytes so far."""
        samples = self._samples
        if now_ms >= samples[-1][0] + _SAMPLE_MS:
            samples.append((now_ms, total))
        while len(samples) > 1 and samples[1][0] <= now_ms - _WINDOW_MS:
            samples.popleft()
        lately = next(sample for sample in samples if sample[0] > now_ms - _SHORT_MS - _SAMPLE_MS)
        return _by_the_second(samples[0], total, now_ms), _by_the_second(lately, total, now_ms)

    def peak(self, came: float, now_ms: int) -> float:
        if came >= self._peak or now_ms >= self._peak_ms + _PEAK_MS:
            self._peak, self._peak_ms = came, now_ms
        return self._peak


def _by_the_second(since: tuple[int, int], total: int, now_ms: int) -> float:
    # At least a second, so that one batch is not a high rate. After a change of policy, totals restart at 0.
    return max(0, total - since[1]) * 1000 / max(now_ms - since[0], 1000)


class Demands:
    """Samples the rates at which leaders send and followers receive, and computes how much of them they could use."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], _Seen] = {}

    def wanted(
        self, place: tuple[str, int], most: float, rate: Rate, now_ms: int, headroom: float = _HEADROOM
    ) -> float:
        """Return the bytes/s that a leader or follower could use through this process, at most `most`.

        Args:
            place: side and broker.
            most: the whole quota in bytes/s, or up to what it may borrow; `rate.limit` is what this process has of it.
            headroom: how many times what passes it wants while it is not held back.
        """
        seen = self._seen.get(place)
        if seen is None:
            seen = self._seen[place] = _Seen(now_ms, rate.total)
        came, lately = seen.per_second(rate.total, now_ms)
        peak = seen.peak(came, now_ms)
        limit = most if rate.limit is None else rate.limit
        held = now_ms - rate.held_ms < _HELD_MS
        if held and (came >= limit * _USED or not came):
            seen.insists_until_ms = now_ms + _INSISTS_MS
        if held and now_ms < seen.insists_until_ms:
            return most
        return min(most, (peak if held else lately) * headroom)

    def passes(self, place: tuple[str, int], total: int, now_ms: int) -> tuple[float, float]:
        """Return the bytes/s that passed in the last two seconds, and in the last one; `total`: the bytes so far."""
        seen = self._seen.get(place)
        if seen is None:
            seen = self._seen[place] = _Seen(now_ms, total)
        return seen.per_second(total, now_ms)


BROKERS_MAX: Final = 256  # with demands at a time; others have the default share, and borrow nothing
_WANTED_MIN: Final = 0.01
_LOAN_HEADROOM: Final = 1.25  # what a side that is not held back wants of a capacity, so that it can grow
_NEVER_MS: Final = 1 << 62
_RATE: Final[Mapping[Side, str]] = MappingProxyType({"leader": LEADER_RATE, "follower": FOLLOWER_RATE})
_UNTHROTTLED: Final[Mapping[Side, str]] = MappingProxyType(
    {"leader": LEADER_UNTHROTTLED, "follower": FOLLOWER_UNTHROTTLED}
)


def replication_key(quota_key: str, broker: int) -> str:
    """Return the key under which shares of a broker's replication rate are leased.

    >>> replication_key(FOLLOWER_RATE, 3)
    'follower.replication.throttled.rate 3'
    """
    return f"{quota_key} {broker}"


class ReplicationShares:
    """Sets what this process may use of the rates of replication (KIP-73), and computes its demands for them.

    Args:
        quotas: the replication quotas, whose limits are set.
        lessee: the shares that this process has leased.
        changed: called when a limit has changed, so that waiting requests are decided again.
        class_of: returns the capacity that replication shares with this quota key, and its terms; None: it shares none.
        alone: whether brokers replicate through no other process, so that none shares their rates.
    """

    def __init__(
        self,
        quotas: ReplicationQuotas,
        lessee: Lessee | Parts,
        changed: Callable[[], None],
        class_of: Callable[[str], tuple[Capacity, Terms] | None] = lambda _: None,
        *,
        alone: bool = False,
    ) -> None:
        self._quotas = quotas
        self._lessee = lessee
        self._changed = changed
        self._class_of = class_of
        # The sides whose rates no other process uses.
        self._whole: Final[tuple[Side, ...]] = ("leader", "follower") if alone else ("leader",)
        self._demands = Demands()
        self._alone = alone
        self._wanted: dict[str, Wish] = {}  # the demands that were reported last
        quotas.shares = self

    @property
    def busy(self) -> bool:
        """Whether shares may change soon: there are demands, or other processes have some for the same rates."""
        return bool(self._wanted) or not self._alone

    def limit(self, side: Side, broker: int, quota: float, now_ms: int) -> tuple[float, float]:
        """Return the bytes/s of a broker's whole rate `quota` that this process may use, with what it borrows, and
        without; the latter is 0 where it can borrow nothing.
        """
        quota_key = _RATE[side]
        key = replication_key(quota_key, broker)
        found = self._class_of(quota_key)
        if found is None:
            return quota if side in self._whole else quota * self._lessee.share(key, now_ms), 0.0
        own = quota * self._lessee.share(key, now_ms)
        return own + found[0].rate * self._lessee.share(loan_key(key), now_ms), own

    def changes_ms(self, now_ms: int) -> int:
        """Return the next time, in ms, at which a limit changes without a grant: the end of the lease, or of loans."""
        until_ms = self._lessee.usable_until_ms if self._lessee.leased(now_ms) else -1
        return until_ms if until_ms > now_ms else _NEVER_MS

    def wishes(self, now_ms: int) -> dict[str, Wish]:
        """Return the demands by `replication_key`, and by loan key; a broker that replicates nothing has none."""
        found: list[tuple[float, dict[str, Wish]]] = []
        for side, broker, rate in self._quotas.rates():
            quota = self._quotas.quota(side, broker)
            if quota is not None and 0 < quota < inf:
                found.append(self._wishes_of(side, broker, quota, rate, now_ms))
        for (side, broker), total in self._quotas.unthrottled.items():
            found.append(self._unthrottled(side, broker, total, now_ms))
        if len(found) > BROKERS_MAX:
            found = nlargest(BROKERS_MAX, found, key=itemgetter(0))
        wishes = {key: wish for _, of_one in found for key, wish in of_one.items()}
        self._wanted = wishes
        return wishes

    def apply(self, now_ms: int) -> None:
        """Set the limits by the shares in force."""
        if self._quotas.share(now_ms):
            self._changed()

    def _wishes_of(
        self, side: Side, broker: int, quota: float, rate: Rate, now_ms: int
    ) -> tuple[float, dict[str, Wish]]:
        """Return the bytes/s that a side of a broker wants, with its demands."""
        place = side, broker
        key = replication_key(_RATE[side], broker)
        found = self._class_of(_RATE[side])
        if found is None:
            if side in self._whole:
                return 0.0, {}
            wanted = self._demands.wanted(place, quota, rate, now_ms)
            return wanted, {key: _of_rate(wanted / quota)} if wanted else {}
        capacity, terms = found
        # A peer that asks for records and is sent none, as one that is no broker, borrows nothing.
        passed, _ = self._demands.passes(place, rate.total, now_ms)
        most = max(quota, terms.ceiling) if passed else quota
        wanted = self._demands.wanted(place, most, rate, now_ms, _LOAN_HEADROOM)
        if not wanted:
            return 0.0, {}
        loan = loan_key(key)
        return wanted, {key: _of_rate(wanted / quota), loan: self._of_loan(loan, wanted / capacity.rate)}

    def _unthrottled(self, side: Side, broker: int, total: int, now_ms: int) -> tuple[float, dict[str, Wish]]:
        """Return the bytes/s of replicas that are not throttled, with the demand of their class."""
        quota_key = _UNTHROTTLED[side]
        place = self._class_of(quota_key)
        if place is None:
            return 0.0, {}
        # Of one second: what is lent to the throttled ones falls no later than these replicas receive more.
        _, passes = self._demands.passes((quota_key, broker), total, now_ms)
        key = loan_key(replication_key(quota_key, broker))
        return passes, {key: self._of_loan(key, passes / place[0].rate)} if passes else {}

    def _of_loan(self, key: str, wanted: float) -> Wish:
        """Return a demand for a part of a capacity: the last one, unless it differs by enough for a message."""
        last = self._wanted.get(key)
        wish = Wish(min(1.0, wanted), 1.0)
        return wish if last is None or differs(last, wish) else last


def _of_rate(wanted: float) -> Wish:
    return Wish(min(1.0, max(_WANTED_MIN, round(wanted, 2))), 1.0)
