"""A capacity in a fleet with faults (`fleet_world`): engines whose classes borrow, clients that come and go.

Compared at each event: all loans in use together are at most the capacity. Compared at each request: in no 10 s more
passes than `bound` allows.
"""

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from quotas.definitions.classes import SHARED_BURST_SECONDS
from quotas.definitions.entities import BucketKey
from quotas.definitions.kinds import PRODUCE
from quotas.engine import Engine
from quotas.limiters.limiter import ALL_BROKERS, Flow
from quotas.options import EngineOptions
from quotas.sharing.budgets import Budgets, budget_key
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import Grants, Report, loan_key
from quotas.sharing.parts import Parts
from quotas.throttles.bandwidth import Throttle
from tests.simulation.capacity_cases import draw_case, stated
from tests.simulation.fleet_faults import ALL_FAULTS, SHORT_MS, Faults
from tests.simulation.fleet_processes import Holder, MemberProcess, Worker
from tests.simulation.fleet_world import MEMBERS_MAX, World

WINDOW_MS: Final = 10_000
_OPTIONS: Final = EngineOptions(policy="schedule", scope="cluster")
_CONNECTIONS_MAX: Final = 3  # of a class at each worker
_CHANGES: Final = 0.02  # of what a class wants, in each 100 ms
_ROUNDING: Final = 1e-6


class Client:
    """A connection that produces: all that it may, or so many bytes/s at most."""

    def __init__(self, throttle: Throttle, size: int) -> None:
        self.throttle = throttle
        self.flow: Flow = throttle.flow()
        self.size = size
        self.next_ms = 0
        self.saved = 0.0  # bytes that it has to send, if it does not send all that it may

    def send(self, wanted: float | None, elapsed_ms: int, now_ms: int) -> int:
        """Send what may pass now; returns the bytes.

        Args:
            wanted: bytes/s; None for all that may pass.
        """
        if wanted is not None:
            self.saved = min(self.saved + wanted * elapsed_ms / 1000, 2.0 * self.size)
        passed = 0
        while now_ms >= self.next_ms and (wanted is None or self.saved >= self.size):
            decision = self.throttle.produce(self.flow, self.size, now_ms)
            if decision.refused:
                self.throttle.leave(self.flow, now_ms)
                self.flow = self.throttle.flow()
                break
            if decision.hold_until_ms:
                self.next_ms = decision.hold_until_ms
                break
            self.next_ms = now_ms + decision.throttle_ms
            self.saved -= self.size if wanted is not None else 0.0
            passed += self.size
        return passed


class CapacityWorker(Worker):
    """A worker with an engine, and some connections of each class."""

    world: "CapacityFleet"

    def __init__(self, world: "CapacityFleet", member: MemberProcess) -> None:
        super().__init__(member)
        self.fleet = world
        self.engine = Engine(_OPTIONS, world.definitions)
        self.budgets = Budgets(self.engine, self.lessee, self.now_ms)
        self.engine.share(self.budgets)
        self.clients = {
            name: [
                Client(self.engine.client("", name, 1).produce, size)
                for _ in range(world.random.randint(0, _CONNECTIONS_MAX))
            ]
            for name, size in world.case.sizes.items()
        }
        self._used_ms = self.now_ms

    def live(self) -> None:
        """Note that the member runs."""
        self.budgets.live(self.now_ms)

    def report(self) -> Report | None:
        """Return the report that is due."""
        return self.budgets.report(self.now_ms)

    def apply(self, grants: Grants) -> bool:
        """Take the member's grants; returns False if they were ignored."""
        return self.budgets.take(grants, self.now_ms)

    def use(self) -> None:
        """Let clients pass."""
        fleet, now_ms = self.fleet, self.now_ms
        elapsed_ms, self._used_ms = now_ms - self._used_ms, now_ms
        for name, clients in self.clients.items():
            wanted = fleet.wanted[name]
            for client in clients if wanted != 0.0 else ():
                each = None if wanted is None else wanted / fleet.connections
                fleet.passes(name, self, client.send(each, elapsed_ms, now_ms))

    def spend(self) -> None:
        """Let clients pass."""
        self.use()


