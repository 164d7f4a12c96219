"""Leaders behind different processes, one follower, and the shares of its quota, on a virtual clock.

Each process has real `ReplicationQuotas`, `ReplicationShares` and a `Lessee`, and one partition that the follower
fetches there; a Fetch takes some milliseconds and brings whole batches. Messages to and from the holder take time and
arrive in order, connections break, and the holder may be away. No bytes and no sockets; `fleet_world` has the faults
of the leases themselves.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from quotas.definitions.kinds import FOLLOWER_RATE
from quotas.replication.replication_quotas import (
    BrokerLimits,
    Claim,
    Claims,
    ReplicationOptions,
    ReplicationQuotas,
    ThrottledReplicas,
    parse_replicas,
)
from quotas.sharing.lease_values import Grants, LeaseTerms, LesseeId, Report
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import LeaseRefusedError, Lessor, SessionLostError
from quotas.sharing.replication import ReplicationShares, replication_key
from tests.simulation.clock import Clock, largest_window

FOLLOWER: Final = 9
KEY: Final = replication_key(FOLLOWER_RATE, FOLLOWER)
TOPIC: Final = bytes(16)
TICK_MS: Final = 100
LEASE_MS: Final = 15_000
MAX_BYTES: Final = 1_048_576  # replica.fetch.max.bytes


@dataclass(slots=True)
class Sidecar:
    """One process.

    Attributes:
        supply: bytes that the follower is behind at this leader.
        pace: bytes/s that the leader can send.
        online: whether it reaches the holder.
        connection: counts connections; what was sent on an earlier one is lost.
        arrival_ms: when the last message to or from the holder arrives.
    """

    name: str
    quotas: ReplicationQuotas
    lessee: Lessee
    shares: ReplicationShares
    claim: Claim
    batch: int
    supply: int = 0
    pace: float = 1e9
    online: bool = True
    connection: int = 0
    arrival_ms: int = 0


class FollowerWorld(Clock):
    """The world.

    Attributes:
        breaks: the part of messages at which a connection breaks.
        holder: None while it is away.
        arrivals: what the follower got: when, how much, through whom.
    """

    def __init__(self, quota: float, names: tuple[str, ...], batch: int, seed: int = 1) -> None:
        super().__init__()
        self.quota = quota
        self.batch = batch
        self.dice = random.Random(seed)
        self.terms = LeaseTerms(LEASE_MS, 1000, len(names))
        self.breaks = 0.0
        self.arrivals: list[tuple[int, int, str]] = []
        self.sidecars: dict[str, Sidecar] = {}
        self._runs = count(1)
        self.holder: Lessor | None = None
        self.start_holder()
        for leader, name in enumerate(names, 1):
            self.sidecars[name] = self._sidecar(name, leader)
            self._in(self.dice.randrange(TICK_MS), self._ticks(self.sidecars[name]))
            self._in(leader, self._fetches(self.sidecars[name]))
        self._in(TICK_MS, self._holder_ticks)

    def start_holder(self) -> None:
        """Start the holder, or start it again: it knows no member."""
        for sidecar in self.sidecars.values():
            self._break(sidecar)
        self.holder = Lessor(self.terms, next(self._runs), lambda _: 1.0, self.now_ms, LEASE_MS)

    def run_for(self, milliseconds: int) -> None:
        """Let time pass."""
        self.run(self.now_ms + milliseconds)

    def share(self, name: str) -> float:
        """The share of a process now."""
        return self.sidecars[name].lessee.share(KEY, self.now_ms)

    @property
    def cut_off(self) -> int:
        """How many processes are cut off now."""
        return sum(sidecar.lessee.cut_off(self.now_ms) for sidecar in self.sidecars.values())

    def largest(self, window_ms: int) -> int:
        """The most bytes that came in any window of this length."""
        return largest_window([(at, size) for at, size, _ in self.arrivals], window_ms)

    def rate(self, since_ms: int, until_ms: int, name: str | None = None) -> float:
        """The bytes/s between two times, through one process or all."""
        total = sum(
            size for at, size, via in self.arrivals if since_ms <= at < until_ms and name in (None, via)
        )
        return total * 1000 / (until_ms - since_ms)

    def _sidecar(self, name: str, leader: int) -> Sidecar:
        quotas = ReplicationQuotas(ReplicationOptions())
        lessee = Lessee(self.terms, LesseeId(name, next(self._runs)), self.now_ms)
        shares = ReplicationShares(quotas, lessee, lambda: None)
        quotas.limit(BrokerLimits(), BrokerLimits(default=self.quota))
        every = {"t": parse_replicas("*")[0]}
        quotas.throttle(ThrottledReplicas(followers=every))
        quotas.name_topics({TOPIC: "t"})
        claim = Claims(quotas, leader, FOLLOWER).claim(TOPIC, leader, self.now_ms)
        assert claim is not None, "it is listed"
        claim.least = self.batch
        return Sidecar(name, quotas, lessee, shares, claim, self.batch)

    def _in(self, in_ms: int, work: Callable[[], None]) -> None:
        self.at(self.now_ms + max(1, in_ms), work)

    def _fetches(self, sidecar: Sidecar) -> Callable[[], None]:
        """One Fetch after another, as a follower's thread sends them."""

        def fetch() -> None:
            now_ms = self.now_ms
            if not sidecar.supply:
                self._in(50, fetch)
                return
            granted = sidecar.quotas.begin_sharing(1).grant(sidecar.claim, MAX_BYTES, now_ms)
            if not granted:
                self._in(min(500, max(5, sidecar.quotas.ready_in_ms([sidecar.claim], now_ms))), fetch)
                return
            size = min(granted, sidecar.supply) // self.batch * self.batch
            takes_ms = self.dice.randint(2, 30) + int(size * 1000 / sidecar.pace)

            def responded() -> None:
                sidecar.supply -= size
                sidecar.claim.settle(size, self.now_ms)
                self.arrivals.append((self.now_ms, size, sidecar.name))
                fetch()

            self._in(takes_ms, responded)

        return fetch

    def _ticks(self, sidecar: Sidecar) -> Callable[[], None]:
        """As a member's connection does: note the end of the lease, report what is due."""

        def tick() -> None:
            self._report(sidecar)
            self._in(TICK_MS, tick)

        return tick

    def _report(self, sidecar: Sidecar) -> None:
        now_ms, lessee = self.now_ms, sidecar.lessee
        if lessee.expire(now_ms):
            sidecar.shares.apply(now_ms)
        lessee.wish(sidecar.shares.wishes(now_ms))
        if lessee.due(now_ms):
            report = lessee.report(now_ms)
            self._transmit(sidecar, lambda: self._received(sidecar, report))

    def _received(self, sidecar: Sidecar, report: Report) -> None:
        if self.holder is None:
            self._break(sidecar)
            return
        try:
            self.holder.report(report, self.now_ms)
        except (SessionLostError, LeaseRefusedError):
            self._transmit(sidecar, sidecar.lessee.lose)
        self._send_grants()

    def _holder_ticks(self) -> None:
        self._send_grants()
        self._in(TICK_MS, self._holder_ticks)

    def _send_grants(self) -> None:
        if self.holder is None:
            return
        for lessee, grants in self.holder.grants(self.now_ms):
            self._send(self.sidecars[lessee.name], grants)

    def _send(self, sidecar: Sidecar, grants: Grants) -> None:
        def arrive() -> None:
            if sidecar.lessee.take(grants, self.now_ms):
                sidecar.shares.apply(self.now_ms)
                sidecar.lessee.confirm()
                self._report(sidecar)

        self._transmit(sidecar, arrive)

    def _transmit(self, sidecar: Sidecar, act: Callable[[], None]) -> None:
        """Deliver a message after a while, unless the connection breaks meanwhile."""
        if not sidecar.online or self.dice.random() < self.breaks:
            self._break(sidecar)
            return
        connection = sidecar.connection
        sidecar.arrival_ms = max(sidecar.arrival_ms, self.now_ms + self.dice.randint(1, 40))

        def arrive() -> None:
            if sidecar.connection == connection and sidecar.online:
                act()

        self._in(sidecar.arrival_ms - self.now_ms, arrive)

    def _break(self, sidecar: Sidecar) -> None:
        sidecar.connection += 1
        sidecar.lessee.lose()
