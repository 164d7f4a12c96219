"""Requests of a member that is not the holder, decided by the holder over the fleet's signed connection.

    member   permission, by the broker ─► plan ───────────► holder: validate, journal
             first steps, by the broker ◄─ what to send ◄──
             response ─► conclude ────────────────────────► holder: journal the result
             caller   ◄─ outcomes ◄────────────────────────

What belongs to the caller stays where the caller is: the broker judges its rights, and its own connection takes its
first steps. Contents are the messages of AlterPartitionReassignments themselves (KIP-455):

    plan       u8 1, request body        ─► u8 1, id u64, journaled u8, request body: the broker's part
    conclude   u8 2, id u64, response    ─► u8 2, sequence u64, response: the outcomes
                                         ─► u8 3, cause u8, text: why not

An answer that is lost leaves an undecided request in the journal, of which the executor finds out what has happened,
as of a caller's lost connection. A plan is kept at the holder for PLAN_SECONDS_MAX.
"""

import asyncio
import struct
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any, Final, Protocol, TypeVar

from protocol.errors import WireError
from protocol.messages import reassignments
from protocol.messages.reassignments import AlterRequest, AlterResponse
from proxy.fleet.calls import BUSY, UnansweredError
from proxy.reassign.async_journal import AsyncJournal
from proxy.reassign.cluster import ClusterError
from proxy.reassign.decisions import Decisions, NoExecutorError, Outcomes, Planned
from proxy.reassign.journal import JournalError
from proxy.system.threads import run_in_thread

T = TypeVar("T")

PLANS_MAX: Final = 1000
PLAN_SECONDS_MAX: Final = 60.0  # longer than a broker takes to respond
ASK_SECONDS_MAX: Final = 20.0
_SEEN_SECONDS_MAX: Final = 2.0
_SEEN_PAUSE_SECONDS: Final = 0.02
_VERSION: Final = 1
_PLAN, _CONCLUDE, _REFUSED = 1, 2, 3
_HEAD: Final = struct.Struct(">BQ")
_TEXT_BYTES_MAX: Final = 1000
_CAUSES: Final = (NoExecutorError, JournalError, ClusterError)


class FleetMember(Protocol):
    """The fleet, as `proxy.fleet.fleet.Fleet`."""

    @property
    def tenure(self) -> int:
        """The number of this member's tenure as the holder; 0: it is not."""

    async def ask(self, content: bytes, seconds: float) -> bytes:
        """Ask the holder; raises UnansweredError."""


