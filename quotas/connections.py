"""How many connections an IP address may create a second: `connection_creation_rate` (KIP-612; kafka-quotas.md §5).

Kafka's arithmetic: each connection is recorded in sampled windows; one that would be over the quota is taken back
out of them and not let in, after a wait of (O - T) / T * W, one window's length at most. As every quota the rate
holds at each broker by itself, or with scope `gateway` at all of them together. In `observe` everybody is let in,
and the count is what would have been refused.

Of KIP-612 this is the part for IP entities. Rates of a whole broker or listener are broker configs, and so are the
counts (max.connections, max.connections.per.ip); Sluice's own is limits.connections_max.
"""

from typing import Final, NamedTuple

from quotas.footprint import ADDRESS_BYTES
from quotas.mutations import Source
from quotas.quota_view import GATEWAY
from quotas.rate import SampledRate

__all__ = ["ADDRESSES_MAX", "ConnectionRates", "Verdict"]

ADDRESSES_MAX: Final = 20_000  # remembered at a time; the one that came longest ago is forgotten first
_FORGET_AT_ONCE: Final = 2  # looked at with each connection: more than are added


class Verdict(NamedTuple):
    """What becomes of a new connection.

    Args:
        wait_ms: how long it is to be left unread and then closed; 0: it is let in.
        would_wait_ms: the same, where nothing is enforced.
    """

    wait_ms: int = 0
    would_wait_ms: int = 0


_ADMITTED: Final = Verdict()


class ConnectionRates:
    """The rates of all addresses that have a quota.

    Args:
        engine: the definitions and options in force.
    """

    __slots__ = ("_engine", "_rates", "_shape")

    def __init__(self, engine: Source) -> None:
        self._engine = engine
        self._rates: dict[tuple[str, int], tuple[SampledRate, int]] = {}  # the one that came last is last
        self._shape = (0, 0)

    def connect(self, ip: str, broker: int, now_ms: int) -> Verdict:
        """Count a connection, and decide whether it is let in.

        Args:
            ip: the client's address, as `quotas.entities.ip_name` writes it.
            broker: the broker it wants to reach.
            now_ms: the time it was accepted.
        """
        engine = self._engine
        limit = engine.definitions.connection_rate(ip)
        if limit is None:
            return _ADMITTED
        options = engine.options
        window_ms = int(options.window_seconds * 1000)
        if self._shape != (options.window_samples, window_ms):
            self._shape = (options.window_samples, window_ms)
            self._rates.clear()
        place = (ip, GATEWAY if options.scope == "gateway" else broker)
        known = self._rates.pop(place, None)
        rate = known[0] if known else SampledRate(options.window_samples, window_ms)
        self._rates[place] = (rate, now_ms)
        self._forget(now_ms)
        rate.record(1, now_ms)
        wait_ms = min(rate.throttle_ms(limit, now_ms), window_ms)
        if wait_ms <= 0:
            return _ADMITTED
        rate.record(-1, now_ms)
        return Verdict(wait_ms=wait_ms) if engine.enforcing else Verdict(would_wait_ms=wait_ms)

    @property
    def kept_bytes(self) -> int:
        """What all of them take in memory."""
        return len(self._rates) * ADDRESS_BYTES

    def __len__(self) -> int:
        return len(self._rates)

    def _forget(self, now_ms: int) -> None:
        """Drop addresses in whose windows nothing counts any more, and the oldest where they are too many."""
        samples, window_ms = self._shape
        for _ in range(_FORGET_AT_ONCE):
            place = next(iter(self._rates))
            since_ms = now_ms - self._rates[place][1]
            if since_ms <= samples * window_ms and len(self._rates) <= ADDRESSES_MAX:
                return
            del self._rates[place]
