"""Takes callers' requests: judged, journaled, their first steps sent over the caller's own connection (KIP-435).

    request ─► look at the cluster ─► judge ─► first steps ─► journal: asked ─► Forward ─► the broker judges
    its answer ─► journal: accepted, or struck out ─► what the caller is told

What is asked for is on disk before anything is submitted, marked as not judged: it is no move yet, no step follows it,
and after a refusal it is gone again. Who may reassign is the broker's to say, of every request: of one that can start
nothing now an empty request is sent. A refusal of the whole comes back as the broker gave it, for every partition.
What was not answered, or timed out at the broker, may have been done: the executor finds out.

One request of a connection at a time; at most REQUESTS_MAX of all connections.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final, NamedTuple

from protocol.api import ALTER_PARTITION_REASSIGNMENTS, flexible
from protocol.errors import WireError
from protocol.header import REQUEST_HEAD
from protocol.messages import alter_reassignments
from protocol.messages.alter_reassignments import AlterAnswer, AlterRequest, Outcome, Target
from proxy.channel import Forward, PeerError, Question
from proxy.config import ReassignmentSettings
from proxy.logs import event
from proxy.reassign.cluster import Cluster, ClusterError, Seen
from proxy.reassign.entries import Ended, Entry, Record
from proxy.reassign.journal import ConflictError, JournalError, Known
from proxy.reassign.judge import Kind, Verdict, judge
from proxy.reassign.keeper import Keeper
from proxy.stats import Stats
from quotas.reassignment_batch import next_batch
from quotas.reassignment_step import Step, TopicPartition

__all__ = ["ReassignmentDesk"]

REQUESTS_MAX: Final = 100
_CONFLICTS_MAX: Final = 20
_TIMEOUT_MS_MAX: Final = 20_000  # below what the executor waits for an answer (`decide.ASKED_MS_MAX`)
_REQUEST_TIMED_OUT: Final = 7
_NOT_CONTROLLER: Final = 41
_KAFKA_STORAGE_ERROR: Final = 56
_NO_REASSIGNMENT_IN_PROGRESS: Final = 85
_OPEN: Final = frozenset((_REQUEST_TIMED_OUT, _NOT_CONTROLLER))  # it may have been done

Answered = Callable[[bytes | bytearray | Forward | Exception], None]

logger = logging.getLogger(__name__)


class _Plan(NamedTuple):
    """One request, while the broker judges it; `entries` are what the journal holds of it."""

    asked: AlterRequest
    verdicts: Sequence[Verdict]
    entries: Mapping[TopicPartition, Entry]
    sent: Mapping[TopicPartition, Target]
    by: str


class ReassignmentDesk:
    """Answers AlterPartitionReassignments.

    Args:
        run: starts work in the background.
        settings: gives those in force.
        wake: called when there is something new to carry out.
    """

    def __init__(
        self,
        keeper: Keeper,
        cluster: Cluster,
        settings: Callable[[], ReassignmentSettings],
        run: Callable[[Coroutine[object, object, None]], object],
        wake: Callable[[], None],
        stats: Stats,
    ) -> None:
        self._keeper = keeper
        self._cluster = cluster
        self._settings = settings
        self._run = run
        self._wake = wake
        self._stats = stats
        self._numbers = count(1)
        self._requests = 0

    def ask(self, question: Question, answered: Answered) -> None:
        """Have a request, or a broker's answer to one, answered."""
        if question.plan is None and self._requests >= REQUESTS_MAX:
            asyncio.get_running_loop().call_soon(
                answered, PeerError("reassignment_requests_max", f"{self._requests} requests wait already")
            )
            return
        self._run(self._answer(question, answered))

    async def _answer(self, question: Question, answered: Answered) -> None:
        self._requests += 1
        try:
            if question.plan is None:
                answered(await self._begin(question))
            else:
                answered(await self._end(question))
        except WireError as error:
            self._stats.reassignment_requests["malformed"] += 1
            answered(error)
        except Exception as error:
            logger.error("a bug of ours fails a reassignment", exc_info=error)
            self._stats.reassignment_requests["failed"] += 1
            answered(error)
        finally:
            self._requests -= 1

    async def _begin(self, question: Question) -> bytes | Forward:
        """Judge a request, and write down what of it is taken."""
        # In a thread, as all else that grows with the partitions.
        asked = await asyncio.to_thread(
            alter_reassignments.read_request, question.frame, question.body_at, question.version
        )
        by = f"{self._keeper.process}/{next(self._numbers)}"
        try:
            async with self._keeper.planning:
                plan = await self._planned(asked, by)
        except (ClusterError, JournalError) as error:
            return self._failed(question, asked, error)
        sent = AlterRequest(min(asked.timeout_ms, _TIMEOUT_MS_MAX), True, list(plan.sent.items()))
        if not any(verdict.entry for verdict in plan.verdicts):
            # Nothing of ours: the caller's own words about what factor may be changed hold.
            sent = sent._replace(timeout_ms=asked.timeout_ms, allow_factor_change=asked.allow_factor_change)
        frame = alter_reassignments.request_frame(
            sent, question.version, question.correlation_id, _client_id(question)
        )
        return Forward(ALTER_PARTITION_REASSIGNMENTS, frame, plan)

    async def _planned(self, asked: AlterRequest, by: str) -> _Plan:
        """Look, judge, choose first steps and journal; once more where another process was faster."""
        for _ in range(_CONFLICTS_MAX):
            known = await self._keeper.read()
            topics = {topic for topic, _ in (*known.entries, *(key for key, _ in asked.wanted))}
            seen = await self._cluster.look(sorted(topics), registered=True)
            plan = await asyncio.to_thread(_plan, asked, known, seen, self._settings(), by)
            try:
                await self._keeper.append(list(plan.entries.values()), expected=known.sequence)
            except ConflictError:
                continue
            return plan
        raise JournalError("other processes write all the time")

    async def _end(self, question: Question) -> bytes:
        """The broker has judged: accept or strike out, and answer."""
        plan = question.plan
        assert isinstance(plan, _Plan), "the plan of the request that was sent"
        answer = alter_reassignments.read_answer(question.frame, question.version)
        told = _told(plan, answer)
        try:
            await self._settle(plan, told)
        except JournalError as error:
            problem = Outcome(_KAFKA_STORAGE_ERROR, f"Sluice can not write its journal: {error}")
            told = {key: outcome if outcome.error_code else problem for key, outcome in told.items()}
        self._count(plan, told)
        self._wake()
        return self._written(question, plan, answer, told)

    async def _settle(self, plan: _Plan, told: Mapping[TopicPartition, Outcome]) -> None:
        """Write down what the broker has judged; once more where another process was faster.

        Raises:
            JournalError: it can not be written.
        """
        for _ in range(_CONFLICTS_MAX):
            known = await self._keeper.read()
            records = await asyncio.to_thread(_judged, plan, told, known)
            try:
                await self._keeper.append(records, expected=known.sequence)
            except ConflictError:
                continue
            return
        raise JournalError("other processes write all the time")

    def _written(
        self,
        question: Question,
        plan: _Plan,
        answer: AlterAnswer,
        told: Mapping[TopicPartition, Outcome],
    ) -> bytes:
        """The answer for the caller: the broker's own where it says what is to be said."""
        partitions = [
            (
                one.key,
                one.outcome if one.kind is Kind.REFUSED and not answer.outcome.error_code else told[one.key],
            )
            for one in plan.verdicts
        ]
        if list(answer.partitions) == partitions:
            return question.frame
        written = answer._replace(partitions=partitions)
        if not answer.outcome.error_code:
            written = written._replace(
                outcome=Outcome()
            )  # of an empty request a broker says "", of others null
        if question.version and not plan.asked.allow_factor_change:
            written = written._replace(allow_factor_change=False)
        return alter_reassignments.write_answer(written, question.version, question.correlation_id)

    def _failed(self, question: Question, asked: AlterRequest, error: Exception) -> bytes:
        """Nothing was done, and nothing could be: a caller that tries again may find it well."""
        code = _KAFKA_STORAGE_ERROR if isinstance(error, JournalError) else _REQUEST_TIMED_OUT
        where = "use its journal" if isinstance(error, JournalError) else "ask the cluster"
        outcome = Outcome(code, f"Sluice can not {where}: {error}")
        event(logger, logging.ERROR, "reassignment not taken", principal=question.user, problem=str(error))
        self._stats.reassignment_requests["failed"] += 1
        partitions = [(key, outcome) for key, _ in asked.wanted]
        answer = AlterAnswer(0, asked.allow_factor_change, outcome, partitions)
        return alter_reassignments.write_answer(answer, question.version, question.correlation_id)

    def _count(self, plan: _Plan, told: Mapping[TopicPartition, Outcome]) -> None:
        refused = sum(one.kind is Kind.REFUSED or told[one.key].error_code != 0 for one in plan.verdicts)
        self._stats.reassignment_requests["refused" if refused else "taken"] += 1
        event(
            logger,
            logging.INFO,
            "reassignment asked for",
            partitions=len(plan.verdicts),
            refused=refused,
            taken=sum(1 for one in plan.verdicts if one.entry and not told[one.key].error_code),
        )


