"""A capacity in virtual time: clients of several processes, whose loans come from one lessor.

    one process                 its engine, and a lessor of its own
    a fleet                     a holder of each part of the keys, members, and workers of each; messages take some ms

The clients are those of `quota_world`; the sharing is the code that runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from quotas.definitions.classes import Terms
from quotas.engine import Engine
from quotas.options import EngineOptions
from quotas.sharing.budgets import Budgets
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import Grants, LeaseTerms, LesseeId, Report
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor, SessionLostError
from quotas.sharing.member import Member
from quotas.sharing.parts import Leasing, PartLeasing, Parts
from tests.simulation.capacity_cases import stated
from tests.simulation.quota_world import ClientOptions, Gate, World

STEP_MS: Final = 50
MB: Final = 1_000_000


@dataclass(eq=False)
class Worker:
    """A process with clients."""

    engine: Engine
    lessee: Lessee
    budgets: Budgets
    cut: bool = False

    def take(self, grants: Grants, now_ms: int) -> None:
        self.lessee.live(now_ms)
        self.budgets.take(grants, now_ms)


@dataclass(eq=False)
class Node:
    """A lessor of workers: a process's own, or a member of a fleet.

    Attributes:
        links: the member's leases of each part of the keys, and what uses them.
        cut: the parts whose holder it does not reach.
    """

    lessor: Lessor
    workers: list[Worker] = field(default_factory=list)
    member: Member | None = None
    links: list[tuple[Lessee, Leasing]] = field(default_factory=list)
    cut: set[int] = field(default_factory=set)


class CapacityWorld:
    """Processes whose clients share a capacity.

    Args:
        rate: the capacity in bytes/s.
        members: 1 without a fleet.
        workers: of each member.
        delay_ms: the longest time of a message between members.
        parts: of the keys of a fleet; the holder of each is one member, in turn.
    """

    def __init__(
        self,
        rate: float,
        classes: Mapping[str, Terms],
        *,
        members: int = 1,
        workers: int = 1,
        seed: int = 1,
        delay_ms: int = 5,
        parts: int = 1,
    ) -> None:
        self.rate = rate
        self.definitions = stated(rate, classes)
        self.random = Random(seed)
        self.delay_ms = delay_ms
        self.capacities = Capacities(lambda: self.definitions)  # of a process by itself, or the only part
        self.names: dict[int, str] = {}
        self.nodes: list[Node] = []
        self.parts = parts
        for number in range(members):
            self.nodes.append(self._node(number, members, workers))
        self.holders = [self._holder(part, members) for part in range(parts)] if members > 1 else []
        self.workers = [worker for node in self.nodes for worker in node.workers]
        self.world = World(self._gate, seed)
        self._turn: dict[str, int] = {}
        for worker in self.workers:
            self.world.at(1, partial(self._step_worker, worker))
        for node in self.nodes:
            self.world.at(2, partial(self._step_node, node))

    def _holder(self, part: int, members: int) -> Lessor:
        home = self.nodes[part % members].member
        lessee = None if home is None else home.lessee
        capacities = self.capacities
        if isinstance(lessee, Parts):
            capacities = Capacities(lambda: self.definitions, lambda: lessee.factors(self.world.now_ms))
        return Lessor(LeaseTerms(15_000, 1000, members), 99 + part, capacities, 0, 0)

    def _node(self, number: int, members: int, workers: int) -> Node:
        alone = members * workers == 1
        terms = LeaseTerms(15_000, 100, workers, never_lent=0.0 if alone else 0.005)
        if members == 1:
            node = Node(Lessor(terms, number + 1, self.capacities, 0, 0))
        else:
            name = LesseeId(f"m{number}", number + 1)
            lessees = [Lessee(LeaseTerms(15_000, 1000, members), name, 0) for _ in range(self.parts)]
            parts = Parts(lessees) if self.parts > 1 else None
            member = Member(parts or lessees[0], terms, 0)
            links = [
                member if parts is None else PartLeasing(parts, member, part) for part in range(self.parts)
            ]
            node = Node(member.workers, member=member, links=list(zip(lessees, links, strict=True)))
        for one in range(workers):
            whole = 1.0 if alone else None
            cut_off = 1.0 if alone else terms.least
            lessee = Lessee(terms, LesseeId(f"w{number}-{one}", one + 1), 0, cut_off=cut_off, first=whole)
            engine = Engine(EngineOptions(policy="schedule", scope="cluster"), self.definitions)
            budgets = Budgets(engine, lessee, 0)
            engine.lend(budgets)
            node.workers.append(Worker(engine, lessee, budgets))
        return node

    def _gate(self, options: ClientOptions) -> Gate:
        turn = self._turn.get(options.client_id, 0)
        self._turn[options.client_id] = turn + 1
        client = self.workers[turn % len(self.workers)].engine.client("", options.client_id, 1)
        self.names[len(self.world.channels)] = options.client_id
        return client.fetch if options.consumes else client.produce

    def _step_worker(self, worker: Worker) -> None:
        world = self.world
        world.at(world.now_ms + STEP_MS, partial(self._step_worker, worker))
        node = next(node for node in self.nodes if worker in node.workers)
        worker.budgets.live(world.now_ms)
        report = worker.budgets.report(world.now_ms)
        if report is None or worker.cut:
            return
        try:
            node.lessor.report(report, world.now_ms)
        except SessionLostError:
            worker.lessee.lose()

    def _step_node(self, node: Node) -> None:
        world, now_ms = self.world, self.world.now_ms
        world.at(now_ms + STEP_MS, partial(self._step_node, node))
        if node.member is not None:
            for part, (_, link) in enumerate(node.links):
                report = link.report(now_ms)
                if report is not None and part not in node.cut:
                    self._send(partial(self._hold, node, part, report))
            found = node.member.grants(now_ms)
        else:
            found = node.lessor.grants(now_ms)
        for name, grants in found:
            worker = next(worker for worker in node.workers if worker.lessee.name == name)
            if not worker.cut:
                worker.take(grants, now_ms)

    def _hold(self, node: Node, part: int, report: Report) -> None:
        holder = self.holders[part]
        try:
            holder.report(report, self.world.now_ms)
        except SessionLostError:
            node.links[part][0].lose()
        for name, grants in holder.grants(self.world.now_ms):
            to = next(
                node for node in self.nodes if node.member is not None and node.member.lessee.name == name
            )
            self._send(partial(self._grant, to, part, grants))

    def _grant(self, node: Node, part: int, grants: Grants) -> None:
        if part not in node.cut:
            node.links[part][1].take(grants, self.world.now_ms)

    def _send(self, act: Callable[[], object]) -> None:
        self.world.at(self.world.now_ms + self.random.randint(1, self.delay_ms), act)

    def add(self, client_id: str, times: int = 1, **options: object) -> None:
        """Add greedy producers of a client id, each with a connection."""
        self.world.add(ClientOptions(client_id=client_id, **{"size": 100_000, **options}), times)  # type: ignore[arg-type]

    def rate_of(self, client_id: str, from_ms: int, to_ms: int) -> float:
        """The bytes/s of a client id between two times."""
        total = sum(
            record.size
            for record in self.world.records
            if from_ms <= record.at_ms < to_ms and self.names[record.client] == client_id
        )
        return total * 1000 / (to_ms - from_ms)
