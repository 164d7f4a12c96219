"""A fleet in virtual time: a holder, members, and their workers, whose messages are delayed, lost, and repeated.

Processes are suspended, killed and started again, connections break, the holder moves, the whole fleet is stopped and
started. Whenever a share rises, the shares that all running processes may use are added up and compared with the bound:
the budget, and one cut-off share for each member that is cut off (fleet.md, "Budgets").
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Final

from quotas.sharing.lease_values import Grants, LeaseTerms, LesseeId, Wish
from tests.simulation.clock import Clock
from tests.simulation.fleet_faults import ALL_FAULTS, SHORT_MS, Faults
from tests.simulation.fleet_ledger import Ledger
from tests.simulation.fleet_processes import (
    KEY,
    KEYS,
    TENURES,
    TICK_MS,
    Connection,
    Holder,
    MemberProcess,
    Process,
    Seat,
    Worker,
)

LEASE_MS: Final = 15_000
MEMBERS_MAX: Final = 4
_MEMBERS_MORE: Final = 6  # another `members_max`, for a while
_ROUNDING: Final = 1e-9
_STOPPED_MS: Final = 500  # a member is stopped for longer, while its lease ends
_JOIN_MS_MAX: Final = 1000  # for all members to join the group again
_SESSIONS: Final = 6 / 15  # of a lease: until Kafka takes a silent member for gone


def chaotic(seed: int, faults: Faults = ALL_FAULTS, seconds: int = 20, parts: int = 1) -> "World":
    """Run a fleet with faults; an AssertionError names the time and the key."""
    draw = Random(seed)
    world = World(seed, draw.randint(1, MEMBERS_MAX), draw.randint(1, 3), faults, SHORT_MS, parts)
    world.chaos()
    world.run(seconds * 1000)
    return world


class World(Clock):
    """All processes, and the events to come.

    Args:
        members: how many there are.
        workers: of each member.
        parts: of the keys, each with a holder.

    Attributes:
        compared: the keys whose shares are compared with the bound.
        seats: the parts, as Kafka knows them. They are as independent as they can be: each has generations of its own.
        worst: the largest sum of shares that was used, less those of members that were cut off.
    """

    def __init__(
        self,
        seed: int,
        members: int,
        workers: int,
        faults: Faults | None = None,
        lease_ms: int = LEASE_MS,
        parts: int = 1,
    ) -> None:
        super().__init__()
        self.random = Random(seed)
        self.faults = faults or Faults()
        self.terms = LeaseTerms(lease_ms, lease_ms // 15, MEMBERS_MAX)
        self.seats = [Seat(part) for part in range(parts)]
        self.orphans: list[Worker] = []  # whose control process has ended
        self.all_members: list[MemberProcess] = []  # also those that have ended
        self.members: list[MemberProcess] = []
        self.demand: dict[LesseeId, dict[str, Wish]] = {}
        self.responses: dict[tuple[Process, LesseeId], Callable[[Grants | None], None]] = {}
        self._arrival_ms: dict[Process, int] = {}
        self.ledger = Ledger()
        self.compared: tuple[str, ...] = (*KEYS, "not named")
        self.worst = 0.0
        for seat in self.seats:
            self.move_holder(seat)
        self.workers_each = workers
        self.wave = False  # whether every worker wants KEY
        self.start(members)
        for seat in self.seats:
            seat.holder.settle_in(self.members[seat.part % members])

    @property
    def holder(self) -> Holder:
        """The holder of the first part."""
        return self.seats[0].holder

    def start(self, members: int, place: int | None = None) -> None:
        """Start members."""
        started = [MemberProcess(self, self.workers_each, place) for _ in range(members)]
        self.members += started
        self.all_members += started

    def worker(self, member: MemberProcess) -> Worker:
        """Start a worker."""
        worker = Worker(member)
        worker.tick()
        return worker

    def divider(self, holder: Holder) -> Callable[[str], float]:
        """Return what a holder asks which part of a key it may lease."""
        return lambda _: 1.0

    @property
    def workers(self) -> list[Worker]:
        """The workers of all members."""
        return [worker for member in self.members for worker in member.workers]

    def refuses(self, place: int) -> bool:
        """Whether no process listens there; one that is stopped does."""
        return not any(member.place == place for member in self.members if member.alive)

    def responds(self, place: int) -> bool:
        """Whether a process that runs can be reached there."""
        found = [member for member in self.members if member.place == place and member.running]
        return any(self.now_ms >= member.cut_until_ms for member in found)

    def ends(self, member: MemberProcess) -> None:
        """Do what follows from the end of a member's process, which may be the holder."""
        for seat in self.seats:
            holder = seat.holder
            if holder.home is not member:
                continue
            holder.alive = False
            for other in self.members:
                link = other.links[seat.part]
                if other.alive and link.holder is holder:
                    self.send(other, partial(link.sees_end, holder))
            silent_ms = int(self.terms.lease_ms * _SESSIONS)
            self.at(self.now_ms + silent_ms, partial(self.expel, holder))

    def expel(self, holder: Holder) -> None:
        """Have Kafka remove a holder, and the others join again."""
        if holder.seat.holder is holder and not holder.expelled:
            holder.expelled = True
            joined_ms = self.now_ms + self.random.randint(0, _JOIN_MS_MAX)
            self.at(joined_ms, partial(self.replace, holder))

    def replace(self, holder: Holder) -> None:
        """Have Kafka choose another holder in place of this one, unless it has."""
        if holder.seat.holder is holder:
            self.move_holder(holder.seat)

    def number(self) -> int:
        """Return another number each time."""
        return next(self.order)

    def clock(self) -> tuple[float, int]:
        """Return the rate and the offset of a host's clock."""
        return 1 + self.random.uniform(-1, 1) * self.faults.drift, self.random.randrange(1 << 40)

    def send(self, to: Process, act: Callable[[], None]) -> None:
        """Deliver a message after a while; messages to one process arrive in order."""
        ms = self.now_ms + int(self.random.random() * (self.faults.delay_ms_max + 1))
        ms = max(ms, self._arrival_ms.get(to, 0))
        self._arrival_ms[to] = ms
        self.at(ms, lambda: to.run(act))

    def used(self, key: str) -> float:
        """The share of a key that all processes may use now, without those that drain."""
        return sum(_used(member.workers, (key,))[0] for member in self.members)

    def check(self) -> None:
        """Compare what may be used with the bound; called whenever a process has taken shares, or runs again."""
        self.orphans = [worker for worker in self.orphans if worker.alive]
        totals = _used(self.orphans, self.compared)
        cut_off = [
            len({worker.member for worker in self.orphans if worker.member.link(key).was_cut_off})
            for key in self.compared
        ]
        for member in self.members:
            used = _used(member.workers, self.compared)
            for index, (key, share) in enumerate(zip(self.compared, used, strict=True)):
                link = member.link(key)
                cut_off[index] += member.alive and link.over()
                if not link.lessee.leased(member.now_ms):
                    assert share <= 1 / MEMBERS_MAX + _ROUNDING, (
                        f"{self.now_ms} ms: workers may use {share:.4f}, their member has no lease"
                    )
                totals[index] += share
        for key, share, cut in zip(self.compared, totals, cut_off, strict=True):
            assert share <= 1 + cut / MEMBERS_MAX + _ROUNDING, (
                f"{self.now_ms} ms: {share:.4f} of {key!r} may be used, {cut} members are cut off"
            )
            self.worst = max(self.worst, share - cut / MEMBERS_MAX)

    def want(self, worker: Worker, key: str, wanted: float, weight: float = 1.0) -> None:
        """Set a worker's demand; 0 ends it."""
        wishes = self.demand.setdefault(worker.name, {})
        wishes.pop(key, None)
        if wanted:
            wishes[key] = Wish(wanted, weight)

    def move_holder(self, seat: Seat | None = None) -> None:
        """Have Kafka choose another holder, of the first part by default; the one before does not know it yet.

        While there is no member to choose, it chooses the next one.
        """
        seat = seat or self.seats[0]
        homes = [member for member in self.members if member.alive]
        if not homes and self.all_members:
            self.at(self.now_ms + TICK_MS, partial(self.replace, seat.holder))
            return
        seat.generation += 1
        home = self.random.choice(homes) if homes else None
        seat.holder = holder = Holder(self, seat, home)
        self.at(self.now_ms, lambda: holder.run(holder.tick))

    def any_seat(self) -> Seat:
        """Return one of the parts."""
        return self.seats[0] if len(self.seats) == 1 else self.random.choice(self.seats)

    def stop(self, *, in_order: bool) -> None:
        """Stop all members, and start as many."""
        count = len(self.members)
        for member in self.members:
            # A holder that ends in order waits for the other members.
            holds = any(seat.holder.home is member for seat in self.seats)
            member.leave(holds_on=holds) if in_order else member.kill()
        self.members.clear()
        begins_ms = self.now_ms + 3 * TICK_MS
        self.at(begins_ms, lambda: self.start(count))
        for seat in self.seats:
            if in_order:
                self.at(self.now_ms + 2 * TICK_MS, seat.holder.resign)
            else:
                seat.holder.alive = False
            self.at(begins_ms, partial(self.move_holder, seat))

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
                self.end(member, in_order=draw() < 0.5)
                self.restart(member)
                continue
            self.separate(member)
            self.pause(member)
            for worker in list(member.workers):
                self.disturb(worker)
        if draw() < faults.moves:
            seat = self.any_seat()
            self.move(seat)
            if draw() < 0.5:  # again before the new one knows all members
                again_ms = self.now_ms + self.random.randint(0, self.terms.lease_ms // TENURES)
                self.at(again_ms, partial(self.move, seat))
        if draw() < faults.stops:
            self.stop(in_order=draw() < 0.5)
        if draw() < faults.resizes:
            self.resize(self.random.choice((MEMBERS_MAX, _MEMBERS_MORE)))
        self.check()

    def end(self, member: MemberProcess, *, in_order: bool = False) -> None:
        """End a member's process."""
        self.members.remove(member)
        for seat in self.seats:
            if in_order and seat.holder.home is member:
                seat.holder.resign()
        member.leave() if in_order else member.kill()

    def restart(self, member: MemberProcess) -> None:
        """Start another in place of a member that has ended: at once at the same place, or later, or elsewhere."""
        draw = self.random
        place = member.place if draw.random() < 0.7 else None
        self.at(self.now_ms + draw.choice((0, TICK_MS, 2000)), lambda: self.start(1, place))

    def gulp(self) -> None:
        """Use what is left of bursts, where no client waits and no key is named."""
        for worker in self.workers:
            worker.run(worker.spend)

    def gulp_twice(self) -> None:
        """Use bursts, begin with other workers, use theirs."""
        self.gulp()
        for member in self.members:
            if member.running:
                for worker in list(member.workers):
                    member.kill_worker(worker)
        self.at(self.now_ms + 3 * TICK_MS, self.gulp)

    def move(self, seat: Seat) -> None:
        """Have the holder of a part end in order now and then, and another one chosen."""
        if self.random.random() < 0.5:
            seat.holder.run(seat.holder.resign)
        self.move_holder(seat)

    def separate(self, member: MemberProcess) -> None:
        """Cut a member off now and then; suspend it while its lease ends, or have it find another holder before."""
        draw, faults, lease_ms = self.random.random, self.faults, self.terms.lease_ms
        if draw() < faults.cuts:
            member.cut_from = None if draw() < 0.5 else self.any_seat().holder
            member.cut_until_ms = self.now_ms + self.random.randint(1, faults.cut_ms_max)
            member.reconnect()
        elif draw() < faults.rifts:
            seat = self.any_seat()
            member.cut_from, member.cut_until_ms = seat.holder, self.now_ms + 2 * lease_ms
            member.reconnect()
            move_ms = self.now_ms + self.random.randint(2 * lease_ms // 3, lease_ms)
            self.at(move_ms, partial(self.move_holder, seat))
        link = member.links[self.any_seat().part]
        if draw() < faults.resets and link.holder is not None:
            # At the holder's side alone, as if by the member.
            holder, connection = link.holder, Connection(member.name, link.connection)
            self.send(holder, lambda: holder.sees_close(connection))
        left_ms = member.member.lessee.until_ms - member.now_ms
        if 0 < left_ms < _STOPPED_MS and draw() < faults.ends:
            self.suspend(member, _STOPPED_MS + 2 * TICK_MS)

    def resize(self, members_max: int) -> None:
        """Have some processes know another `members_max`."""
        self.terms = LeaseTerms(self.terms.lease_ms, self.terms.period_ms, members_max)
        for member in self.members:
            if self.random.random() < 0.5:
                member.member.lessee.terms = self.terms
        for seat in self.seats:
            if seat.holder.lessor is not None and self.random.random() < 0.5:
                seat.holder.lessor.configure(self.terms)

    def pause(self, process: Process) -> None:
        """Suspend a process now and then."""
        if self.random.random() < self.faults.pauses:
            self.suspend(process, self.random.randint(1, self.faults.pause_ms_max))

    def suspend(self, process: Process, ms: int) -> None:
        """Suspend a process; the holder with its member."""
        process.paused_until_ms = self.now_ms + ms
        for seat in self.seats:
            if seat.holder.home is process:
                seat.holder.paused_until_ms = process.paused_until_ms

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


def _used(workers: Iterable[Worker], keys: Sequence[str]) -> list[float]:
    """Return what workers may use of each key."""
    totals = [0.0] * len(keys)
    for worker in workers:
        if worker.running:
            share, now_ms = worker.lessee.share, worker.now_ms
            for index, key in enumerate(keys):
                totals[index] += share(key, now_ms)
    return totals
