"""Takes callers' requests: validates and journals them, and sends first steps on the caller's connection (KIP-435).

    request  ─► Forward: an empty request ─► may the caller reassign partitions? no: error, and nothing else happens
       yes   ─► read the cluster ─► validate ─► first steps ─► journal: asked ─► Forward: the first steps
    response ─► journal: accepted, or removed ─► response to the caller

The broker decides who may reassign partitions, for every request: an empty one is sent first, in the caller's name, and
until its response only the head of the caller's request is parsed. A refusal is returned for every partition, as the
broker would return it; nothing is looked up, written or submitted. Callers' frames are parsed in the thread for large
frames, in which addresses take turns.
The request is on disk before anything is submitted, marked as undecided: it is no move yet, no step follows, and it is
removed if a broker refuses it. A request that can begin no step now is accepted without a second request to the broker.
A step without a response, or with a timeout at the broker, may have been executed: the executor finds out.

One request at a time per connection; at most ADDRESS_REQUESTS_MAX per address, and REQUESTS_MAX in all.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import count
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from protocol.api import ALTER_PARTITION_REASSIGNMENTS
from protocol.errors import WireError
from protocol.header import REQUEST_HEAD
from protocol.messages import reassignments
from protocol.messages.reassignments import AlterRequest, AlterResponse, Outcome, Target
from proxy.channel import Forward, PeerError, Question
from proxy.config import ReassignmentSettings
from proxy.control.reassign.cluster import Cluster, ClusterError
from proxy.control.reassign.journal import AsyncJournal, ConflictError, JournalError
from proxy.control.reassign.planning import (
    NOT_CONTROLLER,
    PER_OCCURRENCE,
    REASSIGNMENT_IN_PROGRESS,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
    Plan,
    outcomes_of,
    plan_request,
    records_of,
)
from proxy.system.logs import event
from proxy.system.stats import Stats
from proxy.system.threads import OverloadError, parse_response, run_in_thread
from quotas.reassignment.step import TopicPartition

# Decides on a caller's request: validates it, journals it, and later its result (KIP-435).
#
# Where the executor's journal may be appended to, `LocalDecisions` does so; in a fleet whose journal is a topic,
# members that are not the holder have the holder decide (`proxy.control.reassign.topic_place`).


_CONFLICTS_MAX: Final = 20
# How long a request waits for another one. Two seconds without a response, and the executor relies on the cluster.
CONFLICT_WAIT_SECONDS_MAX: Final = 5.0
_NEW_TOPIC_SECONDS_MAX: Final = 1.0  # until a new topic is known to every broker
_PAUSE_SECONDS: Final = 0.4

Outcomes: TypeAlias = Sequence[tuple[TopicPartition, Outcome]]


class NoExecutorError(Exception):
    """No process executes reassignments now, or it cannot be reached; nothing was journaled; a retry may succeed."""


class Planned(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A validated and journaled request, from `Decisions.plan` until `Decisions.conclude`.

    Meanwhile the broker gets the first steps of its reassignments, on the caller's connection.

    Attributes:
        request: the caller's request.
        sent: the partitions and replicas that are sent to the broker; if empty, nothing is sent.
        journaled: whether any partition of the request is in the journal.
        token: what `conclude` needs: the plan itself, or its number if the fleet's holder has it (see `Decisions`).
    """

    request: AlterRequest
    sent: Mapping[TopicPartition, Target]
    journaled: bool
    token: int | Plan


class Decisions(Protocol):
    """Validates and journals AlterPartitionReassignments requests, in this process or at the fleet's holder.

    The holder is the one member that leads the fleet.
    """

    async def plan(self, request: AlterRequest) -> Planned:
        """Validate a request, choose first steps and journal both; the first call for a request.

        Raises:
            ClusterError, JournalError: the cluster or the journal cannot be used; a retry may succeed.
            NoExecutorError: no process can decide now; nothing was journaled.
        """

    async def conclude(self, planned: Planned, response: AlterResponse) -> Outcomes:
        """Journal the broker's response to the first steps; the second and last call for a request.

        Returns: the outcome of each partition for the caller, in the order of the request.

        Raises:
            JournalError: the response cannot be journaled; the executor later sees in the cluster what has happened.
        """


