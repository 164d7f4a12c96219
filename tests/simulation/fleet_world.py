"""A fleet in virtual time: a holder, members, and their workers, whose messages are delayed, lost, and repeated.

Processes are suspended, killed and started again, connections break, the holder moves. Whenever a share rises, the
shares that all running processes may use are added up and compared with the bound: the budget, and one cut-off share
for each member that is cut off (fleet.md, "Budgets").
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from quotas.limiters.schedule import ScheduledThrottle
from quotas.options import EngineOptions
from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId, Report, Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import LeaseRefusedError, Lessor, SessionLostError
from quotas.sharing.member import Member

LEASE_MS: Final = 15_000  # a holder's tenure is a third of it
WORKER_TERMS_LEASE_MS: Final = 500
TICK_MS: Final = 100
MEMBERS_MAX: Final = 4
KEYS: Final = ("a", "b", "c")
QUOTA: Final = 4_000_000.0  # bytes/s, with a burst of one second
REQUEST: Final = 100_000
NOTHING: Final = 1e-9
_ROUNDING: Final = 1e-9


class Ledger:
    """What all processes together let pass, compared with the bound in bytes at each request.

    In any interval T at most 1.01 Q T + Q burst + L R, with L processes in it and requests of R bytes. With P(t) for
    what has passed until t, less 1.01 Q t, less R for each process that began: P(end) - P(begin) is at most Q burst,
    and R for each process that there was at the beginning.
    """

    def __init__(self) -> None:
        self.processes = 0
        self.total = 0
        self._potential = 0.0  # P(t), but for the time
        self._lowest = 0.0  # the smallest P(t) + R processes(t) so far
        self.worst = 0.0  # the largest part of Q burst that was used

    def begins(self) -> None:
        """A process begins."""
        self._potential -= REQUEST
        self.processes += 1

    def ends(self) -> None:
        """A process ends."""
        self.processes -= 1

    def passes(self, size: int, now_ms: int) -> None:
        """A request passes; all of it counts at once."""
        before = self._potential - 1.01 * QUOTA * now_ms / 1000
        self._lowest = min(self._lowest, before + REQUEST * self.processes)
        self._potential += size
        self.total += size
        self.worst = max(self.worst, (before + size - self._lowest) / QUOTA)


@dataclass
class Faults:
    """What goes wrong, as probabilities for each tick or message; all 0: nothing does."""

    delay_ms_max: int = 20
    breaks: float = 0.0  # of a connection, for each message
    repeats: float = 0.0  # of a message
    pauses: float = 0.0  # of a process, for each tick
    pause_ms_max: int = 30_000
    kills: float = 0.0
    moves: float = 0.0  # of the holder
    cuts: float = 0.0  # of a member from the holder, for each tick
    cut_ms_max: int = 40_000
    drift: float = 0.0  # of each process's clock, at most half of what the slack covers


# With leases of SHORT_MS, so that a short run sees many of them end.
SHORT_MS: Final = 3000
ALL_FAULTS: Final = Faults(
    delay_ms_max=100,
    breaks=0.01,
    repeats=0.02,
    pauses=0.004,
    pause_ms_max=2 * SHORT_MS,
    kills=0.003,
    moves=0.006,
    cuts=0.006,
    cut_ms_max=3 * SHORT_MS,
    drift=0.005,
)
# Members are suspended for less than a lease, and never separated.
NO_CUT_OFF: Final = replace(ALL_FAULTS, cuts=0.0, pause_ms_max=SHORT_MS // 2)


def chaotic(seed: int, faults: Faults = ALL_FAULTS, seconds: int = 20) -> "World":
    """Run a fleet with faults; an AssertionError names the time and the key."""
    draw = Random(seed)
    world = World(seed, draw.randint(1, MEMBERS_MAX), draw.randint(1, 3), faults, SHORT_MS)
    world.chaos()
    world.run(seconds * 1000)
    return world


@dataclass(eq=False)
class Process:
    """What all processes have: a clock, and times when they do not run."""

    world: "World"
    rate: float = 1.0
    offset_ms: int = 0
    paused_until_ms: int = -1
    alive: bool = True
    missed: list[Callable[[], None]] = field(default_factory=list)

    @property
    def now_ms(self) -> int:
        """The time by this process's own clock."""
        return self.offset_ms + int(self.world.now_ms * self.rate)

    @property
    def running(self) -> bool:
        """Whether it runs now."""
        return self.alive and self.world.now_ms >= self.paused_until_ms

    def run(self, act: Callable[[], None]) -> None:
        """Act now, or when it runs again."""
        if not self.alive:
            return
        if self.running:
            act()
        else:
            self.world.at(self.paused_until_ms, lambda: self.resume(act))

    def resume(self, act: Callable[[], None]) -> None:
        """Act at the end of a pause."""
        self.run(act)
        self.world.check()


