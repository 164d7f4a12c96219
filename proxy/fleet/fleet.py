"""One member of a fleet, as configured: its connection to the holder, its port, its membership of the group.

The holder is named by `[fleet] holder`, or a Kafka group chooses it; then every member has a port, and only that of the
holder serves members. A port that another process still uses (in a rolling upgrade) is bound when it is free; until
then this member cannot be the holder.
"""

import asyncio
import errno
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from commandline.arguments import not_installed
from proxy.config import Address, FleetOptions
from proxy.events import Tell, untold
from proxy.fleet.calls import BUSY, Respond
from proxy.fleet.client import FleetClient
from proxy.fleet.facts import ENDED, LISTENS, part_of_connection, state_of
from proxy.fleet.messages import NAME_BYTES_MAX, Facts, cut
from proxy.fleet.port import HolderPort
from proxy.fleet.secret import FleetSecret, secret_problem
from proxy.metrics.families import Family
from proxy.metrics.fleet import FleetFigures, FleetMetrics
from proxy.system.clock import now_ms
from proxy.system.errors import StartError
from proxy.system.hosts import PLAINTEXT, FleetContexts
from proxy.system.logs import event
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import DEFAULT_KEY, LeaseTerms, LesseeId
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.parts import Leasing, PartLeasing, Parts

if TYPE_CHECKING:
    from proxy.fleet.elected import Elected
    from proxy.topics.topic import Access


LEASE_MS: Final = 15_000
PERIOD_MS: Final = 1000
_BIND_AGAIN_SECONDS: Final = 0.5
_LEAVE_SECONDS: Final = 0.1
# A holder that ends waits so long for members that end with it: what they leave, the next one need not learn.
_END_SECONDS: Final = 1.0
_IN_USE: Final = os.strerror(errno.EADDRINUSE)

logger = logging.getLogger(__name__)


def fleet_terms(options: FleetOptions) -> LeaseTerms:
    """Return the terms of the leases that the holder gives its members: length, report period, number of members."""
    return LeaseTerms(LEASE_MS, PERIOD_MS, options.members_max)


def new_lessee(options: FleetOptions, now_ms: int) -> Lessee | Parts:
    """Create this member's side of the lease (`Lessee`); its id is new at each start of the process.

    If the keys are divided into parts, it has a lease for each of them (`Parts`).
    """
    terms = fleet_terms(options)
    cut_off = terms.least if options.cut_off == "least" else None
    name = LesseeId(cut(options.own_name, NAME_BYTES_MAX), secrets.randbits(63))
    lessees = [Lessee(terms, name, now_ms, cut_off) for _ in range(options.parts)]
    return lessees[0] if options.parts == 1 else Parts(lessees)


