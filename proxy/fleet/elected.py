"""Connects the Kafka group that chooses the holder, which has a thread of its own, with this member's port."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from proxy.config import Address, FleetOptions
from proxy.events import Tell, untold
from proxy.events.kinds import holder_moved
from proxy.fleet.group import FleetGroup
from proxy.fleet.port import HolderPort
from proxy.fleet.standing import Ruling
from proxy.logs import event
from proxy.metrics.fleet import FleetFigures
from proxy.topic_log.access import Access
from proxy.topic_log.records import Problem
from proxy.topic_log.thread import LoopThread
from quotas.sharing.lease_values import LeaseTerms
from quotas.sharing.lessor import Lessor

__all__ = ["Elected"]

TENURE_MS: Final = 5000
_RESIGN_SECONDS_MAX: Final = 2.0
NO_HOLDER: Final = "no member can be the holder"

logger = logging.getLogger(__name__)


class Elected:
    """One member of the group; its port serves while this member is the holder.

    Args:
        access: the access to the group's cluster.
        port: this member's port.
        terms: returns the terms between the holder and its members.
        tell: takes events.

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
    ) -> None:
        self._tell = tell
        self._holder: str | None = None  # its name; "" for none, None before the first ruling
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
        self._group = FleetGroup(access, options.group, options.own_name, TENURE_MS, lasting_ms, self, now_ms)
        self._thread = LoopThread("fleet")
        self._thread.submit(self._group.run())

    def bound(self) -> None:
        """Note that the port is bound: this member may be the holder from now on."""
        self._thread.submit(self._group.advertise(self._options.own_address))

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

    def confirmed(self, sent_ms: int, learning_ms: int) -> None:
        """Take Kafka's confirmation that this member was the holder at `sent_ms`; a new holder learns `learning_ms`."""
        self._call(self._confirmed, sent_ms, learning_ms)

    def group_problem(self, problem: Problem | None) -> None:
        """Take the reason why the group cannot be used; None if it can."""
        self._call(self._note_problem, problem)

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

    def _confirmed(self, sent_ms: int, learning_ms: int) -> None:
        """Register the confirmation; become the holder if this member is not yet.

        It is never the holder before Kafka has its commit, which its successor reads.
        """
        if self._closing:
            return
        if self._port.lessor is None:
            at_ms = self._now_ms()
            lessor = Lessor(self._terms(), secrets.randbits(63), lambda _: 1.0, at_ms, learning_ms)
            self._port.lead(lessor, at_ms + learning_ms, TENURE_MS)
        self._port.confirm(sent_ms)

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


def _differs(problem: Problem, before: Problem | None) -> bool:
    """Whether a problem is logged: its cause, or the missing permission, differs from that of the last one."""
    if before is None or before.cause != problem.cause:
        return True
    return problem.cause == "denied" and before.text != problem.text
