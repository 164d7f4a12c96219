"""The shares of followers' quotas (KIP-73): a follower's leaders may be behind several processes.

A follower's rate is one key for all brokers. Its demand is computed from the bytes that arrived (`Demands`),
since a follower always asks for more than there is.
"""

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

from quotas.replication.replication_quotas import Rate, ReplicationQuotas
from quotas.sharing.lease_values import Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.parts import Parts

# ----------------------------------------------------------------------------------------------------
# The demand of this process for each follower's quota, from the recent rate and whether requests were held back.
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
    """The recent bytes of one follower, as samples."""

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
    """Samples the rates at which followers receive bytes, and computes how much of their quotas they could use."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def wanted(self, follower: int, quota: float, rate: Rate, now_ms: int) -> float:
        """Return the bytes/s that a follower could receive through this process, at most its quota.

        Args:
            quota: the whole quota in bytes/s; `rate.limit` is this process's share of it.
        """
        seen = self._seen.get(follower)
        if seen is None:
            seen = self._seen[follower] = _Seen(now_ms, rate.total)
        came, lately = seen.per_second(rate.total, now_ms)
        peak = seen.peak(came, now_ms)
        limit = quota if rate.limit is None else rate.limit
        held = now_ms - rate.held_ms < _HELD_MS
        if held and (came >= limit * _USED or not came):
            seen.insists_until_ms = now_ms + _INSISTS_MS
        if held and now_ms < seen.insists_until_ms:
            return quota
        return min(quota, (peak if held else lately) * _HEADROOM)


FOLLOWERS_MAX: Final = 256  # with a demand at a time; others have the default share
_WANTED_MIN: Final = 0.01
_NEVER_MS: Final = 1 << 62


def follower_key(broker: int) -> str:
    """Return the key under which shares of a follower's quota are leased.

    >>> follower_key(3)
    'follower.replication.throttled.rate 3'
    """
    return f"follower.replication.throttled.rate {broker}"


class FollowerShares:
    """Sets this process's shares of followers' replication quotas (KIP-73), and computes its demands for them.

    Args:
        quotas: the replication quotas, whose follower limits are set.
        lessee: the shares that this process has leased.
        changed: called when a limit has changed, so that waiting requests are decided again.
    """

    def __init__(
        self, quotas: ReplicationQuotas, lessee: Lessee | Parts, changed: Callable[[], None]
    ) -> None:
        self._quotas = quotas
        self._lessee = lessee
        self._changed = changed
        self._demands = Demands()
        quotas.shares = self

    def share(self, follower: int, now_ms: int) -> float:
        """Return this process's share of a follower's quota, 0 to 1."""
        return self._lessee.share(follower_key(follower), now_ms)

    def changes_ms(self, now_ms: int) -> int:
        """Return the next time, in ms, at which a share changes without a grant: the end of the lease."""
        until_ms = self._lessee.until_ms if self._lessee.leased(now_ms) else -1
        return until_ms if until_ms > now_ms else _NEVER_MS

    def wishes(self, now_ms: int) -> dict[str, Wish]:
        """Return the demands for followers' quotas, by `follower_key`; a follower that receives nothing has none."""
        limits, found = self._quotas.follower_limits, {}
        for side, broker, rate in self._quotas.rates():
            quota = limits.limit(broker) if side == "follower" else None
            if quota is None or not 0 < quota < inf:
                continue
            wanted = self._demands.wanted(broker, quota, rate, now_ms) / quota
            if wanted:
                found[follower_key(broker)] = Wish(max(_WANTED_MIN, round(wanted, 2)), 1.0)
        if len(found) > FOLLOWERS_MAX:
            found = dict(sorted(found.items(), key=lambda item: -item[1].wanted)[:FOLLOWERS_MAX])
        return found

    def apply(self, now_ms: int) -> None:
        """Set the followers' limits by the shares in force."""
        if self._quotas.share(now_ms):
            self._changed()
