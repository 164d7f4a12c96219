"""The shares of budgets: how much of each quota a worker may use, and in a fleet (`[fleet]`) this process.

A process by itself uses the shares that the fleet's holder leases to it. A control process leases its workers the whole
of each budget, or what the holder has leased to it; brokers replicate through control itself, so in a fleet it is one
more lessee of its own, beside the workers.

Each worker is a lessee, whose engine has the demands (`quotas.sharing.budgets`); control leases the whole of each
budget, or this member's share of it. Both send what is due every STEP_SECONDS. A worker whose lease has ended uses the
least share of each budget, which is never lent; so does one that starts.

The leases are as long as a member's: a control process that is stopped or slow costs no rate while they last. They end
with control: a worker that does not see it run uses the least share after LIVE_MS (`Lessee.live`). A worker that is
stopped keeps its part until its lease ends, or it does; the other workers only cannot have more meanwhile.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Final

from proxy.config import Config
from proxy.system.clock import now_ms
from proxy.system.hosts import FleetContexts
from quotas.definitions.classes import REPLICATION_BUCKET, Capacity, Terms
from quotas.sharing.budgets import Budgets
from quotas.sharing.capacities import Capacities, stated_terms
from quotas.sharing.lease_values import Grants, LeaseTerms, LesseeId, Report
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import LeaseRefusedError, Lessor, SessionLostError
from quotas.sharing.member import Member
from quotas.sharing.parts import Leasing, Parts
from quotas.sharing.replication import ReplicationShares

if TYPE_CHECKING:
    from proxy.fleet.fleet import Fleet
    from proxy.process.relay import Relay
    from proxy.topics.topic import Access

STEP_SECONDS: Final = 0.05
IDLE_STEP_SECONDS: Final = 0.15
_LEASE_MS: Final = 15_000
_PERIOD_MS: Final = 100
_CONTROL: Final = 0  # the control process's number among the workers
# What is due within this part of a step is not due again: a timer may fire a little too early.
_EARLY_PART: Final = 4


def terms_of(workers: int) -> LeaseTerms:
    """Return the terms of the leases between control and its workers: length, report period, number of lessees."""
    return LeaseTerms(_LEASE_MS, _PERIOD_MS, workers)


def lessee_of(terms: LeaseTerms, number: int, run: int, now_ms: int) -> Lessee:
    """Create the lessee of one worker process: the state of its lease of quota shares from control.

    Args:
        number: of the worker; 0 is control itself.
        run: a random number that identifies the process.
    """
    return Lessee(terms, _id(number, run), now_ms, cut_off=terms.least)


def capacities_of(relay: "Relay", lessee: Lessee | Parts | None = None) -> list[Capacities]:
    """Return what divides the capacities in this process, for each part of the keys, while it leases shares to others
    or to itself.

    Args:
        lessee: this process's leases as a member of a fleet; None if it is not.
    """
    if not relay.capacities:
        if isinstance(lessee, Parts):
            relay.capacities = [
                Capacities(lambda: relay.engine.definitions, lambda: lessee.factors(now_ms()))
                for _ in lessee.lessees
            ]
        else:
            relay.capacities = [Capacities(lambda: relay.engine.definitions)]
    return relay.capacities


class ControlShares:
    """Leases shares of all quotas to the workers: the lessor (the side that divides quotas) in the control process.

    Args:
        terms: the terms of the leases between control and its workers.
        run: a random number that identifies the control process.
        capacities: divides the capacities among classes; without a fleet.
        member: this process as a member of a fleet: the workers divide what the holder leases to it. None without a
            fleet: they divide the whole of each quota.

    Attributes:
        own: control's own lessee, and the budgets that set its shares at its limiters. None unless brokers replicate
            through control, which then uses shares itself.
    """

    def __init__(
        self, terms: LeaseTerms, run: int, capacities: Capacities, now_ms: int, member: Member | None = None
    ) -> None:
        self.terms = terms
        self._member = member
        self.own: tuple[Lessee, Budgets] | None = None
        self._lessor = Lessor(terms, run, capacities, now_ms, 0) if member is None else member.workers

    @property
    def busy(self) -> bool:
        """Whether shares may change soon: a worker wants a share of some quota, or control uses shares itself."""
        return bool(self._lessor.keys) or (self.own is not None and self.own[1].busy)

    def report(self, report: Report, now_ms: int) -> bool:
        """Pass a worker's report to the lessor; returns False if the worker needs a new session."""
        try:
            self._lessor.report(report, now_ms)
        except (SessionLostError, LeaseRefusedError):
            return False
        return True

    def grants(self, now_ms: int) -> Iterator[tuple[LesseeId, Grants]]:
        """Yield the grants to send now, each with the worker that gets it; control's own grants are applied here."""
        if self.own is not None:
            self._report(*self.own, now_ms)
        found = self._lessor.grants(now_ms) if self._member is None else self._member.grants(now_ms)
        for lessee, grants in found:
            if self.own is not None and lessee == self.own[0].name:
                self.own[1].take(grants, now_ms)
            else:
                yield lessee, grants

    def _report(self, own: Lessee, budgets: Budgets, now_ms: int) -> None:
        report = budgets.report(now_ms)
        if report is not None and not self.report(report, now_ms):
            own.lose()  # this process was suspended for longer than a lease

    def ended(self, number: int, run: int) -> None:
        """Free the shares of a worker that has ended; they may be granted to others immediately."""
        self._lessor.leave(_id(number, run))


