"""Carries out what the journal holds, while this process holds the lease (KIP-435).

    take the lease ─► begin a term ─► [ read the journal ─► look ─► decide ─► journal ─► submit ─► elect ]*

Each round reads everything anew, so a process that was killed at any point is followed by one that does the same from
there. A step is on disk before it is submitted, under the term of who submits; what is not answered is not submitted
again but looked for. Without moves nothing is asked of anybody. A process without the lease looks as well, for what it
shows to clients, and does nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from proxy.config import ReassignmentSettings
from proxy.logs import event
from proxy.reassign.async_journal import AsyncJournal
from proxy.reassign.cluster import Cluster, ClusterError, Seen
from proxy.reassign.entries import Ended, Entry, Record, Term
from proxy.reassign.journal import ConflictError, DamagedError, JournalError, Known, MovedOnError
from proxy.reassign.leader_lock import LeaderLock
from proxy.reassign.reconcile import Decision, Memory, decide
from proxy.reassign.sizes import Sizes
from proxy.stats import Stats
from quotas.reassignment.step import Step, TopicPartition

__all__ = ["Executor"]

_PAUSE_SECONDS: Final = 0.25  # between two rounds while something is under way
_IDLE_SECONDS: Final = 0.5  # between two looks at the journal while nothing is
_RETRY_SECONDS_MAX: Final = 10.0
# A round is followed by this many times its own length of rest: the traffic of clients comes first.
_REST: Final = 4.0
_SIZES_SECONDS: Final = 5.0
# Who has failed for so long lets another process try, and stands by meanwhile.
_FAILING_MS_MAX: Final = 30_000
_STANDBY_MS: Final = 5_000

logger = logging.getLogger(__name__)


class Executor:
    """One process's.

    Args:
        directory: the journal's.
        settings: gives those in force.
        now_ms: the time, monotonic.

    Attributes:
        decision: the last one, for who wants to know why something waits.
        sizes: of replicas of the moved partitions, as they were last read, and when.
        problem: why nothing can be carried out; "" when it can.
    """

    def __init__(
        self,
        keeper: AsyncJournal,
        cluster: Cluster,
        directory: Path,
        settings: Callable[[], ReassignmentSettings],
        now_ms: Callable[[], int],
        stats: Stats,
    ) -> None:
        self._keeper = keeper
        self._cluster = cluster
        self._settings = settings
        self._now_ms = now_ms
        self._stats = stats
        self._lease = LeaderLock(directory, keeper.process)
        self._term = 0
        self._failing_ms: int | None = None  # since when
        self._standby_until_ms = 0
        self._memory = Memory()
        self._woken = asyncio.Event()
        self._pause_seconds = _PAUSE_SECONDS
        self._sized_at = 0.0
        self._sizing: asyncio.Task[None] | None = None
        self.decision = Decision()
        self.sizes = Sizes()
        self.sized_ms = 0
        self.problem = ""

    @property
    def leads(self) -> bool:
        """Whether this process carries moves out."""
        return self._term > 0

    def holder(self) -> str:
        """Which process does, as far as is known."""
        return self._lease.holder()

    def wake(self) -> None:
        """There is something new."""
        self._woken.set()

    async def run(self) -> None:
        """Go on for ever; the application cancels it."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                try:
                    pause = await self.round()
                except Exception as error:
                    self._stats.task_failures["reassignments"] += 1
                    problem = f"internal error: {error!r}"
                    if problem != self.problem:
                        logger.error("internal error: a round of reassignments failed", exc_info=error)
                    self.problem, pause = problem, _RETRY_SECONDS_MAX
                    self._failed()
                rest = min(_REST * (loop.time() - began), _RETRY_SECONDS_MAX)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), max(pause, rest))
                self._woken.clear()
        finally:
            if self._sizing is not None:
                self._sizing.cancel()
            self._cluster.close()
            self._let_go()

    async def round(self) -> float:
        """Do what is to be done now; give the seconds until the next time."""
        try:
            known = await self._lead()
            if not known.entries:
                self.decision, self.sizes = Decision(), Sizes()
                self._told("")
                self._failing_ms = None
                return _IDLE_SECONDS
            seen = await self._look(known)
            if self.leads:
                await self._step(known, seen)
            self._measure(seen)
        except ConflictError:
            return 0.0  # another process has asked for something: look again
        except MovedOnError as error:
            self._stand_down(str(error))
        except DamagedError as error:
            self._told(str(error))
            await self._recover()
        except (JournalError, ClusterError, OSError) as error:
            self._told(str(error))
            self._failed()
            self._pause_seconds = min(2 * self._pause_seconds, _RETRY_SECONDS_MAX)
            return self._pause_seconds
        else:
            self._told("")
            self._failing_ms = None
            self._pause_seconds = _PAUSE_SECONDS
        return _PAUSE_SECONDS if self.leads else _IDLE_SECONDS

    async def _lead(self) -> Known:
        """Give what there is, and become the one who executes if nobody else does."""
        known = await self._keeper.read()
        if self.leads:
            if known.term.number != self._term:
                raise MovedOnError(known.term.executor)
            return known
        if self._now_ms() < self._standby_until_ms or not await asyncio.to_thread(self._lease.take):
            return known
        term = Term(known.term.number + 1, self._keeper.process)
        known = await self._keeper.append([term], expected=known.sequence)
        self._term, self._memory = term.number, Memory()
        event(logger, logging.INFO, "this process carries out reassignments", moves=len(known.entries))
        return known

    async def _look(self, known: Known) -> Seen:
        # Callers' requests do not wait for it: a broker that hangs takes seconds, and the journal's sequence tells
        # whether anything was asked for meanwhile.
        seen = await self._cluster.look(sorted({topic for topic, _ in known.entries}))
        self._keeper.now = {key: seen.now[key] for key in known.entries if key in seen.now}
        await self._keeper.show()
        return seen

    async def _step(self, known: Known, seen: Seen) -> None:
        """Decide, journal, submit, elect: in this order."""
        keeper, settings = self._keeper, self._settings()
        dead_target_ms = int(settings.dead_target_seconds * 1000)
        async with keeper.planning:
            # In a thread: thousands of moves take longer than a channel may hold others up.
            found = await asyncio.to_thread(
                decide, known.entries, seen, settings.limits, self._memory, dead_target_ms, self._now_ms()
            )
            self.decision = found
            if found.records or found.cancels or found.elections:
                records = [self._with_size(record, known.entries) for record in found.records]
                await keeper.append(records, expected=known.sequence, term=self._term)
                self._report(records, known.entries)
        await self._submit(found.steps, found.cancels)
        if found.elections:
            await self._elect(found.elections)

    def _with_size(self, record: Record, entries: Mapping[TopicPartition, Entry]) -> Record:
        """Add to the end of a move what it brought, as far as sizes were read: the status keeps the total."""
        if not isinstance(record, Ended) or record.how != "done":
            return record
        return replace(record, size=self.sizes.partition(record.key) * len(entries[record.key].coming))

    async def _submit(self, steps: list[Step], cancels: list[TopicPartition]) -> None:
        targets = {step.key: step.replicas for step in steps} | dict.fromkeys(cancels)
        if not targets:
            return
        counts, now_ms = self._stats.reassignment_steps, self._now_ms()
        for step in steps:
            self._memory.submitted_ms[step.key] = (step, now_ms)
        try:
            outcomes = await self._cluster.submit(targets)
        except ClusterError:
            counts["unanswered"] += len(targets)
            raise  # the next round looks what became of them
        for key, outcome in outcomes.items():
            if outcome.error_code:
                counts["refused"] += 1
                problem = f"error {outcome.error_code} {outcome.error_message or ''}".strip()
                self._memory.failed(key, problem, self._now_ms())
                event(
                    logger,
                    logging.WARNING,
                    "a step was refused",
                    topic=key[0],
                    partition=key[1],
                    replicas=str(targets[key]),
                    problem=problem,
                )
            else:
                counts["cancelled" if targets[key] is None else "submitted"] += 1
                self._memory.failures.pop(key, None)

    async def _elect(self, partitions: list[TopicPartition]) -> None:
        found = await self._cluster.elect(partitions)
        for key, (error_code, message) in found.items():
            if not error_code:
                self._stats.reassignment_steps["elected"] += 1
                continue
            self._memory.elections[key] += 1
            self._memory.failed(key, f"no election: error {error_code} {message}".strip(), self._now_ms())

    def _report(self, records: list[Record], before: Mapping[TopicPartition, Entry]) -> None:
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

    def _measure(self, seen: Seen) -> None:
        """Have the sizes of replicas read, now and then: for the status. Nobody decides by it, and no step waits."""
        loop = asyncio.get_running_loop()
        is_under_way = self._sizing is not None and not self._sizing.done()
        if not self.leads or is_under_way or loop.time() - self._sized_at < _SIZES_SECONDS:
            return
        self._sized_at = loop.time()
        entries = self._keeper.known.entries
        concerned = {broker for entry in entries.values() for broker in (*entry.original, *entry.wanted)}
        self._sizing = loop.create_task(self._read_sizes(sorted(concerned & seen.live), list(entries)))

    async def _read_sizes(self, brokers: list[int], moved: list[TopicPartition]) -> None:
        try:
            found = await self._cluster.sizes(brokers)
            self.sizes = await asyncio.to_thread(self.sizes.with_read, found, moved)
        except Exception as error:
            logger.error("internal error: no sizes for the status", exc_info=error)
        else:
            self.sized_ms = self._now_ms()

    async def _recover(self) -> None:
        """Whoever holds the lease sets a damaged journal aside; the others wait for that."""
        try:
            if await asyncio.to_thread(self._lease.take):
                await self._keeper.recover()
                self._term = 0  # a new journal, a new term
        except (JournalError, OSError) as error:
            self._told(str(error))

    def _stand_down(self, other: str) -> None:
        event(logger, logging.WARNING, "another process carries out reassignments now", process=other)
        self._let_go()

    def _failed(self) -> None:
        """A round has failed: perhaps it is only from here that brokers can not be reached."""
        now_ms = self._now_ms()
        if self._failing_ms is None:
            self._failing_ms = now_ms
        if self._lease.held and now_ms - self._failing_ms >= _FAILING_MS_MAX:
            event(
                logger,
                logging.WARNING,
                "letting another process carry out reassignments",
                problem=self.problem,
            )
            self._failing_ms = None
            self._standby_until_ms = now_ms + _STANDBY_MS
            self._let_go()

    def _let_go(self) -> None:
        self._term = 0
        self.decision, self.sizes = Decision(), Sizes()  # the other one's are not known here
        self._lease.give_back()

    def _told(self, problem: str) -> None:
        if problem != self.problem:
            level = logging.WARNING if problem else logging.INFO
            event(logger, level, "carrying out reassignments", problem=problem or "none: continuing")
        self.problem = problem