class CapacityFleet(World):
    """A fleet whose workers' clients share a capacity.

    Attributes:
        wanted: bytes/s that the clients of a class send all together; None: all that may pass; 0: nothing.
        largest: the largest part that passed in any 10 s, of what may at most.
        lent: the largest part of the capacity that loans in use were together.
    """

    def __init__(self, seed: int, faults: Faults, parts: int = 1) -> None:
        draw = Random(f"capacity {seed}")
        self.case = draw_case(draw)
        self.definitions = stated(self.case.rate, self.case.terms)
        self.wanted: dict[str, float | None] = {
            name: 0.3 * self.case.rate if terms.exempt else None for name, terms in self.case.terms.items()
        }
        self.largest = self.lent = 0.0
        self.totals = dict.fromkeys(self.case.terms, 0)
        self._requests: deque[tuple[int, int]] = deque()
        self._in_window = 0
        self._limiters: dict[tuple[str, Worker], int] = {}  # and when a request of each last passed
        members, workers = draw.randint(1, MEMBERS_MAX), draw.randint(1, 3)
        self.connections = max(1.0, members * workers * _CONNECTIONS_MAX / 2)
        super().__init__(seed, members, workers, faults, SHORT_MS, parts)
        keys = tuple(
            budget_key((PRODUCE.key, BucketKey(None, name), ALL_BROKERS)) for name in self.case.terms
        )
        self.compared = (*keys, "not named")
        self.loans = tuple(loan_key(key) for key in keys)

    def worker(self, member: MemberProcess) -> Worker:
        """Start a worker."""
        worker = CapacityWorker(self, member)
        worker.tick()
        return worker

    def divider(self, holder: Holder) -> Callable[[str], float]:
        """Return what divides the capacity at a new holder."""
        if len(self.seats) == 1:
            return Capacities(lambda: self.definitions)

        def told() -> Mapping[str, float]:
            lessee = None if holder.home is None else holder.home.member.lessee
            return lessee.factors(holder.now_ms) if isinstance(lessee, Parts) else {}

        return Capacities(lambda: self.definitions, told)

    def passes(self, name: str, worker: Worker, size: int) -> None:
        """Requests of a class pass at a worker."""
        if not size:
            return
        self.totals[name] += size
        self._limiters[name, worker] = self.now_ms
        self._requests.append((self.now_ms, size))
        self._in_window += size
        while self._requests[0][0] <= self.now_ms - WINDOW_MS:
            self._in_window -= self._requests.popleft()[1]
        if self._in_window > self.largest * self.case.rate * WINDOW_MS / 1000:
            self.largest = max(self.largest, self._in_window / self.bound())

    def bound(self) -> float:
        """Return the most bytes that may pass in 10 s: 1.02 of the capacity, a burst, one request of each limiter."""
        rate, begin_ms = self.case.rate, self.now_ms - WINDOW_MS
        requests = sum(self.case.sizes[name] for (name, _), ms in self._limiters.items() if ms > begin_ms)
        return 1.02 * rate * WINDOW_MS / 1000 + rate * SHARED_BURST_SECONDS + requests

    def check(self) -> None:
        """Compare what may be used with the bounds."""
        super().check()
        loans = 0.0
        for worker in (*self.orphans, *(one for member in self.members for one in member.workers)):
            if worker.running:
                loans += sum(worker.lessee.share(key, worker.now_ms) for key in self.loans)
        self.lent = max(self.lent, loans)
        assert loans <= 1 + _ROUNDING, f"{self.now_ms} ms: {loans:.4f} of the capacity are lent"

    def chaos(self) -> None:
        """Let things go wrong, and clients come and go."""
        draw = self.random
        for name, terms in self.case.terms.items():
            if draw.random() < _CHANGES:
                some = 0.5 * self.case.rate * draw.random()
                self.wanted[name] = draw.choice((0.0, some) if terms.exempt else (None, None, 0.0, some))
        super().chaos()


def chaotic(seed: int, faults: Faults = ALL_FAULTS, seconds: int = 20, parts: int = 1) -> CapacityFleet:
    """Run a fleet with faults; an AssertionError names what was exceeded."""
    world = CapacityFleet(seed, faults, parts)
    world.chaos()
    world.run(seconds * 1000)
    return world
