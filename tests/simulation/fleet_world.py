"""A fleet in virtual time: a holder, members, and their workers, whose messages are delayed, lost, and repeated.

Processes are suspended, killed and started again, connections break, the holder moves, the whole fleet is stopped and
started. Whenever a share rises, the shares that all running processes may use are added up and compared with the bound:
the budget, and one cut-off share for each member that is cut off (fleet.md, "Budgets").
"""

import heapq
from collections.abc import Callable
from random import Random
from typing import Final

from quotas.definitions.entities import BucketKey
from quotas.limiters.lending import LimiterKey
from quotas.limiters.schedule import ScheduledThrottle
from quotas.options import EngineOptions
from quotas.sharing.budgets import Budgets, budget_key
from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId, Report, Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import LeaseRefusedError, Lessor, SessionLostError
from quotas.sharing.member import Member
from tests.simulation.fleet_faults import ALL_FAULTS, SHORT_MS, Faults
from tests.simulation.fleet_ledger import QUOTA, REQUEST, Ledger

__all__ = ["KEY", "MEMBERS_MAX", "World", "chaotic"]

LEASE_MS: Final = 15_000
TENURES: Final = 3  # in a lease
WORKER_LEASE_MS: Final = 500
TICK_MS: Final = 100
MEMBERS_MAX: Final = 4
_MEMBERS_MORE: Final = 6  # another `members_max`, for a while
LIMITER_KEY: Final[LimiterKey] = ("producer_byte_rate", BucketKey(None, "a"), -1)
KEY: Final = budget_key(LIMITER_KEY)  # of a limiter that lets pass what it can
KEYS: Final = (KEY, "b", "c")
_COMPARED: Final = (*KEYS, "not named")
NOTHING: Final = 1e-9
_ROUNDING: Final = 1e-9
_OPTIONS: Final = EngineOptions(policy="schedule")


def chaotic(seed: int, faults: Faults = ALL_FAULTS, seconds: int = 20) -> "World":
    """Run a fleet with faults; an AssertionError names the time and the key."""
    draw = Random(seed)
    world = World(seed, draw.randint(1, MEMBERS_MAX), draw.randint(1, 3), faults, SHORT_MS)
    world.chaos()
    world.run(seconds * 1000)
    return world


class Process:
    """What all processes have: a clock, and times when they do not run.

    Args:
        host: a process with the same clock; None: another host.
    """

    __slots__ = ("alive", "offset_ms", "paused_until_ms", "rate", "world")
    rate: float
    offset_ms: int

    def __init__(self, world: "World", host: "Process | None" = None) -> None:
        self.world = world
        self.rate, self.offset_ms = world.clock() if host is None else (host.rate, host.offset_ms)
        self.paused_until_ms = -1
        self.alive = True

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
        if self.world.now_ms >= self.paused_until_ms:
            act()
        else:
            self.world.at(self.paused_until_ms, lambda: self.resume(act))

    def resume(self, act: Callable[[], None]) -> None:
        """Act at the end of a pause."""
        self.run(act)
        self.world.check()


