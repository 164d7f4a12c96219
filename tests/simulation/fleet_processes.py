"""The processes of a fleet in virtual time: the holder, members, and their workers (`fleet_world`).

The holder is a part of one member's process, and ends with it. What a kernel does when a process ends is modelled: the
other sides of its connections see that they are closed, after a while, and its port refuses. Kafka's part is: it takes
a commit in the generation of its holder only, also late, and the holder may not hear whether it has.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from quotas.definitions.entities import BucketKey
from quotas.limiters.limiter import Borrowing, LimiterKey
from quotas.limiters.schedule import ScheduledLimiter
from quotas.options import EngineOptions
from quotas.sharing.budgets import Budgets, budget_key
from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId, Report
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import LeaseRefusedError, Lessor, SessionLostError
from quotas.sharing.member import Member
from quotas.sharing.parts import Leasing, PartLeasing, Parts, part_of
from tests.simulation.fleet_ledger import QUOTA, REQUEST

if TYPE_CHECKING:
    from tests.simulation.fleet_world import World

TENURES: Final = 3  # in a lease
LATE_MS_MAX: Final = 3000  # a commit of which nothing was heard
DRAIN_MS_MAX: Final = 2000  # of a worker whose control process has ended
TICK_MS: Final = 100
LIMITER_KEY: Final[LimiterKey] = ("producer_byte_rate", BucketKey(None, "a"), -1)
KEY: Final = budget_key(LIMITER_KEY)  # of a limiter that lets pass what it can
KEYS: Final = (KEY, "b", "c")
NOTHING: Final = 1e-9
LOOKS_MAX: Final = 8
_OPTIONS: Final = EngineOptions(policy="schedule")


class Process:
    """What all processes have: a clock, and times when they do not run.

    Args:
        host: a process with the same clock; None: another host.
    """

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


class Committed(NamedTuple):
    """What Kafka has of the last holder: how long leases may last, and whose."""

    lasting_ms: int
    lessees: frozenset[int] | None


class Connection(NamedTuple):
    """One connection of a member with a holder."""

    lessee: LesseeId
    number: int


class Seat:
    """What Kafka knows of one part of the keys.

    Attributes:
        generation: of the group.
        holder: the one that was chosen last.
        committed: what the last holder has committed: how long leases may last after that.
    """

    holder: "Holder"

    def __init__(self, part: int) -> None:
        self.part = part
        self.generation = 0
        self.committed: Committed | None = None

    def commits(self, generation: int, committed: Committed) -> bool:
        """Take a commit, as Kafka does; returns whether it is accepted."""
        if generation == self.generation:
            self.committed = committed
        return generation == self.generation


class Holder(Process):
    """The part of a member that leases shares, of the keys of one part.

    Args:
        seat: that part.
        home: the member; None at the beginning, when there is none.

    Attributes:
        lessor: None until it has read what its predecessor has committed, and has committed itself.
        places: where members listen.
        closed: the members whose side has closed its connection.
    """

    def __init__(self, world: "World", seat: Seat, home: "MemberProcess | None" = None) -> None:
        super().__init__(world, home)
        self.seat = seat
        self.home = home
        self.paused_until_ms = -1 if home is None else home.paused_until_ms
        self.generation = seat.generation
        self.tenure_ms = world.terms.lease_ms // TENURES
        self.lessor: Lessor | None = None
        self.past: Committed | None = None
        self.asked = False
        self.commits = 0  # under way
        self.expelled = False
        self.doubts: list[int] = []  # numbers of rosters that may still be committed
        self.confirmed_ms = self.now_ms
        self.connections: dict[LesseeId, int] = {}
        self.places: dict[LesseeId, int] = {}
        self.closed: set[LesseeId] = set()

    def settle_in(self, home: "MemberProcess") -> None:
        """Become a part of the first member."""
        self.home, self.rate, self.offset_ms = home, home.rate, home.offset_ms
        self.confirmed_ms = self.now_ms

    @property
    def settled(self) -> bool:
        """Whether it knows all members."""
        return self.lessor is not None and not self.lessor.learning(self.now_ms)

    def tick(self) -> None:
        """Confirm the tenure, and send what is due."""
        if not self.alive:
            return
        self.world.at(self.world.now_ms + TICK_MS, lambda: self.run(self.tick))
        if self.generation == self.seat.generation:  # Kafka knows no later holder
            self.commit()
        elif self.over():
            return
        self.send()

    def commit(self) -> None:
        """Commit to whom it leases, one commit after the other; at first, read what the last holder has."""
        world = self.world
        if self.commits:
            return
        if not self.asked:
            self.asked, self.past = True, self.seat.committed
        lessees = frozenset() if self.past is None else self.past.lessees
        number, lessees = (0, lessees) if self.lessor is None else self.lessor.roster()
        if world.random.random() < world.faults.unlisted:
            lessees = None
        committed = Committed(world.terms.lasting_ms(self.tenure_ms), lessees)
        generation, sent_ms = self.generation, self.now_ms
        self.commits += 1
        draw = world.random
        if draw.random() < world.faults.doubts:
            self.doubts.append(number)
            arrives_ms = world.now_ms + draw.randint(0, LATE_MS_MAX)
            world.at(arrives_ms, partial(self.seat.commits, generation, committed))
            world.at(world.now_ms + TICK_MS, lambda: self.run(self.unheard))
            return

        def arrive() -> None:
            accepted = self.seat.commits(generation, committed)
            world.send(self, lambda: self.confirm(sent_ms, number) if accepted else self.unheard())

        world.at(world.now_ms + draw.randint(0, world.faults.delay_ms_max), arrive)

    def unheard(self) -> None:
        """Note that a commit was refused, or that nothing was heard of it."""
        self.commits -= 1

    def confirm(self, sent_ms: int, number: int) -> None:
        """Take Kafka's response; at the first one, begin."""
        world = self.world
        self.commits -= 1
        if not self.alive:
            return
        if self.lessor is None:
            past = self.past or Committed(0, frozenset())
            self.lessor = Lessor(
                world.terms, self.run_id, world.divider(self), self.now_ms, past.lasting_ms, past.lessees
            )
            for run, ended_ms in {} if self.home is None else self.home.ended.items():
                self.lessor.ended(run, ended_ms)
        self.confirmed_ms = max(self.confirmed_ms, sent_ms)
        self.lessor.confirm(sent_ms)
        self.lessor.enlist(min([number, *self.doubts]))
        if self.doubts and self.generation == self.seat.generation:
            self.seat.generation += 1  # the group is joined again, with the same holder
            self.generation = self.seat.generation
            self.doubts.clear()

    @property
    def run_id(self) -> int:
        """The run of its process."""
        return 0 if self.home is None else self.home.name.run

    def over(self) -> bool:
        """Whether its tenure is over, and it ends."""
        if self.now_ms >= self.confirmed_ms + self.tenure_ms and self.generation != self.seat.generation:
            self.alive = False
        return not self.alive

    def resign(self) -> None:
        """End in order, and leave word of how long leases may last."""
        self.alive = False
        if self.lessor is not None:
            _, lessees = self.lessor.roster()
            self.seat.commits(self.generation, Committed(self.lessor.lasting_ms(self.now_ms), lessees))

    def connected(self, connection: Connection, place: int) -> None:
        """Note a member's connection, and where it listens."""
        lessee = connection.lessee
        if connection.number < self.connections.get(lessee, 0):
            return
        if connection.number > self.connections.get(lessee, 0):
            self.connections[lessee] = connection.number
            self.closed.discard(lessee)
        self.places[lessee] = place
        for other in [other for other in self.closed if self.places[other] == place and other != lessee]:
            self.has_ended(other)

    def sees_close(self, connection: Connection) -> None:
        """Take the end of a connection by a member's side, and look at its port."""
        lessee = connection.lessee
        if self.lessor is None or self.connections.get(lessee) != connection.number:
            return
        self.closed.add(lessee)
        self.look(lessee, 0)

    def look(self, lessee: LesseeId, looks: int) -> None:
        """Look whether a member's port refuses, some times."""
        if lessee not in self.closed or looks > LOOKS_MAX or not self.alive:
            return
        refuses = self.world.refuses(self.places[lessee])

        def heard() -> None:
            if lessee in self.closed and refuses and self.reaches(lessee):
                self.has_ended(lessee)
            else:
                again_ms = self.world.now_ms + (TICK_MS << looks)
                self.world.at(again_ms, lambda: self.run(lambda: self.look(lessee, looks + 1)))

        self.world.send(self, heard)

    def reaches(self, lessee: LesseeId) -> bool:
        """Whether messages to a member's host arrive."""
        return all(member.reaches(self) for member in self.world.all_members if member.name == lessee)

    def has_ended(self, lessee: LesseeId) -> None:
        """Take the signs of a member's end."""
        self.closed.discard(lessee)
        if self.lessor is not None and not self.over():
            self.lessor.ended(lessee.run, self.now_ms)

    def receive(
        self,
        report: Report,
        response: Callable[[Grants | None], None],
        connection: Connection,
        place: int,
        ended: Iterable[int],
    ) -> bool:
        """Take a report, and which holders the member has seen end; returns whether the connection is open here."""
        if self.lessor is None or self.over():
            return False
        for run in ended:
            self.lessor.ended(run, self.now_ms)
        self.connected(connection, place)
        if connection.number < self.connections[report.lessee] or report.lessee in self.closed:
            return False
        self.world.responses[self, report.lessee] = response
        try:
            self.lessor.report(report, self.now_ms)
        except (SessionLostError, LeaseRefusedError):
            response(None)
        self.send()
        return True

    def leave(self, lessee: LesseeId) -> None:
        """Take a member's word that it has ended."""
        if self.lessor is not None and not self.over():
            self.lessor.leave(lessee)

    def send(self) -> None:
        """Send all grants that are due."""
        if self.lessor is not None:
            for lessee, grants in self.lessor.grants(self.now_ms):
                self.world.responses[self, lessee](grants)


