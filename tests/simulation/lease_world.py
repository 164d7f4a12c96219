"""Leaders behind different processes, one follower, and the leases of its quota, on a virtual clock.

Each process has real `ReplicationQuotas`, `LeasePeer` and `Demands`, and one partition that the follower fetches
there; a Fetch takes some milliseconds and brings whole batches. Messages to the holder take time and may be lost, and
the holder may be away. No bytes and no sockets.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from quotas.replication.claims import Claim
from quotas.replication.replication_quotas import BrokerLimits, Claims, ReplicationOptions, ReplicationQuotas
from quotas.replication.throttled_replicas import ThrottledReplicas, parse_replicas
from quotas.sharing.book import LeaseBook
from quotas.sharing.demand import Demands, Followed
from quotas.sharing.peer import LeasePeer
from quotas.sharing.terms import LeaseTerms

FOLLOWER: Final = 9
TOPIC: Final = bytes(16)
TICK_MS: Final = 100
MAX_BYTES: Final = 1_048_576  # replica.fetch.max.bytes


@dataclass(slots=True)
class Sidecar:
    """One process.

    Attributes:
        supply: bytes that the follower is behind at this leader.
        pace: bytes/s that the leader can send.
        online: whether it reaches the holder.
    """

    name: str
    quotas: ReplicationQuotas
    peer: LeasePeer
    demands: Demands
    claim: Claim
    batch: int
    supply: int = 0
    pace: float = 1e9
    online: bool = True


class LeaseWorld:
    """The world.

    Attributes:
        loss: the part of messages to and from the holder that is lost.
        book: the holder's; None while it is away.
        arrivals: what the follower got: when, how much, through whom.
    """

    def __init__(self, quota: float, names: tuple[str, ...], batch: int, seed: int = 1) -> None:
        self.quota = quota
        self.names = names
        self.batch = batch
        self.dice = random.Random(seed)
        self.terms = LeaseTerms(names, 5000)
        self.loss = 0.0
        self.now_ms = 0
        self.arrivals: list[tuple[int, int, str]] = []
        self.sidecars: dict[str, Sidecar] = {}
        self._runs = count(1)
        self._order = count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self.book: LeaseBook | None = None
        self.start_holder()
        for leader, name in enumerate(self.names, 1):
            self.sidecars[name] = self._sidecar(name, leader)
            self._at(self.dice.randrange(TICK_MS), self._ticks(self.sidecars[name]))
            self._at(leader, self._fetches(self.sidecars[name]))

    def start_holder(self) -> None:
        self.book = LeaseBook(self.terms, next(self._runs))

    def run(self, milliseconds: int) -> None:
        """Let time pass."""
        until = self.now_ms + milliseconds
        while self._events and self._events[0][0] <= until:
            self.now_ms, _, work = heapq.heappop(self._events)
            work()
        self.now_ms = until

    def largest(self, window_ms: int, since_ms: int = 0) -> int:
        """Give the most bytes that came in any window of this length."""
        most = total = first = 0
        arrivals = [(at, size) for at, size, _ in self.arrivals if at >= since_ms]
        for at, size in arrivals:
            total += size
            while arrivals[first][0] <= at - window_ms:
                total -= arrivals[first][1]
                first += 1
            most = max(most, total)
        return most

    def rate(self, since_ms: int, until_ms: int) -> float:
        """Give bytes/s between two times."""
        return (
            sum(size for at, size, _ in self.arrivals if since_ms <= at < until_ms)
            * 1000
            / (until_ms - since_ms)
        )

    def _sidecar(self, name: str, leader: int) -> Sidecar:
        quotas = ReplicationQuotas(ReplicationOptions())
        quotas.shares = peer = LeasePeer(self.terms, name, next(self._runs), self.now_ms)
        quotas.limit(BrokerLimits(), BrokerLimits(default=self.quota))
        every = {"t": parse_replicas("*")[0]}
        quotas.throttle(ThrottledReplicas(followers=every))
        quotas.name_topics({TOPIC: "t"})
        claim = Claims(quotas, leader, FOLLOWER).claim(TOPIC, leader, self.now_ms)
        assert claim is not None, "it is listed"
        claim.least = self.batch
        return Sidecar(name, quotas, peer, Demands(), claim, self.batch)

    def _at(self, in_ms: int, work: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ms + max(1, in_ms), next(self._order), work))

    def _fetches(self, sidecar: Sidecar) -> Callable[[], None]:
        """One Fetch after another, as a follower's thread sends them."""

        def fetch() -> None:
            now = self.now_ms
            if not sidecar.supply:
                self._at(50, fetch)
                return
            granted = sidecar.quotas.begin_sharing(1).grant(sidecar.claim, MAX_BYTES, now)
            if not granted:
                self._at(min(500, max(5, sidecar.quotas.ready_in_ms([sidecar.claim], now))), fetch)
                return
            size = min(granted, sidecar.supply) // self.batch * self.batch
            takes_ms = self.dice.randint(2, 30) + int(size * 1000 / sidecar.pace)

            def answered() -> None:
                sidecar.supply -= size
                sidecar.claim.settle(size, self.now_ms)
                self.arrivals.append((self.now_ms, size, sidecar.name))
                fetch()

            self._at(takes_ms, answered)

        return fetch

    def _ticks(self, sidecar: Sidecar) -> Callable[[], None]:
        """As `proxy.leases.client` does: look, ask, set the limits."""

        def tick() -> None:
            now, quotas = self.now_ms, sidecar.quotas
            (rate,) = [rate for side, _, rate in quotas.rates() if side == "follower"]
            wishes = sidecar.demands.wishes([Followed(FOLLOWER, self.quota, self.quota, rate)], now)
            if sidecar.peer.due(wishes, now):
                request = sidecar.peer.ask(wishes, now)
                there_ms, back_ms = self.dice.randint(1, 40), self.dice.randint(1, 40)

                def heard() -> None:
                    if self.book is None or not sidecar.online or self.dice.random() < self.loss:
                        return
                    answer = self.book.answer(request, lambda _: self.quota, self.now_ms)

                    def taken() -> None:
                        sidecar.peer.take(answer, self.now_ms)
                        quotas.share(self.now_ms)

                    if self.dice.random() >= self.loss:
                        self._at(back_ms, taken)

                self._at(there_ms, heard)
            quotas.share(now)
            self._at(TICK_MS, tick)

        return tick