class Forwarding:
    """Decides here while this process executes, and has the holder decide otherwise.

    Args:
        local: decides here.
        executes: whether this process does now.
        fleet: None without one.

    Attributes:
        forwarded: counts requests that the holder was asked for, by result: "answered", "refused", "unanswered".
    """

    def __init__(
        self,
        local: Decisions,
        executes: Callable[[], bool],
        fleet: Callable[[], FleetMember | None],
        journal: AsyncJournal,
    ) -> None:
        self._local = local
        self._executes = executes
        self._fleet = fleet
        self._journal = journal
        self.forwarded: Counter[str] = Counter()

    async def plan(self, request: AlterRequest) -> Planned:
        """See `Decisions`."""
        if self._executes():
            return await self._local.plan(request)
        fleet = self._fleet()
        if fleet is None or fleet.tenure:
            raise NoExecutorError(self._journal.problem or "no process executes reassignments for now")
        body = await run_in_thread(reassignments.request_body, request, _VERSION)
        answer = await self._ask(fleet, bytes((_PLAN,)) + body, _PLAN)
        _, token = _HEAD.unpack_from(answer)
        sent = await _read(reassignments.read_alter_request, answer, _HEAD.size + 1, _VERSION)
        return Planned(request, dict(sent.wanted), bool(answer[_HEAD.size]), int(token))

    async def conclude(self, planned: Planned, response: AlterResponse) -> Outcomes:
        """See `Decisions`; what the holder has journaled is shown here when this returns."""
        token = planned.token
        if not isinstance(token, int):
            return await self._local.conclude(planned, response)
        fleet = self._fleet()
        if fleet is None:
            raise JournalError("this process is not a member of a fleet")
        content = await run_in_thread(reassignments.write_alter_response, response, _VERSION, 0)
        try:
            answer = await self._ask(fleet, _HEAD.pack(_CONCLUDE, token) + content, _CONCLUDE)
        except NoExecutorError as error:
            raise JournalError(str(error)) from error  # the first steps may be under way
        _, sequence = _HEAD.unpack_from(answer)
        found = await _read(reassignments.read_alter_response, answer[_HEAD.size :], _VERSION)
        await self._see(int(sequence))
        return found.partitions

    async def _ask(self, fleet: FleetMember, content: bytes, kind: int) -> bytes:
        try:
            answer = await fleet.ask(content, ASK_SECONDS_MAX)
        except UnansweredError as error:
            self.forwarded["unanswered"] += 1
            if error.sent:
                raise JournalError(f"the holder: {error}") from error
            raise NoExecutorError(f"the holder: {error}") from error
        if len(answer) > _HEAD.size and answer[0] == kind:
            self.forwarded["answered"] += 1
            return answer
        self.forwarded["refused"] += 1
        if len(answer) > 1 and answer[0] == _REFUSED and answer[1] < len(_CAUSES):
            raise _CAUSES[answer[1]](answer[2:].decode("utf-8", "replace"))
        raise NoExecutorError("the holder has too many questions to answer, or no journal in a topic")

    async def _see(self, sequence: int) -> None:
        """Wait until this process has read what the holder has written: the caller may list it next."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SEEN_SECONDS_MAX
        try:
            while (await self._journal.read()).sequence < sequence and loop.time() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(_SEEN_PAUSE_SECONDS)
        except JournalError:
            return  # it is accepted; this process lists it later


class HolderService:
    """Decides for other members, at the holder.

    Args:
        executes: whether this process does now.
        sequence: returns the journal's.
    """

    def __init__(self, local: Decisions, executes: Callable[[], bool], sequence: Callable[[], int]) -> None:
        self._local = local
        self._executes = executes
        self._sequence = sequence
        self._numbers = count(1)
        self._plans: dict[int, Planned] = {}

    @property
    def plans(self) -> int:
        """The number of plans that wait for a broker's response."""
        return len(self._plans)

    async def answer(self, content: bytes) -> bytes:
        """Answer a member's question."""
        try:
            kind = content[:1]
            if kind == bytes((_PLAN,)):
                return await self._plan(content)
            if kind == bytes((_CONCLUDE,)) and len(content) > _HEAD.size:
                return await self._conclude(content)
        except _CAUSES as error:
            (cause, *_) = (index for index, cause in enumerate(_CAUSES) if issubclass(type(error), cause))
            return bytes((_REFUSED, cause)) + str(error).encode()[:_TEXT_BYTES_MAX]
        except WireError:
            return BUSY
        return BUSY

    async def _plan(self, content: bytes) -> bytes:
        if not self._executes():
            raise NoExecutorError("the holder of the fleet does not execute reassignments yet")
        if len(self._plans) >= PLANS_MAX:
            raise NoExecutorError("the holder has too many requests under way")
        request = await run_in_thread(reassignments.read_alter_request, content, 1, _VERSION)
        planned = await self._local.plan(request)
        token = next(self._numbers)
        self._plans[token] = planned
        asyncio.get_running_loop().call_later(PLAN_SECONDS_MAX, self._plans.pop, token, None)
        sent = request._replace(wanted=list(planned.sent.items()))
        body = await run_in_thread(reassignments.request_body, sent, _VERSION)
        return _HEAD.pack(_PLAN, token) + bytes((planned.journaled,)) + body

    async def _conclude(self, content: bytes) -> bytes:
        _, token = _HEAD.unpack_from(content)
        planned = self._plans.pop(token, None)
        if planned is None:
            raise JournalError("the holder does not know the request any more")
        response = await run_in_thread(reassignments.read_alter_response, content[_HEAD.size :], _VERSION)
        outcomes = await self._local.conclude(planned, response)
        decided = await run_in_thread(
            reassignments.write_alter_response, response._replace(partitions=outcomes), _VERSION, 0
        )
        return _HEAD.pack(_CONCLUDE, self._sequence()) + decided


async def _read(function: Callable[..., T], *arguments: Any) -> T:
    """Read an answer of the holder's, which is no caller's bytes."""
    try:
        return await run_in_thread(function, *arguments)
    except WireError as error:
        raise JournalError(f"the holder's answer cannot be read: {error}") from error