class LocalDecisions:
    """Validates and journals callers' requests in this process.

    Args:
        settings: returns the settings in force.
        wake: called when the journal has new or changed moves, to start the executor's next round.
        conflict_wait_seconds_max: for how long a request for a partition may wait while another request for it is
            undecided. A request for an unknown topic waits for a second at most.
    """

    def __init__(
        self,
        journal: AsyncJournal,
        cluster: Cluster,
        settings: Callable[[], ReassignmentSettings],
        wake: Callable[[], None],
        conflict_wait_seconds_max: float = CONFLICT_WAIT_SECONDS_MAX,
    ) -> None:
        self._journal = journal
        self._cluster = cluster
        self._settings = settings
        self._wake = wake
        self._conflict_wait_seconds_max = conflict_wait_seconds_max
        self._new_topic_seconds_max = min(conflict_wait_seconds_max, _NEW_TOPIC_SECONDS_MAX)
        self._request_numbers = count(1)

    async def plan(self, request: AlterRequest) -> Planned:
        """Read the cluster, validate the request, choose first steps and journal them.

        If another process has appended to the journal meanwhile, it starts again. A request for a partition with an
        undecided request waits for a while, as a caller that lost its connection may have sent both. A request for an
        unknown topic waits too, as brokers know a new topic later than the controller.
        """
        by = f"{self._journal.process}/{next(self._request_numbers)}"
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(_CONFLICTS_MAX):
            async with self._journal.planning_lock:
                state = await self._journal.read()
                topics = {topic for topic, _ in (*state.entries, *(key for key, _ in request.wanted))}
                targets = {broker for _, target in request.wanted for broker in target or ()}
                cluster = await self._cluster.read_state(sorted(topics), targets=targets, registered=True)
                plan = await run_in_thread(plan_request, request, state, cluster, self._settings(), by)
                patience = self._conflict_wait_seconds_max if plan.refuses(REASSIGNMENT_IN_PROGRESS) else 0.0
                if plan.refuses(UNKNOWN_TOPIC_OR_PARTITION):
                    patience = max(patience, self._new_topic_seconds_max)
                if loop.time() - began >= patience:
                    try:
                        await self._journal.append(list(plan.entries.values()), expected=state.sequence)
                    except ConflictError:
                        continue
                    return Planned(request, plan.sent, bool(plan.entries), plan)
            await asyncio.sleep(_PAUSE_SECONDS)
        raise JournalError("other processes keep writing to it")

    async def conclude(self, planned: Planned, response: AlterResponse) -> Outcomes:
        """Journal the broker's response: accepted entries become moves, rejected ones are removed."""
        plan = planned.token
        assert isinstance(plan, Plan), "planned here"
        outcomes = outcomes_of(plan, response)
        for _ in range(_CONFLICTS_MAX):
            state = await self._journal.read()
            records = await run_in_thread(records_of, plan, outcomes, state)
            try:
                await self._journal.append(records, expected=state.sequence)
            except ConflictError:
                continue
            break
        else:
            raise JournalError("other processes keep writing to it")
        self._wake()
        return await run_in_thread(_in_order, plan, outcomes, bool(response.outcome.error_code))


def _in_order(plan: Plan, outcomes: Mapping[TopicPartition, Outcome], failed: bool) -> Outcomes:
    return [
        (one.key, outcomes[one.key] if failed or one.kind not in PER_OCCURRENCE else one.outcome)
        for one in plan.verdicts
    ]


T = TypeVar("T")

REQUESTS_MAX: Final = 100
ADDRESS_REQUESTS_MAX: Final = REQUESTS_MAX // 4
_TIMEOUT_MS_MAX: Final = 20_000  # below the executor's wait for a response (`reconcile.ASKED_MS_MAX`)
_KAFKA_STORAGE_ERROR: Final = 56

Respond = Callable[[bytes | bytearray | Forward | Exception], None]

logger = logging.getLogger(__name__)


class ReadFrame(Protocol):
    """The type of `proxy.system.threads.Worker.call`: runs a function that parses a client's frame, in a thread."""

    async def __call__(self, address: str, size: int, function: Callable[..., T], /, *arguments: Any) -> T:
        """Call the function with the arguments and return its result.

        Args:
            address: the client's address, by which waiting calls are limited.
            size: the size of the frame in bytes.

        Raises:
            OverloadError: the function was not called, since too many calls wait.
        """