def _plan(asked: AlterRequest, known: Known, seen: Seen, settings: ReassignmentSettings, by: str) -> _Plan:
    """Judge, and choose first steps."""
    verdicts = judge(asked, known.entries, seen, settings.moves_max, by)
    steps = _first_steps(verdicts, known, seen, settings)
    entries = {one.key: _with_step(one, steps) for one in verdicts if one.entry is not None}
    return _Plan(asked, verdicts, entries, _to_send(verdicts, steps, seen), by)


def _judged(plan: _Plan, told: Mapping[TopicPartition, Outcome], known: Known) -> list[Record]:
    """What the journal is to hold after the broker's answer."""
    records: list[Record] = []
    for key, ours in plan.entries.items():
        code, entry = told[key].error_code, known.entries.get(key)
        is_open = entry is not None and entry.asked is not None and entry.asked.by == plan.by
        if not code:
            accepted = _accepted(ours, entry, is_open)
            if accepted is not None:
                records.append(accepted)
        elif is_open and entry is not None and code not in _OPEN:
            records.append(entry.struck() or Ended(*key, "refused"))
    return records


def _accepted(ours: Entry, entry: Entry | None, is_open: bool) -> Entry | None:
    """The entry of what a broker has taken; None where there is nothing to write.

    An answer may be so late (a muted channel, a slow broker) that the executor has struck the request out: then it is
    written anew. Or it has seen the step and accepted it already.
    """
    asked = ours.asked
    assert asked is not None, "it was asked for"
    if entry is None:
        return ours.accepted() if ours.target is None else None
    if is_open:
        return entry.accepted()
    if entry.asked is not None or (entry.target, entry.cancelled) == (asked.target, asked.cancels):
        return None
    return replace(entry, asked=asked).accepted()


