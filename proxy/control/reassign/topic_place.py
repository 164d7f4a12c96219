"""A journal in a topic, put together: the thread, the topic, the fence, and the fleet whose holder decides.

It is loaded where `[reassignment] journal = "topic"`, and nowhere else, since it needs aiokafka.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Annotated, Any, Final, Protocol, TypeVar

from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder

from protocol.errors import WireError
from protocol.messages import reassignments
from protocol.messages.reassignments import AlterRequest, AlterResponse
from proxy.control.quotas.quota_topic import compacted_spec
from proxy.control.reassign.api import Decisions, NoExecutorError, Outcomes, Planned
from proxy.control.reassign.cluster import ClusterError
from proxy.control.reassign.file_journal import process_name
from proxy.control.reassign.journal import AsyncJournal, JournalError
from proxy.control.reassign.topic_journal import TopicJournal
from proxy.fleet.calls import BUSY, NoResponseError, Respond
from proxy.fleet.messages import cut
from proxy.metrics.families import Family, by_label, single
from proxy.system.threads import run_in_thread
from proxy.topics.log import TopicLog
from proxy.topics.records import CAUSES, Problem, Seal
from proxy.topics.topic import Access, LoopThread
from proxy.topics.writers import FencedLog

# Requests of a member that is not the holder, decided by the holder over the fleet's signed connection.
#
#     member   permission, by the broker ─► plan ───────────► holder: validate, journal
#              first steps, by the broker ◄─ what to send ◄──
#              response ─► conclude ────────────────────────► holder: journal the result
#              caller   ◄─ outcomes ◄────────────────────────
#
# What belongs to the caller stays where the caller is: the broker judges its rights, and its own connection takes its
# first steps. Requests, responses and outcomes are the messages of AlterPartitionReassignments themselves (KIP-455).
#
# A response that is lost leaves an undecided request in the journal, of which the executor finds out what has happened,
# as of a caller's lost connection. A plan is kept at the holder for PLAN_SECONDS_MAX.


T = TypeVar("T")

PLANS_MAX: Final = 1000
PLAN_SECONDS_MAX: Final = 60.0  # longer than a broker takes to respond
ASK_SECONDS_MAX: Final = 20.0
_SEEN_SECONDS_MAX: Final = 2.0
_SEEN_PAUSE_SECONDS: Final = 0.02
_VERSION: Final = 1
_PROBLEM_BYTES_MAX: Final = 1000
_CAUSES: Final = (NoExecutorError, JournalError, ClusterError)
_RECORDS: Final = ("applied", "removed", "skipped", "damaged", "unsigned", "replayed")
_FORWARDED: Final = ("answered", "refused", "unanswered")


Number = Annotated[int, Meta(ge=0)]


class Plan(Struct, tag="plan"):
    """A member's question to the holder, which leads the fleet: plan this request (`Decisions.plan`).

    Args:
        request: the body of the AlterPartitionReassignments request.
    """

    request: bytes


class PlannedThere(Struct, tag="planned"):
    """The response to `Plan` of the holder, which leads the fleet: the request is journaled.

    Args:
        token: the number of the plan at the holder.
        journaled: whether any partition is in the journal.
        sent: the body of the request that the member sends to the broker.
    """

    token: Number
    journaled: bool
    sent: bytes


class Conclude(Struct, tag="conclude"):
    """A member's question to the holder, which leads the fleet: journal this response (`Decisions.conclude`).

    Args:
        token: the number of the plan at the holder.
        response: the frame of the broker's AlterPartitionReassignments response.
    """

    token: Number
    response: bytes


class Concluded(Struct, tag="concluded"):
    """The response to `Conclude` of the holder, which leads the fleet.

    Args:
        sequence: the number of the journal's last record, so that the member can wait until it has read the result.
        outcomes: the outcomes of the partitions, as the frame of an AlterPartitionReassignments response.
    """

    sequence: Number
    outcomes: bytes


class Refused(Struct, tag="refused"):
    """The response of the holder, which leads the fleet, to a question that has failed.

    Args:
        cause: the index of the exception's class in _CAUSES.
        problem: the exception's message.
    """

    cause: Annotated[int, Meta(ge=0, lt=len(_CAUSES))]
    problem: str


_ENCODER: Final = Encoder()
_QUESTIONS: Final = Decoder(Plan | Conclude)
_RESPONSES: Final = Decoder(PlannedThere | Concluded | Refused)
A = TypeVar("A", PlannedThere, Concluded)


class FleetMember(Protocol):
    """This process as a member of the fleet; the part of `proxy.fleet.fleet.Fleet` that is used here."""

    @property
    def tenure(self) -> int:
        """The number of this member's tenure as the holder (the one member that leads the fleet); 0 if it is not."""

    async def ask(self, content: bytes, seconds: float) -> bytes:
        """Send a question to the holder and return its response.

        Raises:
            NoResponseError: there is no response within `seconds`.
        """