class Holder(Process):
    """The member that leases shares; only its part as the holder is modelled.

    Attributes:
        lessor: None until it has read what its predecessor has committed, and has committed itself.
    """

    __slots__ = ("confirmed_ms", "generation", "learning_until_ms", "lessor", "tenure_ms")

    def __init__(self, world: "World", generation: int) -> None:
        super().__init__(world)
        self.generation = generation
        self.tenure_ms = world.terms.lease_ms // TENURES
        self.lessor: Lessor | None = None
        self.learning_until_ms = 0
        self.confirmed_ms = self.now_ms

    @property
    def settled(self) -> bool:
        """Whether it knows all members."""
        return self.lessor is not None and self.confirmed_ms >= self.learning_until_ms

    def tick(self) -> None:
        """Confirm the tenure, and send what is due."""
        if not self.alive:
            return
        self.world.at(self.world.now_ms + TICK_MS, lambda: self.run(self.tick))
        if self.generation == self.world.generation:  # Kafka knows no later holder
            self.confirm()
        elif self.over():
            return
        self.send()

    def confirm(self) -> None:
        """Commit; at the first time, begin."""
        world, now_ms = self.world, self.now_ms
        committed, world.committed = world.committed, world.terms.lasting_ms(self.tenure_ms)
        if self.lessor is None:
            learning_ms = committed or 0
            self.lessor = Lessor(
                world.terms, world.random.getrandbits(32), lambda _: 1.0, now_ms, learning_ms
            )
            self.learning_until_ms = now_ms + learning_ms
        self.confirmed_ms = now_ms
        self.lessor.confirm(now_ms)

    def over(self) -> bool:
        """Whether its tenure is over, and it ends."""
        if self.now_ms >= self.confirmed_ms + self.tenure_ms and self.generation != self.world.generation:
            self.alive = False
        return not self.alive

    def resign(self) -> None:
        """End in order, and leave word of how long leases may last."""
        self.alive = False
        if self.lessor is not None and self.generation == self.world.generation:
            self.world.committed = self.lessor.lasting_ms(self.now_ms)

    def receive(self, report: Report, answer: Callable[[Grants | None], None]) -> None:
        """Take a report."""
        if self.lessor is None or self.over():
            return
        self.world.answers[self, report.lessee] = answer
        try:
            self.lessor.report(report, self.now_ms)
        except (SessionLostError, LeaseRefusedError):
            answer(None)
        self.send()

    def leave(self, lessee: LesseeId) -> None:
        """Take a member's word that it has ended."""
        if self.lessor is not None and not self.over():
            self.lessor.leave(lessee)

    def send(self) -> None:
        """Send all grants that are due."""
        if self.lessor is not None:
            for lessee, grants in self.lessor.grants(self.now_ms):
                self.world.answers[self, lessee](grants)


