"""Several engines with one budget: a holder, members and workers in the world of `quota_world`, without faults."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from quotas.engine import Engine
from quotas.options import Policy
from quotas.sharing.budgets import Budgets
from quotas.sharing.lease_values import LeaseTerms, LesseeId, Report
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.member import Member
from tests.simulation.quota_world import ClientOptions, Gate, World, one_client

MEMBERS_MAX = 4
BEGIN_MS = 2000  # by then all processes have their default shares


@dataclass
class WorkerEngine:
    """One worker's engine and its shares."""

    name: LesseeId
    engine: Engine
    budgets: Budgets
    killed: bool = False


class Fleet:
    """Members and workers, and the clients that are spread over them.

    Args:
        limit: of all processes together, in bytes/s.
        connections: of each worker; its length is members times workers.
    """

    def __init__(
        self,
        limit: float,
        connections: list[int],
        options: ClientOptions,
        *,
        members: int = 2,
        policy: Policy = "schedule",
        seed: int = 1,
    ) -> None:
        self.limit = limit
        self.policy: Policy = policy
        self.world = World(self.gate, seed)
        self.holder = Lessor(LeaseTerms(15_000, 1000, MEMBERS_MAX), 1, lambda _: 1.0, 0, 0)
        each = len(connections) // members
        self.terms = LeaseTerms(500, 100, each)
        self.members: list[tuple[Member, list[WorkerEngine]]] = []
        self.workers: list[WorkerEngine] = []
        self._gates: list[WorkerEngine] = []
        for number in range(members):
            lessee = Lessee(LeaseTerms(15_000, 1000, MEMBERS_MAX), LesseeId(f"m{number}", 1), 0)
            member = Member(lessee, self.terms, 0)
            workers = [self.worker(f"{number}.{index}") for index in range(each)]
            self.members.append((member, workers))
            self.workers += workers
            self.every(50, partial(self.drive, member, workers))
        for worker, count in zip(self.workers, connections, strict=True):
            for index in range(count):
                self._gates.append(worker)
                self.world.add(replace(options, start_ms=BEGIN_MS + 7 * index))

    def worker(self, name: str) -> WorkerEngine:
        """Start a worker now."""
        engine = one_client(self.limit, policy=self.policy)
        identity, now_ms = LesseeId(name, 1), self.world.now_ms
        budgets = Budgets(engine, Lessee(self.terms, identity, now_ms, 1e-9, 1e-9), now_ms)
        engine.share(budgets)
        return WorkerEngine(identity, engine, budgets)

    def gate(self, options: ClientOptions) -> Gate:
        """Return the throttle of the next connection."""
        client = self._gates[len(self.world.channels)].engine.client("", options.client_id, 1)
        return client.fetch if options.consumes else client.produce

    def every(self, ms: int, act: Callable[[], None]) -> None:
        """Do something again and again."""

        def step() -> None:
            act()
            self.world.timer(self.world.now_ms + ms, step)

        self.world.at(0, step)

    def drive(self, member: Member, workers: list[WorkerEngine]) -> None:
        """Carry the messages of one member; each takes a moment."""
        world, now_ms = self.world, self.world.now_ms
        for worker in workers:
            if not worker.killed and (report := worker.budgets.report(now_ms)) is not None:
                member.workers.report(report, now_ms)
        by_name = {worker.name: worker for worker in workers}
        for name, grants in member.grants(now_ms):
            worker = by_name[name]
            if not worker.killed:
                world.at(now_ms + 1, partial(worker.budgets.take, grants, now_ms + 1))
        upward = member.report(now_ms)
        if upward is not None:
            world.at(now_ms + world.latency_ms(), partial(self.reported, upward))

    def reported(self, report: Report) -> None:
        """A report has arrived at the holder."""
        world = self.world
        self.holder.report(report, world.now_ms)
        for name, grants in self.holder.grants(world.now_ms):
            member = next(member for member, _ in self.members if member.lessee.name == name)
            arrival_ms = world.now_ms + world.latency_ms()
            world.at(arrival_ms, partial(member.take, grants, arrival_ms))