class Forwarding:
    """Decides on requests in this process while it executes moves; otherwise forwards them to the fleet's holder.

    The holder is the one member that leads the fleet.

    Args:
        local: decides in this process.
        executes: returns whether this process executes moves now.
        fleet: returns this process as a member of the fleet; None if it is not one (yet).

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
        """Validate and journal a request, in this process or at the holder; see `Decisions.plan`."""
        if self._executes():
            return await self._local.plan(request)
        fleet = self._fleet()
        if fleet is None or fleet.tenure:
            raise NoExecutorError(self._journal.problem or "no process executes reassignments for now")
        body = await run_in_thread(reassignments.request_body, request, _VERSION)
        response = await self._ask(fleet, Plan(body), PlannedThere)
        sent = await _read(reassignments.read_alter_request, response.sent, 0, _VERSION)
        return Planned(request, dict(sent.wanted), response.journaled, response.token)

    async def conclude(self, planned: Planned, response: AlterResponse) -> Outcomes:
        """Journal the broker's response where the request was planned; see `Decisions.conclude`.

        When this returns, this process has normally read the result too, so that the caller can list it.
        """
        token = planned.token
        if not isinstance(token, int):
            return await self._local.conclude(planned, response)
        fleet = self._fleet()
        if fleet is None:
            raise JournalError("this process is not a member of a fleet")
        content = await run_in_thread(reassignments.write_alter_response, response, _VERSION, 0)
        try:
            concluded = await self._ask(fleet, Conclude(token, content), Concluded)
        except NoExecutorError as error:
            raise JournalError(str(error)) from error  # the first steps may be under way
        found = await _read(reassignments.read_alter_response, concluded.outcomes, _VERSION)
        await self._see(concluded.sequence)
        return found.partitions

    async def _ask(self, fleet: FleetMember, question: Plan | Conclude, kind: type[A]) -> A:
        try:
            content = await fleet.ask(_ENCODER.encode(question), ASK_SECONDS_MAX)
        except NoResponseError as error:
            self.forwarded["unanswered"] += 1
            if error.sent:
                raise JournalError(f"the holder: {error}") from error
            raise NoExecutorError(f"the holder: {error}") from error
        response = _decoded(_RESPONSES, content)
        if isinstance(response, kind):
            self.forwarded["answered"] += 1
            return response
        self.forwarded["refused"] += 1
        if isinstance(response, Refused):
            raise _CAUSES[response.cause](response.problem)
        raise NoExecutorError("the holder has too many questions under way, or no journal in a topic")

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
    """Handles the questions of other members of the fleet, in the process that leads it (the holder).

    Args:
        local: decides in this process.
        executes: returns whether this process executes moves now.
        sequence: returns the number of the journal's last record.

    Attributes:
        plans: by token, the plans that wait for the broker's response.
    """

    def __init__(self, local: Decisions, executes: Callable[[], bool], sequence: Callable[[], int]) -> None:
        self._local = local
        self._executes = executes
        self._sequence = sequence
        self._numbers = count(1)
        self.plans: dict[int, Planned] = {}

    async def respond(self, content: bytes) -> bytes:
        """Return the response to a member's question; BUSY if the question cannot be decoded."""
        question = _decoded(_QUESTIONS, content)
        if question is None:
            return BUSY
        response: PlannedThere | Concluded | Refused
        try:
            handled = self._plan(question) if isinstance(question, Plan) else self._conclude(question)
            response = await handled
        except _CAUSES as error:
            cause = next(index for index, cause in enumerate(_CAUSES) if issubclass(type(error), cause))
            response = Refused(cause, cut(str(error), _PROBLEM_BYTES_MAX))
        except WireError:
            return BUSY
        return _ENCODER.encode(response)

    async def _plan(self, question: Plan) -> PlannedThere:
        if not self._executes():
            raise NoExecutorError("the holder of the fleet does not execute reassignments yet")
        if len(self.plans) >= PLANS_MAX:
            raise NoExecutorError("the holder has too many requests under way")
        request = await run_in_thread(reassignments.read_alter_request, question.request, 0, _VERSION)
        planned = await self._local.plan(request)
        token = next(self._numbers)
        self.plans[token] = planned
        asyncio.get_running_loop().call_later(PLAN_SECONDS_MAX, self.plans.pop, token, None)
        sent = request._replace(wanted=list(planned.sent.items()))
        body = await run_in_thread(reassignments.request_body, sent, _VERSION)
        return PlannedThere(token, planned.journaled, bytes(body))

    async def _conclude(self, question: Conclude) -> Concluded:
        planned = self.plans.pop(question.token, None)
        if planned is None:
            raise JournalError("the holder does not know the request any more")
        response = await run_in_thread(reassignments.read_alter_response, question.response, _VERSION)
        outcomes = await self._local.conclude(planned, response)
        decided = await run_in_thread(
            reassignments.write_alter_response, response._replace(partitions=outcomes), _VERSION, 0
        )
        return Concluded(self._sequence(), bytes(decided))