class PermissionCheck(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request that waits while the broker checks whether its caller may alter reassignments."""

    question: Question


_PLAN_ENCODER: Final = msgspec.msgpack.Encoder()
_PLAN_DECODER: Final[msgspec.msgpack.Decoder[Planned | PermissionCheck]] = msgspec.msgpack.Decoder(
    Planned | PermissionCheck
)


def plan_bytes(plan: object) -> bytes:
    """Encode the plan of a `Forward`; a worker process keeps the bytes until the broker has responded."""
    return _PLAN_ENCODER.encode(plan)


def plan_of(data: bytes) -> Planned | PermissionCheck:
    """Decode a plan that `plan_bytes` has encoded.

    Raises:
        ValueError: the bytes are not a plan.
    """
    return _PLAN_DECODER.decode(data)


class ReassignmentApi:
    """Handles callers' AlterPartitionReassignments requests, in place of the cluster's controller.

    Args:
        decisions: validates and journals requests.
        run: starts a background task.
        read: parses a caller's frame, in a thread if it is large.

    Attributes:
        requests: the number of requests under way, by address.
    """

    def __init__(
        self,
        decisions: Decisions,
        run: Callable[[Coroutine[object, object, None]], object],
        read: ReadFrame,
        stats: Stats,
    ) -> None:
        self._decisions = decisions
        self._run = run
        self._read = read
        self._stats = stats
        self.requests: Counter[str] = Counter()

    def ask(self, question: Question, respond: Respond) -> None:
        """Begin to handle a request, or the broker's response to a part of it that was forwarded.

        Args:
            respond: called with the response for the caller, with a request to forward to the broker, or with an error.
        """
        of_address, total = self.requests[question.address], self.requests.total()
        # A forwarded request is always journaled; before that nothing is lost with the connection.
        if not isinstance(question.plan, Planned) and (
            of_address >= ADDRESS_REQUESTS_MAX or total >= REQUESTS_MAX
        ):
            problem = f"{total} requests are already waiting, {of_address} of them of this address"
            asyncio.get_running_loop().call_soon(respond, PeerError("reassignment_requests_max", problem))
            return
        self.requests[question.address] += 1
        self._run(self._handle(question, respond))

    async def _handle(self, question: Question, respond: Respond) -> None:
        try:
            if question.plan is None:
                respond(_permission_request(question))
            elif isinstance(question.plan, PermissionCheck):
                respond(await self._permission_checked(question, question.plan))
            else:
                respond(await self._first_steps_sent(question))
        except WireError as error:
            self._stats.reassignment_requests["malformed"] += 1
            respond(error)
        except OverloadError as error:
            respond(PeerError("reassignment_requests_max", str(error)))
        except Exception as error:
            logger.error("internal error: reassignment request failed", exc_info=error)
            self._stats.reassignment_requests["failed"] += 1
            respond(error)
        finally:
            self.requests[question.address] -= 1
            self.requests += Counter()  # removes addresses without requests

    async def _permission_checked(self, question: Question, check: PermissionCheck) -> bytes | Forward:
        """Continue with a request after the broker's permission check: if granted, validate and journal it."""
        first = check.question
        address, size = first.address, len(first.frame)
        response = await parse_response(reassignments.read_alter_response, question.frame, question.version)
        if response.outcome.error_code:
            refused = await self._read(address, size, _refusal_response, first, question, response)
            self._stats.reassignment_requests["refused"] += 1
            return refused
        request = await self._read(address, size, _read_request, first)
        if not request.wanted:
            return question.frame
        try:
            planned = await self._decisions.plan(request)
            if planned.sent:
                sent = AlterRequest(
                    min(request.timeout_ms, _TIMEOUT_MS_MAX), True, list(planned.sent.items())
                )
                if not planned.journaled:
                    # No partition is in the journal: the caller's own flag on the replication factor applies.
                    sent = sent._replace(allow_factor_change=request.allow_factor_change)
                return await run_in_thread(_forward, first, sent, planned)
            return await self._conclude(question, planned, response)
        except (ClusterError, JournalError, NoExecutorError) as error:
            return await self._failure_response(question, request, error)

    async def _first_steps_sent(self, question: Question) -> bytes:
        """Journal the broker's response to the first steps; returns the response for the caller."""
        planned = question.plan
        assert isinstance(planned, Planned), "the plan of the request that was sent"
        response = await parse_response(reassignments.read_alter_response, question.frame, question.version)
        try:
            return await self._conclude(question, planned, response)
        except JournalError as error:
            return await self._failure_response(question, planned.request, error)

    async def _conclude(self, question: Question, planned: Planned, response: AlterResponse) -> bytes:
        """Journal the broker's response, and return the response for the caller.

        Raises:
            JournalError: the result cannot be written; the executor finds out what has happened.
        """
        outcomes = await self._decisions.conclude(planned, response)
        self._count_outcomes(outcomes)
        return await run_in_thread(_outcome_response, question, planned.request, outcomes, response)

    async def _failure_response(self, question: Question, request: AlterRequest, error: Exception) -> bytes:
        """Return the response to a request that could not be accepted or journaled; a retry may succeed."""
        code, where = REQUEST_TIMED_OUT, "ask the cluster"
        if isinstance(error, JournalError):
            code, where = _KAFKA_STORAGE_ERROR, "use its journal"
        elif isinstance(error, NoExecutorError):
            code, where = NOT_CONTROLLER, "ask the process that executes"  # Kafka's clients try again
        outcome = Outcome(code, f"Sluice cannot {where}: {error}")
        event(logger, logging.ERROR, "reassignment not accepted", principal=question.user, problem=str(error))
        self._stats.reassignment_requests["failed"] += 1
        response = AlterResponse(0, True, outcome, _same_outcome(request, outcome))
        return await run_in_thread(_encode, question, request, response)

    def _count_outcomes(self, outcomes: Outcomes) -> None:
        refused = sum(outcome.error_code != 0 for _, outcome in outcomes)
        self._stats.reassignment_requests["refused" if refused else "taken"] += 1
        event(
            logger,
            logging.INFO,
            "reassignment requested",
            partitions=len(outcomes),
            refused=refused,
            taken=len(outcomes) - refused,
        )


def _permission_request(question: Question) -> Forward:
    """Return the empty request by which the broker checks the caller's permission."""
    head = reassignments.read_head(question.frame, question.body_at, question.version)
    return _forward(question, head, PermissionCheck(question))


def _read_request(question: Question) -> AlterRequest:
    return reassignments.read_alter_request(question.frame, question.body_at, question.version)


def _refusal_response(first: Question, question: Question, response: AlterResponse) -> bytes:
    """Return the broker's refusal of the empty request, for every partition of the caller's."""
    request = _read_request(first)
    return _encode(question, request, response._replace(partitions=_same_outcome(request, response.outcome)))


def _same_outcome(request: AlterRequest, outcome: Outcome) -> list[tuple[TopicPartition, Outcome]]:
    return [(key, outcome) for key, _ in request.wanted]


def _outcome_response(
    question: Question, request: AlterRequest, outcomes: Outcomes, response: AlterResponse
) -> bytes:
    # For an empty request a broker sends the message "", for others null.
    outcome = response.outcome if response.outcome.error_code else Outcome()
    return _encode(question, request, response._replace(outcome=outcome, partitions=outcomes))


def _encode(question: Question, request: AlterRequest, response: AlterResponse) -> bytes:
    """Return the response for the caller; the broker's own if both are equal."""
    encoded = response._replace(allow_factor_change=request.allow_factor_change)
    if question.plan is not None and encoded == reassignments.read_alter_response(
        question.frame, question.version
    ):
        return question.frame
    return reassignments.write_alter_response(encoded, question.version, question.correlation_id)


def _forward(question: Question, request: AlterRequest, plan: object) -> Forward:
    """Return the request to send to the broker with the caller's client id, for the broker's quotas and logs."""
    size = REQUEST_HEAD.unpack_from(question.frame)[4]
    client_id = None if size < 0 else question.frame[REQUEST_HEAD.size : REQUEST_HEAD.size + size]
    frame = reassignments.request_frame(request, question.version, question.correlation_id, client_id)
    return Forward(ALTER_PARTITION_REASSIGNMENTS, frame, plan)