class Worker(Process):
    """A process that uses shares; its limiter begins with the first client, as an engine's does."""

    __slots__ = ("budgets", "lease_until_ms", "lent", "lessee", "limiter", "member", "name")

    def __init__(self, member: "MemberProcess") -> None:
        super().__init__(member.world, member)
        self.member = member
        self.name = LesseeId(f"worker-{member.world.number()}", 1)
        self.lessee = Lessee(member.worker_terms, self.name, self.now_ms, cut_off=NOTHING, first=NOTHING)
        self.lease_until_ms: int | None = None
        self.budgets = Budgets(self, self.lessee, self.now_ms)
        self.limiter: ScheduledThrottle | None = None
        self.lent = 1.0
        self.world.ledger.begins()
        self.tick()

    def share(self, key: str) -> float:
        """The share that it may use."""
        return self.lessee.share(key, self.now_ms) if self.running else 0.0

    def refresh(self, lease_until_ms: int | None) -> None:
        """Shares are looked at before each use."""

    def tick(self) -> None:
        """Report to the member, whose answer comes with its next tick."""
        if not self.alive:
            return
        world, now_ms = self.world, self.now_ms
        world.at(world.now_ms + TICK_MS // 2, lambda: self.run(self.tick))
        self.use()
        self.lessee.expire(now_ms)
        self.lessee.wish(world.demand.get(self.name, {}))
        if self.lessee.due(now_ms):
            report = self.lessee.report(now_ms)
            world.send(self.member, lambda: self.member.receive(report, self))

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
            if grants.shares:  # others only renew a lease that is in force
                self.world.check()

    def use(self) -> None:
        """Let clients of KEY pass if there are any; else it saves for a burst."""
        if KEY in self.world.demand.get(self.name, {}):
            self.spend()

    def spend(self) -> None:
        """Let pass as many requests as the quota of KEY has room for."""
        now_ms, limiter = self.now_ms, self.limiter
        share = self.lessee.share(KEY, now_ms)
        if limiter is None:
            limiter = self.limiter = ScheduledThrottle(QUOTA, _OPTIONS, now_ms)
            self.budgets.begin(limiter, LIMITER_KEY, now_ms)
        elif share != self.lent:
            limiter.lend(share, now_ms)
        self.lent = share
        while limiter.credit_bytes(now_ms) >= 0:
            limiter.delivered(REQUEST, now_ms)
            self.world.ledger.passes(REQUEST, self.world.now_ms)


class MemberProcess(Process):
    """A member's control process."""

    __slots__ = (
        "connection",
        "cut_from",
        "cut_until_ms",
        "hears_ms",
        "holder",
        "member",
        "was_cut_off",
        "worker_terms",
        "workers",
    )

    def __init__(self, world: "World", workers: int) -> None:
        super().__init__(world)
        self.cut_until_ms = -1
        self.cut_from: Holder | None = None  # None: from all
        self.was_cut_off = False
        name = LesseeId(f"member-{world.number()}", world.random.getrandbits(32))
        self.worker_terms = LeaseTerms(WORKER_LEASE_MS, 100, max(workers, 1))
        self.member = Member(Lessee(world.terms, name, self.now_ms), self.worker_terms, self.now_ms)
        self.connection = 0  # counts connections: what was sent on an earlier one is lost
        self.holder: Holder | None = None
        self.hears_ms: int | None = None  # of another holder
        self.workers = [Worker(self) for _ in range(workers)]
        self.tick()

    def over(self) -> bool:
        """Whether it was cut off, and the others have not come down since."""
        lessee = self.member.lessee
        if lessee.cut_off(self.now_ms):
            self.was_cut_off = True
        elif self.was_cut_off and self.holder is self.world.holder and lessee.session and self.holder.settled:
            lessor = self.holder.lessor
            assert lessor is not None, "it is settled"
            self.was_cut_off = any(lessor.used(key) > 1 for key in (*KEYS, DEFAULT_KEY))
        return self.was_cut_off

    def reaches(self, holder: Holder) -> bool:
        """Whether messages arrive."""
        return self.world.now_ms >= self.cut_until_ms or self.cut_from not in (None, holder)

    def tick(self) -> None:
        """Report to the holder, and send what the workers are due."""
        if not self.alive:
            return
        world = self.world
        world.at(world.now_ms + TICK_MS // 2, lambda: self.run(self.tick))
        self.over()
        self.hear()
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

    def hear(self) -> None:
        """Connect to another holder, some time after it was chosen."""
        world = self.world
        if self.holder is world.holder:
            return
        if self.hears_ms is None:
            looks = self.holder is None or not self.reaches(self.holder)
            lag_ms = 0 if looks else world.random.randint(0, world.faults.lag_ms_max)
            self.hears_ms = world.now_ms + lag_ms
        if world.now_ms >= self.hears_ms and self.reaches(world.holder):
            self.reconnect()
            self.holder, self.hears_ms = world.holder, None

    def transmit(self, connection: int, to: Process, act: Callable[[], None]) -> None:
        """Send on a connection with the holder, which may break."""
        world = self.world
        assert self.holder is not None, "it was connected to"
        if connection != self.connection or not self.reaches(self.holder):
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

    def leave(self) -> None:
        """End in order: its workers have ended, and the holder is told."""
        self.kill()
        holder = self.holder
        if holder is not None and self.reaches(holder):
            self.world.send(holder, lambda: holder.leave(self.member.lessee.name))


class World:
    """All processes, and the events to come.

    Args:
        members: how many there are.
        workers: of each member.

    Attributes:
        generation: of the group, as Kafka knows it.
        committed: what the last holder has committed: how long leases may last after that.
        worst: the largest sum of shares that was used, less those of members that were cut off.
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
        self.terms = LeaseTerms(lease_ms, lease_ms // 15, MEMBERS_MAX)
        self.now_ms = 0
        self.generation = 0
        self.committed: int | None = None
        self.demand: dict[LesseeId, dict[str, Wish]] = {}
        self.answers: dict[tuple[Process, LesseeId], Callable[[Grants | None], None]] = {}
        self._numbers = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._arrival_ms: dict[Process, int] = {}
        self.ledger = Ledger()
        self.worst = 0.0
        self.move_holder()
        self.workers_each = workers
        self.wave = False  # whether every worker wants KEY
        self.members: list[MemberProcess] = []
        self.start(members)

    def start(self, members: int) -> None:
        """Start members."""
        self.members += [MemberProcess(self, self.workers_each) for _ in range(members)]

    def number(self) -> int:
        """Return another number each time."""
        self._numbers += 1
        return self._numbers

    def clock(self) -> tuple[float, int]:
        """Return the rate and the offset of a host's clock."""
        return 1 + self.random.uniform(-1, 1) * self.faults.drift, self.random.randrange(1 << 40)

    def at(self, ms: int, act: Callable[[], None]) -> None:
        """Do something at a time."""
        self._numbers += 1
        heapq.heappush(self._events, (ms, self._numbers, act))

    def send(self, to: Process, act: Callable[[], None]) -> None:
        """Deliver a message after a while; messages to one process arrive in order."""
        ms = self.now_ms + int(self.random.random() * (self.faults.delay_ms_max + 1))
        ms = max(ms, self._arrival_ms.get(to, 0))
        self._arrival_ms[to] = ms
        self.at(ms, lambda: to.run(act))

    def run(self, until_ms: int) -> None:
        """Run until a time, and check the bound at each event."""
        events = self._events
        while events and events[0][0] <= until_ms:
            self.now_ms, _, act = heapq.heappop(events)
            act()
        self.now_ms = until_ms

    def used(self, key: str) -> float:
        """The share of a key that all processes may use now."""
        return sum(self._used(member)[_COMPARED.index(key)] for member in self.members)

    def _used(self, member: MemberProcess) -> list[float]:
        """Return what a member's workers may use of each compared key."""
        totals = [0.0] * len(_COMPARED)
        now_ms = member.now_ms
        for worker in member.workers:
            if worker.running:
                share = worker.lessee.share
                for index, key in enumerate(_COMPARED):
                    totals[index] += share(key, now_ms)
        return totals

    def check(self) -> None:
        """Compare what may be used with the bound; called whenever a process has taken shares, or runs again."""
        cut_off, totals = 0, [0.0] * len(_COMPARED)
        for member in self.members:
            used = self._used(member)
            if member.alive and member.over():
                cut_off += 1
            if not member.member.lessee.leased(member.now_ms):
                assert max(used) <= 1 / MEMBERS_MAX + _ROUNDING, (
                    f"{self.now_ms} ms: workers may use {max(used):.4f}, their member has no lease"
                )
            for index, share in enumerate(used):
                totals[index] += share
        bound = 1 + cut_off / MEMBERS_MAX + _ROUNDING
        for key, share in zip(_COMPARED, totals, strict=True):
            assert share <= bound, (
                f"{self.now_ms} ms: {share:.4f} of {key!r} may be used, {cut_off} members are cut off"
            )
        self.worst = max(self.worst, max(totals) - cut_off / MEMBERS_MAX)

    def want(self, worker: Worker, key: str, wanted: float, weight: float = 1.0) -> None:
        """Set a worker's demand; 0 ends it."""
        wishes = self.demand.setdefault(worker.name, {})
        wishes.pop(key, None)
        if wanted:
            wishes[key] = Wish(wanted, weight)

    def move_holder(self) -> None:
        """Have Kafka choose another holder; the one before does not know it yet."""
        self.generation += 1
        self.holder = holder = Holder(self, self.generation)
        self.at(self.now_ms, lambda: holder.run(holder.tick))

    def stop(self, *, in_order: bool) -> None:
        """Stop all members, and start as many."""
        count = len(self.members)
        for member in self.members:
            member.leave() if in_order else member.kill()
        self.members.clear()
        if in_order:
            self.at(self.now_ms + 2 * TICK_MS, self.holder.resign)
        else:
            self.holder.alive = False
        begins_ms = self.now_ms + 3 * TICK_MS
        self.at(begins_ms, self.move_holder)
        self.at(begins_ms, lambda: self.start(count))

    def chaos(self) -> None:
        """Let things go wrong, and demands change."""
        self.at(self.now_ms + TICK_MS, self.chaos)
        draw, faults = self.random.random, self.faults
        if draw() < faults.waves:
            self.wave = not self.wave
        if draw() < faults.gulps:
            self.gulp_twice()
        for member in list(self.members):
            if draw() < faults.kills:
                member.leave() if draw() < 0.5 else member.kill()
                self.members.remove(member)
                self.start(1)
                continue
            self.separate(member)
            self.pause(member)
            for worker in list(member.workers):
                self.disturb(worker)
        self.pause(self.holder)
        if draw() < faults.moves:
            self.move()
            if draw() < 0.5:  # again before the new one knows all members
                self.at(self.now_ms + self.random.randint(0, self.terms.lease_ms // TENURES), self.move)
        if draw() < faults.stops:
            self.stop(in_order=draw() < 0.5)
        if draw() < faults.resizes:
            self.resize(self.random.choice((MEMBERS_MAX, _MEMBERS_MORE)))
        self.check()

    def gulp(self) -> None:
        """Use what is left of bursts, where no client waits and no key is named."""
        for member in self.members:
            for worker in member.workers:
                worker.run(worker.spend)

    def gulp_twice(self) -> None:
        """Use bursts, begin with other workers, use theirs."""
        self.gulp()
        for member in self.members:
            if member.running:
                for worker in list(member.workers):
                    member.kill_worker(worker)
        self.at(self.now_ms + 3 * TICK_MS, self.gulp)

    def move(self) -> None:
        """Have the holder end in order now and then, and another one chosen."""
        if self.random.random() < 0.5:
            self.holder.run(self.holder.resign)
        self.move_holder()

    def separate(self, member: MemberProcess) -> None:
        """Cut a member off now and then; suspend it while its lease ends, or have it find another holder before."""
        draw, faults, lease_ms = self.random.random, self.faults, self.terms.lease_ms
        if draw() < faults.cuts:
            member.cut_from = None if draw() < 0.5 else self.holder
            member.cut_until_ms = self.now_ms + self.random.randint(1, faults.cut_ms_max)
            member.reconnect()
        elif draw() < faults.rifts:
            member.cut_from, member.cut_until_ms = self.holder, self.now_ms + 2 * lease_ms
            member.reconnect()
            self.at(self.now_ms + self.random.randint(2 * lease_ms // 3, lease_ms), self.move_holder)
        left_ms = member.member.lessee.until_ms - member.now_ms
        if 0 < left_ms < WORKER_LEASE_MS and draw() < faults.ends:
            member.paused_until_ms = self.now_ms + WORKER_LEASE_MS + 2 * TICK_MS

    def resize(self, members_max: int) -> None:
        """Have some processes know another `members_max`."""
        self.terms = LeaseTerms(self.terms.lease_ms, self.terms.period_ms, members_max)
        for member in self.members:
            if self.random.random() < 0.5:
                member.member.lessee.terms = self.terms
        if self.holder.lessor is not None and self.random.random() < 0.5:
            self.holder.lessor.configure(self.terms)

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
        if self.faults.waves:
            self.want(worker, KEY, self.wave)
        if draw() < self.faults.worker_kills:
            worker.member.kill_worker(worker)
        else:
            self.pause(worker)