class Holder(Process):
    """The member that leases shares; only its part as the holder is modelled."""

    def __init__(self, world: "World", generation: int, learning_ms: int) -> None:
        super().__init__(world, *world.clock())
        self.generation = generation
        terms = world.terms
        self.lessor = Lessor(terms, world.random.getrandbits(32), lambda _: 1.0, self.now_ms, learning_ms)
        self.learning_until_ms = self.now_ms + learning_ms
        self.confirmed_ms = self.now_ms
        self.lessor.confirm(self.now_ms)
        self.tick()

    @property
    def settled(self) -> bool:
        """Whether it knows all members."""
        return self.now_ms >= self.learning_until_ms

    def tick(self) -> None:
        """Confirm the tenure, and send what is due."""
        if not self.alive:
            return
        self.world.at(self.world.now_ms + TICK_MS, lambda: self.run(self.tick))
        if self.generation == self.world.generation:  # Kafka knows no later holder
            self.confirmed_ms = self.now_ms
            self.lessor.confirm(self.now_ms)
        elif self.now_ms >= self.confirmed_ms + self.world.terms.lease_ms // 3:
            self.alive = False
            return
        self.send()

    def receive(self, report: Report, answer: Callable[[Grants | None], None]) -> None:
        """Take a report."""
        if self.now_ms >= self.confirmed_ms + self.world.terms.lease_ms // 3:
            self.alive = self.generation == self.world.generation
            if not self.alive:
                return
        self.world.answers[self, report.lessee] = answer
        try:
            self.lessor.report(report, self.now_ms)
        except (SessionLostError, LeaseRefusedError):
            answer(None)
        self.send()

    def send(self) -> None:
        """Send all grants that are due."""
        for lessee, grants in self.lessor.grants(self.now_ms):
            self.world.answers[self, lessee](grants)


