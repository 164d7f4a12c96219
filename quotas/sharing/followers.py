"""The shares of followers' quotas (KIP-73): a follower's leaders may be behind several processes.

A follower's rate is one key for all brokers. Its demand is computed from the bytes that arrived (`demand`), since a
follower always asks for more than there is.
"""

from collections.abc import Callable, Iterator
from typing import Final

from quotas.replication.replication_quotas import ReplicationQuotas
from quotas.sharing.demand import Demands, Followed
from quotas.sharing.lease_values import Wish
from quotas.sharing.lessee import Lessee

__all__ = ["FollowerShares", "follower_key"]

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

    def rate(self, follower: int, own: float | None, known: bool, now_ms: int) -> float | None:  # noqa: ARG002 - see Shares
        """Return this process's limit in bytes/s for a follower's quota."""
        return None if own is None else own * self._lessee.share(follower_key(follower), now_ms)

    def changes_ms(self, now_ms: int) -> int:
        """Return the next time at which a share changes by itself."""
        until_ms = self._lessee.until_ms
        return until_ms if until_ms > now_ms else _NEVER_MS

    def wishes(self, now_ms: int) -> dict[str, Wish]:
        """Return the demands of all followers; one that receives nothing has none."""
        found = {}
        for wish in self._demands.wishes(self._followed(), now_ms):
            if wish.wanted and 0 < wish.quota < float("inf"):
                wanted = max(0.01, round(min(1.0, wish.wanted / wish.quota), 2))
                found[follower_key(wish.follower)] = Wish(wanted, 1.0)
        return found

    def apply(self, now_ms: int) -> None:
        """Set the followers' limits by the shares in force."""
        if self._quotas.share(now_ms):
            self._changed()

    def _followed(self) -> Iterator[Followed]:
        limits = self._quotas.follower_limits
        for side, broker, rate in self._quotas.rates():
            if side == "follower":
                quota = limits.limit(broker)
                yield Followed(broker, quota, quota, rate)