def _id(number: int, run: int) -> LesseeId:
    return LesseeId(f"worker-{number}", run)


class OwnShares:
    """The loans of a process by itself: it has all of each quota, and leases to itself what classes may borrow.

    Args:
        replicates: whether brokers replicate through it.
    """

    def __init__(self, relay: "Relay", replicates: bool, now_ms: int) -> None:
        self._engine = relay.engine
        terms = LeaseTerms(_LEASE_MS, _PERIOD_MS, 1, never_lent=0.0)
        run = secrets.randbits(62)
        self._lessee = Lessee(terms, _id(_CONTROL, run), now_ms, cut_off=1.0, first=1.0)
        self._lessor = Lessor(terms, run, capacities_of(relay)[0], now_ms, 0)
        self._budgets = Budgets(relay.engine, self._lessee, now_ms)
        if replicates:
            self._budgets.replication = _replication(relay, self._lessee, alone=True)

    async def run(self) -> None:
        """Lend at intervals, until cancelled."""
        pace = Pace(asyncio.get_running_loop())
        self._budgets.begins = pace.wake
        self._engine.lend(self._budgets)
        while True:
            self.step(now_ms())
            await pace.pause(busy=self._budgets.busy)

    def step(self, now_ms: int) -> None:
        """Report what classes use, and take what they may borrow."""
        report = self._budgets.report(now_ms)
        if report is None:
            return
        try:
            self._lessor.report(report, now_ms)
        except SessionLostError:  # this process was suspended for longer than a lease
            self._lessee.lose()
        for _, grants in self._lessor.grants(now_ms):
            self._budgets.take(grants, now_ms)


def join(config: Config, relay: "Relay", access: "Callable[[], Access]", tls: FleetContexts) -> "Fleet":
    """Make this process, which has no workers, a member of the fleet: it then uses only the shares leased to it.

    Args:
        relay: this process's data path, which has no client yet.
        access: returns the access to the cluster whose group chooses the holder.
        tls: the TLS contexts between members.
    """
    from proxy.fleet.fleet import new_lessee

    began_ms = now_ms()
    lessee = new_lessee(config.fleet, began_ms)
    budgets = _budgets(config, relay, lessee, began_ms)
    relay.engine.share(budgets)
    return _fleet(config, relay, lessee, budgets, access, tls)


