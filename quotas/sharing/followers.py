"""The shares of followers' quotas (KIP-73): a follower's leaders may be behind several processes.

A follower's rate is one key for all brokers. Its demand is computed from the bytes that arrived (`follower_demand`),
since a follower always asks for more than there is.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from quotas.replication.replication_quotas import ReplicationQuotas
from quotas.sharing.follower_demand import Demands
from quotas.sharing.lease_values import Wish
from quotas.sharing.lessee import Lessee

__all__ = ["FollowerShares", "follower_key"]

FOLLOWERS_MAX: Final = 256  # with a demand at a time; others have the default share
_WANTED_MIN: Final = 0.01
_NEVER_MS: Final = 1 << 62


def follower_key(broker: int) -> str:
    """Return the key of a follower's quota.

    >>> follower_key(3)
    'follower.replication.throttled.rate 3'
    """
    return f"follower.replication.throttled.rate {broker}"


class FollowerShares:
    """This process's shares of followers' quotas.

    Args:
        quotas: the quotas whose followers' limits are set.
        lessee: the source of shares.
        changed: called when a limit has changed, so that waiting requests are decided again.
    """

    def __init__(self, quotas: ReplicationQuotas, lessee: Lessee, changed: Callable[[], None]) -> None:
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
        until_ms = self._lessee.until_ms
        return until_ms if until_ms > now_ms else _NEVER_MS

    def wishes(self, now_ms: int) -> dict[str, Wish]:
        """Return the demands; a follower that receives nothing has none."""
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