class Fleet:
    """This process's membership in a fleet, as the application uses it.

    Args:
        lessee: this member's side of the lease from the holder.
        leasing: applies grants to the quotas of this process and its workers, and makes the reports.
        facts: returns the settings and addresses that members compare (`facts`).
        access: the access to the group's cluster; None if the configuration names the holder.
        capacities: of each part of the keys; divide the capacities among classes while this member is the holder.
        tls: the TLS contexts between members.

    Attributes:
        tell: called with each event, as of another holder; set before `start`.
    """

    def __init__(
        self,
        options: FleetOptions,
        lessee: Lessee | Parts,
        leasing: Leasing,
        facts: Callable[[], Facts],
        access: "Access | None",
        capacities: Sequence[Capacities],
        tls: FleetContexts = PLAINTEXT,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        assert (access is None) == (options.holder is not None), "a group chooses the holder, or it is named"
        self.tell: Tell = untold
        self._options = options
        self._lessee = lessee
        self._now_ms = now_ms
        self._begun_ms = now_ms()
        self._figures = figures = FleetFigures()
        self._access = access
        self._capacities = capacities
        self._elected: Elected | None = None
        self._responds: dict[bytes, Respond] = {}  # by mark
        self._bind_problem = ""
        self._bound: Address | None = None
        self._secret = secret = FleetSecret(options.secret_file)
        self._port = HolderPort(options.members_max, secret, now_ms, figures, tls.port, options.parts)
        each: list[tuple[Lessee, Leasing]]
        if isinstance(lessee, Parts):
            each = [(one, PartLeasing(lessee, leasing, part)) for part, one in enumerate(lessee.lessees)]
        else:
            each = [(lessee, leasing)]
        self._clients = [
            FleetClient(
                one,
                its,
                partial(self._holder_of, part),
                secret,
                now_ms,
                partial(self._told, part),
                figures,
                tls.client,
                (part, options.parts),
            )
            for part, (one, its) in enumerate(each)
        ]
        self._client = self._clients[0]  # what is not about shares is asked of the first part's holder
        self._facts = facts
        self._metrics = FleetMetrics(figures, lessee, now_ms)

    @property
    def holder(self) -> Address | None:
        """The address of the holder, of the first part if there are several; None if it is not known."""
        return self._holder_of(0)

    def _holder_of(self, part: int) -> Address | None:
        return self._options.holder if self._elected is None else self._elected.addresses[part]

    @property
    def tenure(self) -> int:
        """The number of this member's present time as the holder, counted from 1; 0 if it is not. Thread-safe."""
        return self._port.tenure

    @property
    def not_ready(self) -> str:
        """Why no client should be led to this member yet: it has begun, and waits for shares; "" afterwards.

        Until the holder leases it more it has the least share of each quota. It waits for a lease's length at most.
        """
        now_ms, lessee = self._now_ms(), self._lessee
        if now_ms >= self._begun_ms + LEASE_MS or lessee.share(DEFAULT_KEY, now_ms) > lessee.terms.least:
            return ""
        return "the holder of the fleet has not leased shares to this member yet"

    def holds(self, part: int) -> bool:
        """Whether this member is the holder of a part of the keys."""
        return self._port.seats[part].tenure > 0

    async def ask(self, content: bytes, seconds: float, part: int = 0) -> bytes:
        """Send the holder of a part a request that is not about shares (`calls`); return the content of the response.

        Raises:
            NoResponseError: there is no connection, or no response within `seconds`.
        """
        return await self._clients[part].ask(content, seconds)

    def respond_with(self, respond: Respond, mark: bytes = b"") -> None:
        """Set a function that handles requests of `ask`, of all members, while this member is the holder.

        Args:
            mark: how the requests begin that it handles; it gets the rest. "" for those that no other mark begins.
        """
        self._responds[mark] = respond
        self._port.responding.respond = self._respond

    async def _respond(self, content: bytes) -> bytes:
        """Pass a member's request to the function with the mark that it begins with."""
        for mark, respond in sorted(self._responds.items(), reverse=True):
            if content.startswith(mark):
                return await respond(content[len(mark) :])
        return BUSY

    def loans(self) -> Mapping[str, float]:
        """Return by loan key the parts of capacities that are lent to this member now."""
        now_ms = self._now_ms()
        return {key: self._lessee.share(key, now_ms) for key in self._lessee.loans}

    async def start(self) -> None:
        """Join the group, and bind the port if this member may be the holder.

        Raises:
            StartError: the secret cannot be used, aiokafka is missing, or the port cannot be bound. A port that is in
                use is no error: `run` binds it when it is free.
        """
        try:
            await self._secret.read()
        except OSError as error:
            raise StartError(secret_problem(self._options.secret_file, error)) from None
        if self._access is not None:
            self._elected = self._elect(self._access)
            for client in self._clients:
                client.holder_ended = self._elected.holder_ended
        if self._options.may_hold:
            await self._bind()

    async def run(self) -> None:
        """Run the connection to the holder, and the port, until cancelled; bind the port first if it was in use."""
        async with asyncio.TaskGroup() as tasks:
            for client in self._clients:
                tasks.create_task(client.run())
            tasks.create_task(self._port.run())
            if self._bound is None and self._options.may_hold:
                tasks.create_task(self._bind_later())

    def configure(self, options: FleetOptions) -> None:
        """Apply a reloaded configuration; only `members_max` can change without a restart."""
        terms = fleet_terms(options)
        if terms == self._lessee.terms:
            return
        self._lessee.terms = terms
        self._port.members_max = options.members_max
        for seat in self._port.seats:
            if seat.lessor is not None:
                seat.lessor.configure(terms)

    def families(self) -> Iterator[Family]:
        """Yield the metrics of this member; if it is the holder, also those of its port."""
        return self._metrics.families()

    def state(self) -> Mapping[str, object]:
        """Return the state of the fleet as this member knows it, as values of JSON."""
        view = self._port.view() or self._client.view
        problem = None if self._elected is None else self._elected.problem
        return {
            "holder": None if self.holder is None else str(self.holder),
            "holds": self._figures.holds,
            "parts": self._options.parts,
            "parts_held": self._figures.parts,
            "problem": next((client.problem for client in self._clients if client.problem), ""),
            "group": None if self._elected is None else self._options.group,
            "group_problem": "" if problem is None else problem.text,
            "port_problem": self._bind_problem,
            **state_of(self._lessee, view, self._client.disagreements.lasting.values(), self._now_ms()),
        }

    async def close(self) -> None:
        """Leave the fleet; call it when this process no longer uses its shares."""
        for client in self._clients:
            client.leave()
        await asyncio.sleep(_LEAVE_SECONDS)
        if self._elected is not None:
            await self._others_end()
            await self._elected.close()
        await self._port.close()

    async def _others_end(self) -> None:
        """Wait until no other member has a lease, at most for a limited time."""
        for _ in range(round(_END_SECONDS / _LEAVE_SECONDS)):
            if not any(seat.lasting_ms() for seat in self._port.seats):
                return
            await asyncio.sleep(_LEAVE_SECONDS)

    def _elect(self, access: "Access") -> "Elected":
        try:
            from proxy.fleet.elected import Elected
        except ImportError as error:
            raise StartError(f"[fleet] without holder: {not_installed('aiokafka', 'fleet')}") from error
        return Elected(
            self._options,
            access,
            self._port,
            lambda: self._lessee.terms,
            self._capacities,
            self._now_ms,
            self._figures,
            self.tell,
            self._lessee.name.run,
            self._secret,
        )

    def _told(self, part: int) -> Facts:
        """Return the facts that this member sends to a part's holder about itself; also its port, as soon as it is
        bound.
        """
        told = {**self._facts(), **part_of_connection(part, self._options.parts)}
        if self._bound is not None:
            told[LISTENS] = str(self._bound.port)
        if self._elected is not None and self._elected.ended:
            told[ENDED] = self._elected.ended
        return told

    async def _bind(self) -> None:
        options = self._options
        assert options.bind is not None, "the configuration was checked"
        try:
            bound = await self._port.start(options.bind)
        except StartError as error:
            if _IN_USE not in str(error):
                raise
            if not self._bind_problem:
                self._bind_problem = str(error)
                event(
                    logger,
                    logging.INFO,
                    "the fleet's port is in use; it is bound when it is free",
                    bind=str(options.bind),
                )
            return
        self._bound, self._bind_problem = bound, ""
        if self._elected is not None:
            self._elected.bound()
        else:
            self._lead()

    async def _bind_later(self) -> None:
        while self._bound is None:
            await asyncio.sleep(_BIND_AGAIN_SECONDS)
            await self._bind()

    def _lead(self) -> None:
        at_ms = self._now_ms()
        self._port.lead(
            Lessor(self._lessee.terms, self._lessee.name.run, self._capacities[0].begin(), at_ms, LEASE_MS)
        )