def _decoded(decoder: Decoder[T], content: bytes) -> T | None:
    """Decode a question or a response; None if it is neither. The fleet's frames bound its bytes."""
    try:
        return decoder.decode(content)
    except (ValueError, RecursionError):
        return None


async def _read(function: Callable[..., T], *arguments: Any) -> T:
    """Read bytes from the holder's response; they do not come from a client."""
    try:
        return await run_in_thread(function, *arguments)
    except WireError as error:
        raise JournalError(f"the holder's response cannot be read: {error}") from error


def families(
    problem: Problem | None, records: Mapping[str, int], forwarded: Mapping[str, int] | None, fenced: int = 0
) -> Iterator[Family]:
    """Yield the metrics of a journal in a topic, and of requests to the holder.

    Args:
        problem: why the topic cannot be used; None if it can.
        records: the number of records that were read, by result.
        forwarded: the number of questions to the holder, by result; None before there can be any.
        fenced: how often a client that is not a member of the fleet has fenced this process.
    """
    cause = "" if problem is None else problem.cause
    failing = "1 while the topic of the reassignment journal cannot be read or appended to, by cause"
    read = "Records read from the topic of the reassignment journal"
    by_others = "How often a client that is not of the fleet has fenced the executor"
    causes = {one: one == cause for one in CAUSES}
    results = {one: records[one] for one in _RECORDS}
    yield by_label("sluice_reassignment_topic_problem", "gauge", failing, "cause", causes)
    yield by_label("sluice_reassignment_topic_records", "counter", read, "result", results)
    yield single("sluice_reassignment_topic_fenced", "counter", by_others, fenced)
    if forwarded is not None:
        asked = "Questions to the holder of the fleet about callers' reassignments"
        results = {one: forwarded[one] for one in _FORWARDED}
        yield by_label("sluice_reassignment_forwarded", "counter", asked, "result", results)


class RespondingMember(FleetMember, Protocol):
    """This process as a member of the fleet, which may also respond to other members when it is the holder."""

    def respond_with(self, respond: Respond) -> None:
        """Set the function that returns the response to a question, for the time when this process is the holder."""


class TopicPlace:
    """One process's access to a journal in a topic, with the choice of the executor and the requests between members.

    Args:
        topic: the topic's name.
        access: brokers, login and TLS of the topic's cluster.
        fleet: returns this process as a member of the fleet, once it is one; None: there is no fleet.
        seal: signs and verifies records; None without a secret.

    Attributes:
        journal: the journal in the topic.
        lock: the same object, which also tells whether this process is the executor. In a fleet that is the holder,
            the one member that leads it.
    """

    def __init__(
        self,
        topic: str,
        access: Access,
        fleet: Callable[[], RespondingMember | None] | None,
        seal: Seal | None = None,
    ) -> None:
        self.process = process_name()
        self._fleet = fleet
        self._thread = LoopThread("journal")
        self._log = TopicLog(self._thread, access, compacted_spec(topic), committed=True)
        # The fence has the topic's name: one executor for each journal.
        writer = FencedLog(self._thread, access, topic, topic)
        self.journal = self.lock = TopicJournal(
            self._log, writer, self.process, self._tenure, alone=fleet is None, seal=seal
        )
        self._forwarding: Forwarding | None = None
        self._service: HolderService | None = None

    def decisions(self, local: Decisions, executes: Callable[[], bool], journal: AsyncJournal) -> Decisions:
        """Return what decides on requests: `local` while this process executes, otherwise the fleet's holder."""
        self._service = HolderService(local, executes, lambda: journal.state.sequence)
        self._forwarding = Forwarding(local, executes, self._member, journal)
        return self._forwarding

    def start(self) -> None:
        """Begin to read the topic, and to respond to other members' questions when this process is the holder."""
        self._log.start()
        member = self._member()
        if member is not None and self._service is not None:
            member.respond_with(self._service.respond)

    def families(self) -> Iterator[Family]:
        """Return the metrics of the topic and of the requests that were forwarded to the holder."""
        forwarded = None if self._forwarding is None else self._forwarding.forwarded
        return families(self.journal.problem, self.journal.records, forwarded, self.journal.fenced)

    def close(self) -> None:
        """End the thread that reads and appends to the topic; blocks for a bounded time."""
        self._thread.close()

    def _member(self) -> RespondingMember | None:
        return None if self._fleet is None else self._fleet()

    def _tenure(self) -> int:
        """Return the number of this process's tenure; a process that is alone has one that never ends."""
        if self._fleet is None:
            return 1
        member = self._fleet()
        return 0 if member is None else member.tenure