class Worker(Process):
    """A process that uses shares."""

    def __init__(self, member: "MemberProcess") -> None:
        super().__init__(member.world, *member.world.clock())
        self.member = member
        self.name = LesseeId(f"worker-{member.world.number()}", 1)
        self.lessee = Lessee(member.worker_terms, self.name, self.now_ms, cut_off=NOTHING, first=NOTHING)
        self.limiter = ScheduledThrottle(QUOTA, EngineOptions(policy="schedule"), self.now_ms)
        self.limiter.begin_empty(self.now_ms, self.now_ms)
        self.lent = 1.0
        self.world.ledger.begins()
        self.tick()

    def share(self, key: str) -> float:
        """The share that it may use."""
        return self.lessee.share(key, self.now_ms) if self.running else 0.0

    def tick(self) -> None:
        """Report to the member."""
        if not self.alive:
            return
        self.world.at(self.world.now_ms + TICK_MS // 2, lambda: self.run(self.tick))
        self.use()
        self.lessee.expire(self.now_ms)
        self.lessee.wish(self.world.demand.get(self.name, {}))
        if self.lessee.due(self.now_ms):
            report = self.lessee.report(self.now_ms)
            self.world.send(self.member, lambda: self.member.receive(report, self))

    def end(self) -> None:
        """Kill it."""
        self.alive = False
        self.world.ledger.ends()

    def take(self, grants: Grants | None) -> None:
        """Take the member's grants."""
        if grants is None:
            self.lessee.lose()
        elif self.lessee.take(grants, self.now_ms):
            self.lessee.confirm()
            self.use()
            self.world.check()

    def use(self) -> None:
        """Let pass as many requests as the quota of key "a" has room for."""
        now_ms, limiter = self.now_ms, self.limiter
        share = self.lessee.share("a", now_ms)
        if share != self.lent:
            self.lent = share
            limiter.lend(share, now_ms)
        if "a" not in self.world.demand.get(self.name, {}):
            return  # it saves for a burst
        while limiter.credit_bytes(now_ms) >= 0:
            limiter.delivered(REQUEST, now_ms)
            self.world.ledger.passes(REQUEST, self.world.now_ms)


class MemberProcess(Process):
    """A member's control process."""

    def __init__(self, world: "World", workers: int) -> None:
        super().__init__(world, *world.clock())
        self.cut_until_ms = -1
        self.was_cut_off = False
        name = LesseeId(f"member-{world.number()}", world.random.getrandbits(32))
        self.worker_terms = LeaseTerms(WORKER_TERMS_LEASE_MS, 100, max(workers, 1))
        self.member = Member(Lessee(world.terms, name, self.now_ms), self.worker_terms, self.now_ms)
        self.connection = 0  # counts connections: what was sent on an earlier one is lost
        self.holder: Holder | None = None
        self.workers = [Worker(self) for _ in range(workers)]
        self.tick()

    def over(self) -> bool:
        """Whether it was cut off, and the others have not come down since."""
        lessee = self.member.lessee
        if lessee.cut_off(self.now_ms):
            self.was_cut_off = True
        elif self.was_cut_off and self.holder is self.world.holder and lessee.session and self.holder.settled:
            lessor = self.holder.lessor
            self.was_cut_off = any(lessor.used(key) > 1 for key in (*KEYS, DEFAULT_KEY))
        return self.was_cut_off

    def tick(self) -> None:
        """Report to the holder, and send what the workers are due."""
        if not self.alive:
            return
        world = self.world
        world.at(world.now_ms + TICK_MS // 2, lambda: self.run(self.tick))
        self.over()
        if world.now_ms >= self.cut_until_ms and self.holder is not world.holder:
            self.reconnect()
            self.holder = world.holder
        report = self.member.report(self.now_ms)
        if report is not None and self.holder is not None:
            holder, connection = self.holder, self.connection
            self.transmit(
                connection,
                holder,
                lambda: holder.receive(
                    report, lambda grants: self.transmit(connection, self, lambda: self.take(grants))
                ),
            )
        self.send()

    def transmit(self, connection: int, to: Process, act: Callable[[], None]) -> None:
        """Send on a connection with the holder, which may break."""
        world = self.world
        if connection != self.connection or world.now_ms < self.cut_until_ms:
            return
        if world.random.random() < world.faults.breaks:
            self.reconnect()
            return
        world.send(to, act)
        if world.random.random() < world.faults.repeats:
            world.send(to, act)

    def reconnect(self) -> None:
        """Begin another connection."""
        self.connection += 1
        self.member.lessee.lose()

    def take(self, grants: Grants | None) -> None:
        """Take the holder's grants."""
        if grants is None:
            self.member.lessee.lose()
        else:
            self.member.take(grants, self.now_ms)
            self.send()

    def receive(self, report: Report, worker: Worker) -> None:
        """Take a worker's report."""
        self.world.answers[self, worker.name] = lambda grants: self.world.send(
            worker, lambda: worker.take(grants)
        )
        try:
            self.member.workers.report(report, self.now_ms)
        except (SessionLostError, LeaseRefusedError):
            self.world.answers[self, worker.name](None)
        self.send()

    def send(self) -> None:
        """Send the workers what is due."""
        for lessee, grants in self.member.grants(self.now_ms):
            self.world.answers[self, lessee](grants)

    def kill_worker(self, worker: Worker) -> None:
        """Kill a worker, which its parent knows at once; another one begins."""
        worker.end()
        self.member.workers.leave(worker.name)
        self.workers.remove(worker)
        self.workers.append(Worker(self))

    def kill(self) -> None:
        """Kill the member; its workers end with it."""
        self.alive = False
        for worker in self.workers:
            worker.end()


class World:
    """All processes, and the events to come.

    Args:
        members: how many there are.
        workers: of each member.
    """

    def __init__(
        self,
        seed: int,
        members: int,
        workers: int,
        faults: Faults | None = None,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self.random = Random(seed)
        self.faults = faults or Faults()
        self.members_max = MEMBERS_MAX
        self.terms = LeaseTerms(lease_ms, lease_ms // 15, MEMBERS_MAX)
        self.now_ms = 0
        self.generation = 1
        self.demand: dict[LesseeId, dict[str, Wish]] = {}
        self.answers: dict[tuple[object, LesseeId], Callable[[Grants | None], None]] = {}
        self._numbers = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._arrival_ms: dict[int, int] = {}
        self.ledger = Ledger()
        self.holders = [Holder(self, 1, 0)]
        self.workers_each = workers
        self.members = [MemberProcess(self, workers) for _ in range(members)]
        self.worst = 0.0

    @property
    def holder(self) -> Holder:
        """The holder by Kafka's latest generation."""
        return self.holders[-1]

    def number(self) -> int:
        """Return another number each time."""
        self._numbers += 1
        return self._numbers

    def clock(self) -> tuple[float, int]:
        """Return the rate and the offset of a process's clock."""
        return 1 + self.random.uniform(-1, 1) * self.faults.drift, self.random.randrange(1 << 40)

    def at(self, ms: int, act: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._events, (ms, self.number(), act))

    def send(self, to: Process, act: Callable[[], None]) -> None:
        """Deliver a message after a while; messages to one process arrive in order."""
        ms = self.now_ms + self.random.randint(0, self.faults.delay_ms_max)
        ms = max(ms, self._arrival_ms.get(id(to), 0))
        self._arrival_ms[id(to)] = ms
        self.at(ms, lambda: to.run(act))

    def used(self, key: str) -> float:
        """The share of a key that all processes may use now."""
        return sum(worker.share(key) for member in self.members for worker in member.workers)

    def run(self, until_ms: int) -> None:
        """Run until a time, and check the bound at each event."""
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, act = heapq.heappop(self._events)
            act()
        self.now_ms = until_ms

    def check(self) -> None:
        """Compare what may be used with the bound; called whenever a process has taken shares, or runs again."""
        cut_off = sum(member.alive and member.over() for member in self.members)
        for key in (*KEYS, "not named"):
            used = self.used(key)
            self.worst = max(self.worst, used - cut_off / self.members_max)
            assert used <= 1 + cut_off / self.members_max + _ROUNDING, (
                f"{self.now_ms} ms: {used:.4f} of {key!r} may be used, {cut_off} members are cut off"
            )

    def want(self, worker: Worker, key: str, wanted: float, weight: float = 1.0) -> None:
        """Set a worker's demand; 0 ends it."""
        wishes = self.demand.setdefault(worker.name, {})
        wishes.pop(key, None)
        if wanted:
            wishes[key] = Wish(wanted, weight)

    def move_holder(self) -> None:
        """Have Kafka elect another holder; the one before does not know it yet."""
        self.generation += 1
        self.holders.append(Holder(self, self.generation, self.terms.lease_ms + self.terms.lease_ms // 3))

    def chaos(self) -> None:
        """Let things go wrong, and demands change."""
        self.at(self.now_ms + TICK_MS, self.chaos)
        draw, faults = self.random.random, self.faults
        for member in list(self.members):
            if draw() < faults.kills:
                member.kill()
                self.members.remove(member)
                self.members.append(MemberProcess(self, self.workers_each))
                continue
            self.pause(member)
            if draw() < faults.cuts:
                member.cut_until_ms = self.now_ms + self.random.randint(1, faults.cut_ms_max)
                member.reconnect()
            for worker in list(member.workers):
                self.disturb(worker)
        self.pause(self.holder)
        if draw() < faults.moves:
            self.move_holder()

    def pause(self, process: Process) -> None:
        """Suspend a process now and then."""
        if self.random.random() < self.faults.pauses:
            process.paused_until_ms = self.now_ms + self.random.randint(1, self.faults.pause_ms_max)

    def disturb(self, worker: Worker) -> None:
        """Change a worker's demand, suspend or kill it now and then."""
        draw = self.random.random
        if draw() < 0.02:
            wanted = self.random.choice((0, 0.05, 0.4, 1))
            self.want(worker, self.random.choice(KEYS), wanted, self.random.randint(1, 20))
        if draw() < self.faults.kills:
            worker.member.kill_worker(worker)
        else:
            self.pause(worker)
