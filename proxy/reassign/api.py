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
from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from protocol.api import ALTER_PARTITION_REASSIGNMENTS
from protocol.errors import WireError
from protocol.header import REQUEST_HEAD
from protocol.messages import alter_reassignments
from protocol.messages.alter_reassignments import AlterRequest, AlterResponse, Outcome
from proxy.channel import Forward, PeerError, Question
from proxy.config import ReassignmentSettings
from proxy.logs import event
from proxy.reassign.async_journal import AsyncJournal
from proxy.reassign.cluster import Cluster, ClusterError
from proxy.reassign.journal import ConflictError, JournalError
from proxy.reassign.planning import OF_ITS_OWN, REQUEST_TIMED_OUT, Plan, outcomes_of, plan_request, records_of
from proxy.reassign.validation import Kind
from proxy.stats import Stats
from proxy.worker import OverloadError, beside, decoded
from quotas.reassignment.step import TopicPartition

__all__ = ["ReadFrame", "ReassignmentApi", "Respond"]

T = TypeVar("T")

REQUESTS_MAX: Final = 100
ADDRESS_REQUESTS_MAX: Final = REQUESTS_MAX // 4
_CONFLICTS_MAX: Final = 20
# How long a request waits for another one. Two seconds without a response, and the executor relies on the cluster.
_TURN_SECONDS_MAX: Final = 5.0
_NEWS_SECONDS_MAX: Final = 1.0  # until a new topic is known to every broker
_PAUSE_SECONDS: Final = 0.4
_TIMEOUT_MS_MAX: Final = 20_000  # below the executor's wait for a response (`reconcile.ASKED_MS_MAX`)
_KAFKA_STORAGE_ERROR: Final = 56

Respond = Callable[[bytes | bytearray | Forward | Exception], None]

logger = logging.getLogger(__name__)


class ReadFrame(Protocol):
    """Calls a function of a frame in a thread: `proxy.worker.Worker.call`."""

    async def __call__(self, whose: str, size: int, function: Callable[..., T], /, *arguments: Any) -> T:
        """Return the function's result.

        Raises:
            OverloadError: it was not called.
        """


class _Asked(NamedTuple):
    """A request whose caller's permission is being checked by the broker."""

    question: Question


class ReassignmentApi:
    """Handles AlterPartitionReassignments.

    Args:
        run: starts a background task.
        settings: returns the settings in force.
        wake: called when there are new moves.
        read: has callers' frames parsed.
        turn_seconds_max: how long a request waits for another one to be decided; for a new topic, a second at most.
    """

    def __init__(
        self,
        keeper: AsyncJournal,
        cluster: Cluster,
        settings: Callable[[], ReassignmentSettings],
        run: Callable[[Coroutine[object, object, None]], object],
        wake: Callable[[], None],
        read: ReadFrame,
        stats: Stats,
        turn_seconds_max: float = _TURN_SECONDS_MAX,
    ) -> None:
        self._keeper = keeper
        self._cluster = cluster
        self._settings = settings
        self._run = run
        self._wake = wake
        self._read = read
        self._stats = stats
        self._turn_seconds_max = turn_seconds_max
        self._news_seconds_max = min(turn_seconds_max, _NEWS_SECONDS_MAX)
        self._numbers = count(1)
        self._requests: Counter[str] = Counter()  # the number of requests under way, by address

    def ask(self, question: Question, respond: Respond) -> None:
        """Handle a request, or a broker's response to one."""
        mine, all_of_them = self._requests[question.address], self._requests.total()
        # A forwarded request is always journaled; before that nothing is lost with the connection.
        if not isinstance(question.plan, Plan) and (
            mine >= ADDRESS_REQUESTS_MAX or all_of_them >= REQUESTS_MAX
        ):
            problem = f"{all_of_them} requests are already waiting, {mine} of the address"
            asyncio.get_running_loop().call_soon(respond, PeerError("reassignment_requests_max", problem))
            return
        self._requests[question.address] += 1
        self._run(self._handle(question, respond))

    async def _handle(self, question: Question, respond: Respond) -> None:
        try:
            if question.plan is None:
                respond(_begin(question))
            elif isinstance(question.plan, _Asked):
                respond(await self._go_on(question, question.plan))
            else:
                respond(await self._end(question))
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
            self._requests[question.address] -= 1
            self._requests += Counter()  # removes addresses without requests

    async def _go_on(self, question: Question, asked: _Asked) -> bytes | Forward:
        """Handle the broker's response on the caller's permission: if granted, validate and journal the request."""
        first = asked.question
        address, size = first.address, len(first.frame)
        response = await decoded(alter_reassignments.read_response, question.frame, question.version)
        if response.outcome.error_code:
            told = await self._read(address, size, _refusal, first, question, response)
            self._stats.reassignment_requests["refused"] += 1
            return told
        request = await self._read(address, size, _request_of, first)
        if not request.wanted:
            return question.frame
        try:
            plan = await self._planned(request)
            if plan.sent:
                sent = AlterRequest(min(request.timeout_ms, _TIMEOUT_MS_MAX), True, list(plan.sent.items()))
                if not plan.entries:
                    # No partition is in the journal: the caller's own flag on the replication factor applies.
                    sent = sent._replace(allow_factor_change=request.allow_factor_change)
                return await beside(_forward, first, sent, plan)
            return await self._settled(question, plan, response)
        except (ClusterError, JournalError) as error:
            return await self._failed(question, request, error)

    async def _planned(self, request: AlterRequest) -> Plan:
        """Read the cluster, validate, choose first steps and journal; again if another process was faster.

        A controller handles requests one after the other. So a request that conflicts with an undecided one waits for a
        while: the caller may be the same, after a lost connection. A controller also knows a topic before the brokers:
        an unknown topic is looked up again, since it may just have been created.
        """
        by = f"{self._keeper.process}/{next(self._numbers)}"
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(_CONFLICTS_MAX):
            async with self._keeper.planning:
                known = await self._keeper.read()
                topics = {topic for topic, _ in (*known.entries, *(key for key, _ in request.wanted))}
                seen = await self._cluster.look(sorted(topics), registered=True)
                plan = await beside(plan_request, request, known, seen, self._settings(), by)
                patience = self._turn_seconds_max if plan.meets_another else 0.0
                if plan.misses_some:
                    patience = max(patience, self._news_seconds_max)
                if loop.time() - began >= patience:
                    try:
                        await self._keeper.append(list(plan.entries.values()), expected=known.sequence)
                    except ConflictError:
                        continue
                    return plan
            await asyncio.sleep(_PAUSE_SECONDS)
        raise JournalError("other processes keep writing to it")

    async def _end(self, question: Question) -> bytes:
        """Handle the broker's response to the first steps."""
        plan = question.plan
        assert isinstance(plan, Plan), "the plan of the request that was sent"
        response = await decoded(alter_reassignments.read_response, question.frame, question.version)
        try:
            return await self._settled(question, plan, response)
        except JournalError as error:
            return await self._failed(question, plan.asked, error)

    async def _settled(self, question: Question, plan: Plan, response: AlterResponse) -> bytes:
        """Accept or remove the entries, and return the response.

        Raises:
            JournalError: the result cannot be written; the executor finds out what has happened.
        """
        told = outcomes_of(plan, response)
        for _ in range(_CONFLICTS_MAX):
            known = await self._keeper.read()
            records = await beside(records_of, plan, told, known)
            try:
                await self._keeper.append(records, expected=known.sequence)
            except ConflictError:
                continue
            break
        else:
            raise JournalError("other processes keep writing to it")
        self._count(plan, told)
        self._wake()
        return await beside(_settled_response, question, plan, told, response)

    async def _failed(self, question: Question, asked: AlterRequest, error: Exception) -> bytes:
        """Return the response to a request that could not be accepted or journaled; a retry may succeed."""
        code = _KAFKA_STORAGE_ERROR if isinstance(error, JournalError) else REQUEST_TIMED_OUT
        where = "use its journal" if isinstance(error, JournalError) else "ask the cluster"
        outcome = Outcome(code, f"Sluice cannot {where}: {error}")
        event(logger, logging.ERROR, "reassignment not accepted", principal=question.user, problem=str(error))
        self._stats.reassignment_requests["failed"] += 1
        response = AlterResponse(0, True, outcome, _all(asked, outcome))
        return await beside(_response_to, question, asked, response)

    def _count(self, plan: Plan, told: Mapping[TopicPartition, Outcome]) -> None:
        refused = sum(one.kind is Kind.REFUSED or told[one.key].error_code != 0 for one in plan.verdicts)
        self._stats.reassignment_requests["refused" if refused else "taken"] += 1
        event(
            logger,
            logging.INFO,
            "reassignment requested",
            partitions=len(plan.verdicts),
            refused=refused,
            taken=sum(1 for one in plan.verdicts if one.entry and not told[one.key].error_code),
        )


