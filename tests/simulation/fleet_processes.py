"""The processes of a fleet in virtual time: the holder, members, and their workers (`fleet_world`)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from quotas.definitions.entities import BucketKey
from quotas.limiters.lending import LimiterKey
from quotas.limiters.schedule import ScheduledLimiter
from quotas.options import EngineOptions
from quotas.sharing.budgets import Budgets, budget_key
from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId, Report
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import LeaseRefusedError, Lessor, SessionLostError
from quotas.sharing.member import Member
from tests.simulation.fleet_ledger import QUOTA, REQUEST

if TYPE_CHECKING:
    from tests.simulation.fleet_world import World

__all__ = [
    "KEY",
    "KEYS",
    "TENURES",
    "TICK_MS",
    "WORKER_LEASE_MS",
    "Holder",
    "MemberProcess",
    "Process",
    "Worker",
]

TENURES: Final = 3  # in a lease
WORKER_LEASE_MS: Final = 500
TICK_MS: Final = 100
LIMITER_KEY: Final[LimiterKey] = ("producer_byte_rate", BucketKey(None, "a"), -1)
KEY: Final = budget_key(LIMITER_KEY)  # of a limiter that lets pass what it can
KEYS: Final = (KEY, "b", "c")
NOTHING: Final = 1e-9
_OPTIONS: Final = EngineOptions(policy="schedule")


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
        self.limiter: ScheduledLimiter | None = None
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
            limiter = self.limiter = ScheduledLimiter(QUOTA, _OPTIONS, now_ms)
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
