"""Executes the journal's moves while this process holds the lock (KIP-435).

    take the lock ─► begin a term ─► [ read the journal ─► read the cluster ─► decide ─► journal ─► submit ─► elect ]*

Each round reads everything again, so that another process can continue after a kill at any point. A step is durable
before it is submitted, with the term of the submitting process; a step without a response is not submitted again, but
looked up. Without moves no requests are sent. A process without the lock also reads the cluster, to show clients the
moves, and changes nothing.

Non-obvious:

- The lock is looked at once more in the turn of the loop in which a submission is written to its connection. A step
  that is late all the same was journaled, so the next executor knows it; it ends no move that it has taken over
  while such a step may still arrive (`Leadership.settle_ms`), and sees it under way like any other.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from proxy.config import ReassignmentSettings
from proxy.control.reassign.cluster import Cluster, ClusterError, ClusterState, Sizes, WithdrawnError
from proxy.control.reassign.journal import (
    AsyncJournal,
    ConflictError,
    DamagedError,
    Ended,
    Entry,
    FencedError,
    JournalError,
    JournalState,
    Leadership,
    Record,
    Term,
)
from proxy.control.reassign.reconcile import Decision, Memory, reconcile
from proxy.events import Tell, untold
from proxy.events.kinds import ReassignmentEnded, ReassignmentStep
from proxy.system.logs import event
from proxy.system.stats import Stats
from quotas.reassignment.step import Step, TopicPartition

_PAUSE_SECONDS: Final = 0.25  # between two rounds while moves are under way
_IDLE_SECONDS: Final = 0.5  # between two reads of the journal otherwise
_RETRY_SECONDS_MAX: Final = 10.0
# Each round is followed by a pause of this many times its duration: clients' traffic has priority.
_PAUSE_FACTOR: Final = 4.0
_SIZES_SECONDS: Final = 5.0
# A process that has failed for so long, or was replaced, lets another one try, and waits.
_FAILING_MS_MAX: Final = 30_000
_STANDBY_MS: Final = 5_000

logger = logging.getLogger(__name__)


class Executor:
    """Executes the moves (requested reassignments) of the journal step by step, while this process is chosen for it.

    Args:
        journal: the journal with the moves.
        cluster: reads and changes the cluster.
        lock: chooses the one process that executes.
        settings: returns the settings in force.
        now_ms: the monotonic clock, in ms.

    Attributes:
        decision: the last decision, with the reasons for waiting moves.
        sizes: the last read sizes of the moved partitions' replicas.
        problem: why moves cannot be executed; "" if they can.
    """

    def __init__(
        self,
        journal: AsyncJournal,
        cluster: Cluster,
        lock: Leadership,
        settings: Callable[[], ReassignmentSettings],
        now_ms: Callable[[], int],
        stats: Stats,
        tell: Tell = untold,
    ) -> None:
        self._tell = tell
        self._journal = journal
        self._cluster = cluster
        self._settings = settings
        self._now_ms = now_ms
        self._stats = stats
        self._lock = lock
        self._term = 0
        self._failing_ms: int | None = None  # since when rounds have failed
        self._standby_until_ms = 0
        self._memory = Memory()
        self._woken = asyncio.Event()
        self._pause_seconds = _PAUSE_SECONDS
        self._sizes_read_at = 0.0
        self._size_task: asyncio.Task[None] | None = None
        self.decision = Decision()
        self.sizes = Sizes()
        self.sizes_ms = 0
        self.problem = ""

    @property
    def leads(self) -> bool:
        """Whether this process executes moves; False: another one does, or none has been chosen yet."""
        return self._term > 0

    def holder(self) -> str:
        """Return the name of the process that executes moves, as far as known; "" if it is not known."""
        return self._lock.holder()

    def wake(self) -> None:
        """Have `run` begin its next round at once, since there are new moves or settings."""
        self._woken.set()

    async def run(self) -> None:
        """Call `run_round` again and again, with the pauses that it returns, until cancelled by the application."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                try:
                    pause = await self.run_round()
                except Exception as error:
                    self._stats.task_failures["reassignments"] += 1
                    problem = f"internal error: {error!r}"
                    if problem != self.problem:
                        logger.error("internal error: a round of reassignments failed", exc_info=error)
                    self.problem, pause = problem, _RETRY_SECONDS_MAX
                    self._round_failed()
                rest = min(_PAUSE_FACTOR * (loop.time() - began), _RETRY_SECONDS_MAX)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), max(pause, rest))
                self._woken.clear()
        finally:
            if self._size_task is not None:
                self._size_task.cancel()
            self._cluster.close()
            self._release_leadership()

    async def run_round(self) -> float:
        """Read the journal and the cluster, and submit the steps and elections that are due.

        Returns: the pause until the next round, in seconds.
        """
        try:
            state = await self._read_journal()
            if not state.entries:
                self.decision, self.sizes = Decision(), Sizes()
                self._set_problem("")
                self._failing_ms = None
                return _IDLE_SECONDS
            cluster = await self._read_cluster(state)
            if self.leads:
                await self._execute(state, cluster)
            self._refresh_sizes(cluster)
        except ConflictError:
            return 0.0  # another process has appended a request: read again
        except (FencedError, WithdrawnError) as error:
            self._stand_down(str(error))
        except DamagedError as error:
            self._set_problem(str(error))
            await self._recover()
        except (JournalError, ClusterError, OSError) as error:
            self._set_problem(str(error))
            self._round_failed()
            self._pause_seconds = min(2 * self._pause_seconds, _RETRY_SECONDS_MAX)
            return self._pause_seconds
        else:
            self._set_problem("")
            self._failing_ms = None
            self._pause_seconds = _PAUSE_SECONDS
        return _PAUSE_SECONDS if self.leads else _IDLE_SECONDS

    async def _read_journal(self) -> JournalState:
        """Return the journal's contents, and take the lock if it is free."""
        state = await self._journal.read()
        if self.leads:
            if state.term.number != self._term or not self._lock.held:
                raise FencedError(state.term.executor)
            return state
        if self._now_ms() < self._standby_until_ms or not await asyncio.to_thread(self._lock.take):
            return state
        before, term = state.term, Term(state.term.number + 1, self._journal.process)
        state = await self._journal.append([term], expected=state.sequence)
        self._term, self._memory = term.number, Memory()
        if before.executor not in ("", self._journal.process):
            settled_ms = self._now_ms() + self._lock.settle_ms
            self._memory.settled_ms = dict.fromkeys(state.entries, settled_ms)
        event(logger, logging.INFO, "this process carries out reassignments", moves=len(state.entries))
        return state

    async def _read_cluster(self, state: JournalState) -> ClusterState:
        # Callers' requests do not wait for this: an unresponsive broker takes seconds, and the journal's sequence shows
        # whether a request was added meanwhile.
        topics = sorted({topic for topic, _ in state.entries})
        targets = {broker for entry in state.entries.values() for broker in entry.wanted}
        cluster = await self._cluster.read_state(topics, targets=targets)
        self._journal.partitions = {
            key: cluster.partitions[key] for key in state.entries if key in cluster.partitions
        }
        await self._journal.publish()
        return cluster

    async def _execute(self, state: JournalState, cluster: ClusterState) -> None:
        """Decide, journal, submit and elect, in this order."""
        journal, settings = self._journal, self._settings()
        dead_target_ms = int(settings.dead_target_seconds * 1000)
        async with journal.planning_lock:
            # In a thread: thousands of moves would block the loop.
            found = await asyncio.to_thread(
                reconcile,
                state.entries,
                cluster,
                settings.limits,
                self._memory,
                dead_target_ms,
                self._now_ms(),
            )
            self.decision = found
            if found.records or found.cancels or found.elections:
                records = [self._with_size(record, state.entries) for record in found.records]
                await journal.append(records, expected=state.sequence, term=self._term)
                self._log_ended(records, state.entries)
        await self._submit(found.steps, found.cancels)
        if found.elections:
            await self._elect(found.elections)

    def _with_size(self, record: Record, entries: Mapping[TopicPartition, Entry]) -> Record:
        """Return the record; the end of a move gets its number of moved bytes, which the status sums up."""
        if not isinstance(record, Ended) or record.how != "done":
            return record
        return replace(record, size=self.sizes.partition(record.key) * len(entries[record.key].added_brokers))

    async def _submit(self, steps: list[Step], cancels: list[TopicPartition]) -> None:
        targets = {step.key: step.replicas for step in steps} | dict.fromkeys(cancels)
        if not targets:
            return
        counts, now_ms = self._stats.reassignment_steps, self._now_ms()
        for step in steps:
            self._memory.submitted_ms[step.key] = (step, now_ms)
        try:
            outcomes = await self._cluster.submit(targets, self._may_submit)
        except ClusterError:
            counts["unanswered"] += len(targets)
            raise  # the next round finds out what has happened
        for key, outcome in outcomes.items():
            if outcome.error_code:
                counts["refused"] += 1
                problem = f"error {outcome.error_code} {outcome.error_message or ''}".strip()
                self._memory.record_failure(key, problem, self._now_ms())
                event(
                    logger,
                    logging.WARNING,
                    "a step was refused",
                    topic=key[0],
                    partition=key[1],
                    replicas=str(targets[key]),
                    problem=problem,
                )
                self._tell(ReassignmentStep(*key, str(targets[key]), problem))
            else:
                if targets[key] is not None:
                    self._tell(ReassignmentStep(*key, str(targets[key])))
                counts["cancelled" if targets[key] is None else "submitted"] += 1
                self._memory.failures.pop(key, None)

    def _may_submit(self) -> bool:
        """Whether this process still executes; asked right before a submission."""
        return self.leads and self._lock.held

    async def _elect(self, partitions: list[TopicPartition]) -> None:
        found = await self._cluster.elect(partitions, self._may_submit)
        for key, (error_code, message) in found.items():
            if not error_code:
                self._stats.reassignment_steps["elected"] += 1
                continue
            self._memory.elections[key] += 1
            self._memory.record_failure(
                key, f"no election: error {error_code} {message}".strip(), self._now_ms()
            )

    def _log_ended(self, records: list[Record], before: Mapping[TopicPartition, Entry]) -> None:
        for record in records:
            if not isinstance(record, Ended):
                continue
            self._stats.reassignment_ends[record.how] += 1
            entry = before[record.key]
            level = logging.INFO if record.how in ("done", "cancelled") else logging.WARNING
            event(
                logger,
                level,
                "reassignment ended",
                topic=record.topic,
                partition=record.partition,
                how=record.how,
                original=str(entry.original),
                target=str(entry.wanted),
            )
            self._tell(ReassignmentEnded(record.topic, record.partition, record.how, str(entry.wanted)))

    def _refresh_sizes(self, cluster: ClusterState) -> None:
        """Start to read replica sizes, at most every _SIZES_SECONDS: for the status only, no step depends on
        them.
        """
        loop = asyncio.get_running_loop()
        is_under_way = self._size_task is not None and not self._size_task.done()
        if not self.leads or is_under_way or loop.time() - self._sizes_read_at < _SIZES_SECONDS:
            return
        self._sizes_read_at = loop.time()
        entries = self._journal.state.entries
        concerned = {broker for entry in entries.values() for broker in (*entry.original, *entry.wanted)}
        self._size_task = loop.create_task(self._read_sizes(sorted(concerned & cluster.live), list(entries)))

    async def _read_sizes(self, brokers: list[int], moved: list[TopicPartition]) -> None:
        try:
            found = await self._cluster.sizes(brokers)
            self.sizes = await asyncio.to_thread(self.sizes.updated, found, moved)
        except Exception as error:
            logger.error("internal error: no sizes for the status", exc_info=error)
        else:
            self.sizes_ms = self._now_ms()

    async def _recover(self) -> None:
        """Set a damaged journal aside, if this process holds the lock; other processes wait for that."""
        try:
            if await asyncio.to_thread(self._lock.take):
                await self._journal.recover()
                self._term = 0  # a new journal needs a new term
        except (JournalError, OSError) as error:
            self._set_problem(str(error))

    def _stand_down(self, other: str) -> None:
        if other in ("", self._journal.process):
            event(logger, logging.WARNING, "this process carries out no reassignments for now")
        else:
            event(logger, logging.WARNING, "another process carries out reassignments now", process=other)
        self._standby_until_ms = self._now_ms() + _STANDBY_MS
        self._release_leadership()

    def _round_failed(self) -> None:
        """Note a failed round; if rounds have failed for _FAILING_MS_MAX, let another process execute for
        _STANDBY_MS.

        Perhaps only this process cannot reach the brokers.
        """
        now_ms = self._now_ms()
        if self._failing_ms is None:
            self._failing_ms = now_ms
        if self._lock.held and now_ms - self._failing_ms >= _FAILING_MS_MAX:
            event(
                logger,
                logging.WARNING,
                "letting another process carry out reassignments",
                problem=self.problem,
            )
            self._failing_ms = None
            self._standby_until_ms = now_ms + _STANDBY_MS
            self._release_leadership()

    def _release_leadership(self) -> None:
        self._term = 0
        self.decision, self.sizes = Decision(), Sizes()  # those of the executing process are unknown here
        self._lock.release()

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            level = logging.WARNING if problem else logging.INFO
            event(logger, level, "carrying out reassignments", problem=problem or "none: continuing")
        self.problem = problem
