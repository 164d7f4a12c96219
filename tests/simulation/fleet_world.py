"""A fleet in virtual time: a holder, members, and their workers, whose messages are delayed, lost, and repeated.

Processes are suspended, killed and started again, connections break, the holder moves, the whole fleet is stopped and
started. Whenever a share rises, the shares that all running processes may use are added up and compared with the bound:
the budget, and one cut-off share for each member that is cut off (fleet.md, "Budgets").
"""

import heapq
from collections.abc import Callable
from random import Random
from typing import Final

from quotas.sharing.lease_values import Grants, LeaseTerms, LesseeId, Wish
from tests.simulation.fleet_faults import ALL_FAULTS, SHORT_MS, Faults
from tests.simulation.fleet_ledger import Ledger
from tests.simulation.fleet_processes import (
    KEY,
    KEYS,
    TENURES,
    TICK_MS,
    WORKER_LEASE_MS,
    Holder,
    MemberProcess,
    Process,
    Worker,
)

__all__ = ["KEY", "MEMBERS_MAX", "World", "chaotic"]

LEASE_MS: Final = 15_000
MEMBERS_MAX: Final = 4
_MEMBERS_MORE: Final = 6  # another `members_max`, for a while
_COMPARED: Final = (*KEYS, "not named")
_ROUNDING: Final = 1e-9


def chaotic(seed: int, faults: Faults = ALL_FAULTS, seconds: int = 20) -> "World":
    """Run a fleet with faults; an AssertionError names the time and the key."""
    draw = Random(seed)
    world = World(seed, draw.randint(1, MEMBERS_MAX), draw.randint(1, 3), faults, SHORT_MS)
    world.chaos()
    world.run(seconds * 1000)
    return world


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