def _first_steps(
    verdicts: Sequence[Verdict], known: Known, seen: Seen, settings: ReassignmentSettings
) -> dict[TopicPartition, Step]:
    """The steps of new moves that may begin now, beside everything that is in question already."""
    in_flight = {}
    for key, entry in known.entries.items():
        step = entry.step if entry.asked is None or entry.asked.step is None else entry.asked.step
        now = seen.now.get(key)
        if step is not None and now is not None and not step.is_done(now):
            in_flight[key] = step
    moves = []
    for verdict in verdicts:
        if verdict.kind is Kind.TAKEN:
            assert verdict.entry is not None, "what is taken has an entry"
            moves.append(replace(verdict.entry, target=verdict.entry.wanted).move)
    batch = next_batch(moves, seen.now, seen.live, settings.limits, in_flight, {})
    return {step.key: step for step in batch.steps if step.submits}


def _to_send(
    verdicts: Sequence[Verdict], steps: Mapping[TopicPartition, Step], seen: Seen
) -> dict[TopicPartition, Target]:
    """What the broker gets to see: first steps, steps to take back, and what is none of our business."""
    sent: dict[TopicPartition, Target] = {}
    for key, target, kind, _, entry in verdicts:
        if kind is Kind.PASSED:
            sent[key] = target
        elif kind is Kind.TAKEN and key in steps:
            sent[key] = steps[key].replicas
        elif kind is Kind.CANCELLED:
            assert entry is not None, "it is a move of ours"
            step, now = entry.step, seen.now[key]
            if step is not None and step.is_under_way(now) and step.may_be_cancelled(now):
                sent[key] = None
    return sent


def _with_step(verdict: Verdict, steps: Mapping[TopicPartition, Step]) -> Entry:
    entry = verdict.entry
    assert entry is not None, "there is something to write"
    assert entry.asked is not None, "it is asked for"
    return replace(entry, asked=replace(entry.asked, step=steps.get(verdict.key)))


def _told(plan: _Plan, answer: AlterAnswer) -> dict[TopicPartition, Outcome]:
    """What became of each partition: as the broker says, or as was judged here."""
    said = dict(answer.partitions)
    told = {}
    for verdict in plan.verdicts:
        key = verdict.key
        if answer.outcome.error_code:
            told[key] = said.get(key, answer.outcome)
        elif verdict.kind in (Kind.REFUSED, Kind.REPLACED):
            told.setdefault(
                key, verdict.outcome
            )  # of its own occurrence; what holds of the partition comes by itself
        elif key not in plan.sent:
            told[key] = verdict.outcome
        else:
            outcome = said.get(key, Outcome(-1, "The broker's answer does not name the partition."))
            was_over = outcome.error_code == _NO_REASSIGNMENT_IN_PROGRESS and verdict.kind is Kind.CANCELLED
            told[key] = Outcome() if was_over else outcome
    return told


def _client_id(question: Question) -> bytes | None:
    """The caller's own, which quotas and logs of the broker go by."""
    size = REQUEST_HEAD.unpack_from(question.frame)[4]
    assert flexible(ALTER_PARTITION_REASSIGNMENTS, question.version), "every version has tags"
    if size < 0:
        return None
    return question.frame[REQUEST_HEAD.size : REQUEST_HEAD.size + size]