def _begin(question: Question) -> Forward:
    """Return the empty request by which the broker checks the caller's permission."""
    head = alter_reassignments.read_head(question.frame, question.body_at, question.version)
    return _forward(question, head, _Asked(question))


def _request_of(question: Question) -> AlterRequest:
    return alter_reassignments.read_request(question.frame, question.body_at, question.version)


def _refusal(asked: Question, question: Question, response: AlterResponse) -> bytes:
    """Return the broker's refusal of the empty request, for every partition of the caller's."""
    request = _request_of(asked)
    return _response_to(question, request, response._replace(partitions=_all(request, response.outcome)))


def _all(asked: AlterRequest, outcome: Outcome) -> list[tuple[TopicPartition, Outcome]]:
    return [(key, outcome) for key, _ in asked.wanted]


def _settled_response(
    question: Question, plan: Plan, told: Mapping[TopicPartition, Outcome], response: AlterResponse
) -> bytes:
    failed = response.outcome.error_code
    partitions = [
        (one.key, told[one.key] if failed or one.kind not in OF_ITS_OWN else one.outcome)
        for one in plan.verdicts
    ]
    # For an empty request a broker sends the message "", for others null.
    outcome = response.outcome if failed else Outcome()
    return _response_to(question, plan.asked, response._replace(outcome=outcome, partitions=partitions))


def _response_to(question: Question, asked: AlterRequest, response: AlterResponse) -> bytes:
    """Return the response for the caller; the broker's own if both are equal."""
    told = response._replace(allow_factor_change=asked.allow_factor_change)
    if question.plan is not None and told == alter_reassignments.read_response(
        question.frame, question.version
    ):
        return question.frame
    return alter_reassignments.write_response(told, question.version, question.correlation_id)


def _forward(question: Question, request: AlterRequest, plan: object) -> Forward:
    """Return the request to the broker in the caller's name: with its client id, for the broker's quotas and logs."""
    size = REQUEST_HEAD.unpack_from(question.frame)[4]
    client_id = None if size < 0 else question.frame[REQUEST_HEAD.size : REQUEST_HEAD.size + size]
    frame = alter_reassignments.request_frame(request, question.version, question.correlation_id, client_id)
    return Forward(ALTER_PARTITION_REASSIGNMENTS, frame, plan)
