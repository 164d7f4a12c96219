"""Connects the Kafka group that chooses the holder, which has a thread of its own, with this member's port."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from proxy.config import Address, FleetOptions
from proxy.events import Tell, untold
from proxy.events.kinds import holder_moved
from proxy.fleet.group import FleetGroup
from proxy.fleet.port import HolderPort
from proxy.fleet.refusals import AGAIN_MS
from proxy.fleet.roster import Past, Roster
from proxy.fleet.secret import FleetSecret
from proxy.fleet.standing import Ruling
from proxy.logs import event
from proxy.metrics.fleet import FleetFigures
from proxy.topic_log.access import Access
from proxy.topic_log.records import Problem
from proxy.topic_log.thread import LoopThread
from quotas.sharing.lease_values import LeaseTerms
from quotas.sharing.lessor import Lessor

TENURE_MS: Final = 5000
_RESIGN_SECONDS_MAX: Final = 2.0
NO_HOLDER: Final = "no member can be the holder"
_ENDED_MAX: Final = 64  # holders that have ended, as remembered
_ENDED_TOLD: Final = 4

logger = logging.getLogger(__name__)


class Elected:
    """One member of the group; its port serves while this member is the holder.

    Args:
        access: the access to the group's cluster.
        port: this member's port.
        terms: returns the terms between the holder and its members.
        tell: takes events.
        run: identifies this life of this process.
        secret: of the fleet; None: nothing is signed.

    Attributes:
        address: the holder's address by the group's last ruling; None if it is not known.
        problem: why the group cannot be used; None if it can.
    """

    def __init__(
        self,
        options: FleetOptions,
        access: Access,
        port: HolderPort,
        terms: Callable[[], LeaseTerms],
        now_ms: Callable[[], int],
        figures: FleetFigures,
        tell: Tell = untold,
        run: int = 0,
        secret: FleetSecret | None = None,
    ) -> None:
        self._run = run
        self._begun: Past | None = None  # what the present lessor began with, or the last one
        self._ended: dict[int, int] = {}  # the runs of holders that have ended, and when that was seen
        port.enlists = self._enlist
        self._tell = tell
        self._holder: str | None = None  # its name; "" for none, None before the first ruling
        self._unsigned_ms: dict[str, int] = {}  # when the last line was logged
        self._options = options
        self._port = port
        self._terms = terms
        self._now_ms = now_ms
        self._figures = figures
        self._loop = asyncio.get_running_loop()
        self.address: Address | None = None
        self.problem: Problem | None = None
        self._closing = False
        lasting_ms = terms().lasting_ms(TENURE_MS)
        self._group = FleetGroup(
            access, options.group, options.own_name, TENURE_MS, lasting_ms, self, now_ms, run, secret
        )
        self._thread = LoopThread("fleet")
        self._thread.submit(self._group.run())

    def bound(self) -> None:
        """Note that the port is bound: this member may be the holder from now on."""
        self._thread.submit(self._group.advertise(self._options.own_address))

    @property
    def ended(self) -> str:
        """The runs of the last holders that this member has seen end; also the next holder is to know them."""
        return " ".join(f"{run:x}" for run in list(self._ended)[-_ENDED_TOLD:])

    def holder_ended(self, address: Address, run: int) -> None:
        """Note that the process of the holder has ended (`ends`): its shares are free, and it is no member any more."""
        now_ms = self._now_ms()
        if len(self._ended) >= _ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        self._ended[run] = now_ms
        if self._port.lessor is not None:
            self._port.lessor.ended(run, now_ms)
        self._thread.submit(self._group.expel(address))

    async def close(self) -> None:
        """Leave the group, so that another member is chosen at once.

        A holder retires first, and commits how long its leases may last.
        """
        self._closing = True
        lasting_ms = self._port.lasting_ms()
        self._port.retire("the holder has ended")
        if lasting_ms is not None:
            resigned = asyncio.wrap_future(self._thread.submit(self._group.resign(lasting_ms)))
            with suppress(TimeoutError):
                await asyncio.wait_for(resigned, _RESIGN_SECONDS_MAX)
        await asyncio.to_thread(self._thread.close)

    # Called in the group's thread.

    def ruled(self, ruling: Ruling, mine: bool) -> None:
        """Take a ruling of the group; `mine` is whether this member is the holder."""
        self._call(self._ruled, ruling, mine)

    def confirmed(self, sent_ms: int, learning_ms: int, roster: Roster) -> None:
        """Take Kafka's confirmation that this member was the holder at `sent_ms`; a new holder learns `learning_ms`."""
        self._call(self._confirmed, sent_ms, learning_ms, roster)

    def group_problem(self, problem: Problem | None) -> None:
        """Take the reason why the group cannot be used; None if it can."""
        self._call(self._note_problem, problem)

    def unsigned(self, what: str, count: int = 1, member: str = "") -> None:
        """Note that claims, a ruling or a commit were ignored, since they are not signed with the fleet's secret."""
        self._call(self._note_unsigned, what, count, member)

    def _call(self, act: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, *arguments)

    # Called in the application's loop.

    def _ruled(self, ruling: Ruling, mine: bool) -> None:
        self.address = ruling.address
        before, self._holder = self._holder, ruling.name
        if before is not None and before != ruling.name:
            self._tell(holder_moved(before, ruling.name, str(ruling.address or "")))
        if not mine:
            self._port.retire(
                f"{ruling.name} is the holder, at {ruling.address}" if ruling.name else NO_HOLDER
            )

    def _confirmed(self, sent_ms: int, learning_ms: int, roster: Roster) -> None:
        """Register the confirmation; become the holder if this member is not yet.

        It is never the holder before Kafka has its commit, which its successor reads.
        """
        if self._closing:
            return
        if roster.begun is not self._begun:
            self._port.retire("another member was the holder meanwhile")
        lessor = self._port.lessor
        if lessor is None:
            lessor = self._lead(learning_ms, roster)
        self._port.confirm(sent_ms)
        if roster.begun is self._begun:
            lessor.enlist(roster.number)

    def _lead(self, learning_ms: int, roster: Roster) -> Lessor:
        """Become the holder."""
        at_ms, again = self._now_ms(), roster.begun is self._begun
        begun = Past(self._run, None) if again else roster.begun
        lessor = Lessor(self._terms(), self._run, _whole, at_ms, learning_ms, begun.lessees)
        if again:  # its tenure was over: what the group has is the roster of the lessor before
            lessor.enlist(-1)
            self._thread.submit(self._group.enlist(roster, Roster(begun, 0, None)))
        self._begun = begun
        for run, ended_ms in self._ended.items():
            lessor.ended(run, ended_ms)
        self._port.lead(lessor, TENURE_MS)
        return lessor

    def _enlist(self, number: int, lessees: frozenset[int] | None) -> None:
        """Have the roster of this holder committed, after a change."""
        if self._begun is not None:
            roster = Roster(self._begun, number, lessees)
            self._thread.submit(self._group.enlist(roster, roster))

    def _note_unsigned(self, what: str, count: int, member: str) -> None:
        """Count it; log one line for each kind in ten minutes."""
        self._figures.unsigned[what] += count
        now_ms = self._now_ms()
        if now_ms < self._unsigned_ms.get(what, 0):
            return
        self._unsigned_ms[what] = now_ms + AGAIN_MS
        event(
            logger,
            logging.WARNING,
            "ignored in the group of the fleet: it is not signed with fleet.secret_file",
            group=self._options.group,
            what=what,
            member=member,
        )

    def _note_problem(self, problem: Problem | None) -> None:
        """Log one line for each problem, not for each attempt; the texts of one cause may vary between attempts."""
        group, before = self._options.group, self.problem
        self.problem, self._figures.group_problem = problem, "" if problem is None else problem.cause
        if problem is None:
            if before is not None:
                event(logger, logging.INFO, "the group of the fleet can be used again", group=group)
        elif _differs(problem, before):
            event(
                logger,
                logging.WARNING,
                "the group of the fleet cannot be used",
                group=group,
                cause=problem.cause,
                detail=problem.text,
            )


def _whole(_key: str) -> float:
    """Return 1: the holder of a fleet leases the whole of each quota."""
    return 1.0


def _differs(problem: Problem, before: Problem | None) -> bool:
    """Whether a problem is logged: its cause, or the missing permission, differs from that of the last one."""
    if before is None or before.cause != problem.cause:
        return True
    return problem.cause == "denied" and before.text != problem.text