def join_with_workers(
    config: Config, workers: int, run: int, relay: "Relay", access: "Callable[[], Access]", tls: FleetContexts
) -> "tuple[ControlShares, Fleet | None]":
    """Return the shares that control leases to its workers, and its membership in a fleet; None without `[fleet]`.

    Args:
        workers: how many there are.
        run: a random number that identifies the control process.
        relay: control's own data path, which only serves replication.
        access: returns the access to the cluster whose group chooses the holder.
        tls: the TLS contexts between members.
    """
    began_ms = now_ms()
    terms = terms_of(workers + config.replicates)
    own = lessee_of(terms, _CONTROL, run, began_ms)
    if not config.fleet.configured:
        shares = ControlShares(terms, run, capacities_of(relay)[0], began_ms)
        if config.replicates:
            shares.own = own, _budgets(config, relay, own, began_ms, alone=True)
        return shares, None
    from proxy.fleet.fleet import new_lessee

    lessee = new_lessee(config.fleet, began_ms)
    member = Member(lessee, terms, began_ms)
    shares = ControlShares(terms, run, capacities_of(relay, lessee)[0], began_ms, member)
    if config.replicates:
        shares.own = own, _budgets(config, relay, own, began_ms)
    return shares, _fleet(config, relay, lessee, member, access, tls)


def _budgets(
    config: Config, relay: "Relay", lessee: Lessee | Parts, began_ms: int, *, alone: bool = False
) -> Budgets:
    """Return the budgets of a process that uses shares; with those of replication if brokers replicate through it.

    Args:
        alone: whether brokers replicate through no other process.
    """
    budgets = Budgets(relay.engine, lessee, began_ms)
    if config.replicates:
        budgets.replication = _replication(relay, lessee, alone=alone)
    return budgets


def _replication(relay: "Relay", lessee: Lessee | Parts, *, alone: bool) -> ReplicationShares:
    def class_of(quota_key: str) -> tuple[Capacity, Terms] | None:
        return stated_terms(quota_key, REPLICATION_BUCKET, relay.engine.definitions)

    return ReplicationShares(relay.replication, lessee, relay.reconsider, class_of, alone=alone)


def _fleet(
    config: Config,
    relay: "Relay",
    lessee: Lessee | Parts,
    leasing: "Leasing",
    access: "Callable[[], Access]",
    tls: FleetContexts,
) -> "Fleet":
    from proxy.fleet.facts import addresses_of, facts_of
    from proxy.fleet.fleet import Fleet

    engine, members_max = relay.engine, lessee.terms.lessees_max
    engine.definitions.keep_digest()
    addresses = addresses_of(config.fleet, config.admin)

    def facts() -> dict[str, str]:
        own = facts_of(config.quotas, config.reassignment, members_max, engine.options, engine.definitions)
        return {**own, **addresses}

    cluster = access() if config.fleet.holder is None else None
    return Fleet(config.fleet, lessee, leasing, facts, cluster, capacities_of(relay, lessee), tls)


class Pace:
    """Times the steps in which control sends grants and workers send reports: every STEP_SECONDS while shares may
    change, else every IDLE_STEP_SECONDS.

    Each step wakes the process, which is nearly all that a worker costs without requests. Its lease is renewed at each
    step, so a long pause must be a small part of a lease. Steps are due at the same times in all processes of the host:
    the reports of all workers then wake control once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken = asyncio.Event()
        self._idle = False

    def wake(self) -> None:
        """End a pause of IDLE_STEP_SECONDS immediately; a pause of STEP_SECONDS goes on."""
        if self._idle:
            self._woken.set()

    async def pause(self, *, busy: bool) -> None:
        """Wait until the next step is due.

        Args:
            busy: whether shares may change soon.
        """
        self._woken.clear()
        self._idle = not busy
        step = STEP_SECONDS if busy else IDLE_STEP_SECONDS
        seconds = step - monotonic() % step
        if seconds < step / _EARLY_PART:
            seconds += step
        end = self._loop.call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            self._idle = False
            end.cancel()