class Worker(Process):
    """A process that uses shares; its limiter begins with the first client, as an engine's does."""

    def __init__(self, member: "MemberProcess") -> None:
        super().__init__(member.world, member)
        self.member = member
        self.name = LesseeId(f"worker-{member.world.number()}", 1)
        self.lessee = Lessee(member.worker_terms, self.name, self.now_ms, cut_off=NOTHING, first=NOTHING)
        self.lease_until_ms: int | None = None
        self.budgets = Budgets(self, self.lessee, self.now_ms)
        self.limiter: ScheduledLimiter | None = None
        self.lent = 1.0
        self.drains = False
        self.world.ledger.begins()

    def share(self, key: str) -> float:
        """The share that it may use."""
        return self.lessee.share(key, self.now_ms) if self.running else 0.0

    def refresh(self, lease_until_ms: int | None) -> None:
        """Shares are looked at before each use."""

    def names(self, limiter_key: LimiterKey) -> bool:
        """Names are bounded."""
        return True

    def admit_newcomers(self, now_ms: int) -> None:
        """There are none."""

    def forget_newcomers(self, limiter: Borrowing, limiter_key: LimiterKey, now_ms: int) -> None:
        """There are none."""

    def capacity(self, limiter_key: LimiterKey) -> float:
        """There is none."""
        return 0.0

    def tick(self) -> None:
        """Report to the member, whose response comes with its next tick."""
        if not self.alive:
            return
        world = self.world
        world.at(world.now_ms + TICK_MS // 2, lambda: self.run(self.tick))
        self.use()
        if self.member.alive:  # as its kernel says, stopped or not
            self.live()
        elif not self.drains:
            self.drains = True
            world.at(world.now_ms + world.random.randint(0, DRAIN_MS_MAX), lambda: self.run(self.end))
        report = self.report()
        if report is not None:
            world.send(self.member, lambda: self.member.receive(report, self))

    def live(self) -> None:
        """Note that the member runs."""
        self.lessee.live(self.now_ms)

    def report(self) -> Report | None:
        """Return the report that is due."""
        lessee, now_ms = self.lessee, self.now_ms
        lessee.expire(now_ms)
        lessee.wish(self.world.demand.get(self.name, {}))
        return lessee.report(now_ms) if lessee.due(now_ms) else None

    def apply(self, grants: Grants) -> bool:
        """Take the member's grants; returns False if they were ignored."""
        taken = self.lessee.take(grants, self.now_ms)
        if taken:
            self.lessee.confirm()
        return taken

    def end(self) -> None:
        """Kill it."""
        if self.alive:
            self.alive = False
            self.world.ledger.ends()

    def take(self, grants: Grants | None) -> None:
        """Take the member's grants."""
        if grants is None:
            self.lessee.lose()
        elif self.apply(grants):
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


class Link:
    """A member's connection with the holder of one part.

    Args:
        lessee: the member's leases of this part.
        leasing: uses them.
    """

    def __init__(self, member: "MemberProcess", seat: Seat, lessee: Lessee, leasing: Leasing) -> None:
        self.member = member
        self.seat = seat
        self.lessee = lessee
        self.leasing = leasing
        self.was_cut_off = False
        self.connection = 0  # counts connections: what was sent on an earlier one is lost
        self.holder: Holder | None = None
        self.hears_ms: int | None = None  # of another holder

    def over(self) -> bool:
        """Whether it was cut off, and the others have not come down since."""
        lessee, now_ms = self.lessee, self.member.now_ms
        if lessee.cut_off(now_ms):
            self.was_cut_off = True
        elif self.was_cut_off and self.holder is self.seat.holder and lessee.session and self.holder.settled:
            lessor = self.holder.lessor
            assert lessor is not None, "it is settled"
            self.was_cut_off = any(lessor.used(key) > 1 for key in (*self.member.world.compared, DEFAULT_KEY))
        return self.was_cut_off

    def tick(self) -> None:
        """Report to the holder."""
        member = self.member
        self.over()
        self.hear()
        report = self.leasing.report(member.now_ms)
        if report is not None and self.holder is not None:
            holder, connection = self.holder, self.connection

            def arrive() -> None:
                if not holder.receive(
                    report,
                    lambda grants: self.transmit(connection, member, lambda: self.take(grants)),
                    Connection(member.name, connection),
                    member.place,
                    member.ended,
                ):
                    self.transmit(connection, member, lambda: self.reset(connection))

            self.transmit(connection, holder, arrive)

    def reset(self, connection: int) -> None:
        """Hear from the holder's kernel that a connection is not open there."""
        if connection == self.connection:
            self.reconnect()

    def hear(self) -> None:
        """Connect to another holder, some time after it was chosen."""
        member, world, chosen = self.member, self.member.world, self.seat.holder
        if self.holder is chosen:
            return
        if self.hears_ms is None:
            looks = self.holder is None or not member.reaches(self.holder)
            lag_ms = 0 if looks else world.random.randint(0, world.faults.lag_ms_max)
            self.hears_ms = world.now_ms + lag_ms
        if world.now_ms >= self.hears_ms and member.reaches(chosen):
            self.reconnect()
            self.holder, self.hears_ms = chosen, None

    def transmit(self, connection: int, to: Process, act: Callable[[], None]) -> None:
        """Send on a connection with the holder, which may break."""
        world = self.member.world
        assert self.holder is not None, "it was connected to"
        if connection != self.connection or not self.member.reaches(self.holder):
            return
        if world.random.random() < world.faults.breaks:
            self.reconnect()
            return
        world.send(to, act)
        if world.random.random() < world.faults.repeats:
            world.send(to, act)

    def reconnect(self) -> None:
        """Begin another connection; the holder sees the end of this one."""
        self.close()
        self.connection += 1
        self.lessee.lose()

    def close(self) -> None:
        """Have the holder see that this side has closed the connection, as soon as messages arrive."""
        member, world = self.member, self.member.world
        holder, connection = self.holder, Connection(member.name, self.connection)
        if holder is None:
            return

        def arrive() -> None:
            if member.reaches(holder):
                world.send(holder, lambda: holder.sees_close(connection))
            elif world.now_ms < member.cut_until_ms:
                world.at(member.cut_until_ms, arrive)

        arrive()

    def sees_end(self, holder: Holder) -> None:
        """Take the end of the connection by the holder's side, whose port refuses."""
        member, world = self.member, self.member.world
        if self.holder is holder and member.reaches(holder) and not holder.alive:
            member.ended.setdefault(holder.run_id, member.now_ms)
            for seat in world.seats:
                if seat.holder.home is member and seat.holder.lessor is not None:
                    seat.holder.lessor.ended(holder.run_id, member.now_ms)
            world.expel(holder)

    def take(self, grants: Grants | None) -> None:
        """Take the holder's grants."""
        if grants is None:
            self.lessee.lose()
        else:
            self.leasing.take(grants, self.member.now_ms)
            self.member.send()


class MemberProcess(Process):
    """A member's control process.

    Args:
        place: where it listens; that of one that has ended, or a new one.

    Attributes:
        ended: the runs of holders' processes that it has seen end, and when.
        links: its connection with the holder of each part.
    """

    def __init__(self, world: "World", workers: int, place: int | None = None) -> None:
        super().__init__(world)
        self.place = world.number() if place is None else place
        self.ended: dict[int, int] = {}
        self.cut_until_ms = -1
        self.cut_from: Holder | None = None  # None: from all
        self.name = name = LesseeId(f"member-{world.number()}", world.random.getrandbits(32))
        self.worker_terms = LeaseTerms(world.terms.lease_ms, 100, max(workers, 1))
        lessees = [Lessee(world.terms, name, self.now_ms) for _ in world.seats]
        parts = Parts(lessees) if len(lessees) > 1 else None
        self.member = Member(parts or lessees[0], self.worker_terms, self.now_ms)
        self.links = [
            Link(
                self,
                seat,
                lessee,
                self.member if parts is None else PartLeasing(parts, self.member, seat.part),
            )
            for seat, lessee in zip(world.seats, lessees, strict=True)
        ]
        self.workers = [world.worker(self) for _ in range(workers)]
        self.tick()

    def link(self, key: str) -> Link:
        """The connection with the holder of a key."""
        return self.links[part_of(key, len(self.links))]

    def reaches(self, holder: Holder) -> bool:
        """Whether messages arrive."""
        return self.world.now_ms >= self.cut_until_ms or self.cut_from not in (None, holder)

    def tick(self) -> None:
        """Report to the holders, and send what the workers are due."""
        if not self.alive:
            return
        world = self.world
        world.at(world.now_ms + TICK_MS // 2, lambda: self.run(self.tick))
        for link in self.links:
            link.tick()
        self.send()

    def reconnect(self) -> None:
        """Begin another connection with each holder."""
        for link in self.links:
            link.reconnect()

    def receive(self, report: Report, worker: Worker) -> None:
        """Take a worker's report."""
        world = self.world
        world.responses[self, worker.name] = lambda grants: world.send(worker, lambda: worker.take(grants))
        try:
            self.member.workers.report(report, self.now_ms)
        except (SessionLostError, LeaseRefusedError):
            world.responses[self, worker.name](None)

    def send(self) -> None:
        """Send the workers what is due."""
        for lessee, grants in self.member.grants(self.now_ms):
            self.world.responses[self, lessee](grants)

    def kill_worker(self, worker: Worker) -> None:
        """Kill a worker, which its parent knows at once; another one begins."""
        worker.end()
        self.member.workers.leave(worker.name)
        self.workers.remove(worker)
        self.workers.append(self.world.worker(self))

    def kill(self, *, holds_on: bool = False) -> None:
        """Kill the member's control process; its workers drain, and end.

        Args:
            holds_on: whether the holder, which is a part of it, ends later.
        """
        self.alive = False
        for link in self.links:
            link.close()
        self.world.orphans += self.workers
        if not holds_on:
            self.world.ends(self)

    def leave(self, *, holds_on: bool = False) -> None:
        """End in order: its workers have ended, and the holder is told."""
        for worker in self.workers:
            worker.end()
        self.kill(holds_on=holds_on)
        for link in self.links:
            if link.holder is not None and self.reaches(link.holder):
                self.world.send(link.holder, partial(link.holder.leave, self.name))
