"""The journal for the event loop: its calls run in a thread, one after the other; the last state is kept.

A decision about several partitions holds `planning_lock`, so that the API and the executor of one process do not use
the same slot twice; between processes the journal's sequence prevents that.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from protocol.messages.reassignments import Ongoing, Stepping
from proxy.channel import OngoingMoves, ShownMove
from proxy.reassign.entries import Entry, Record, Term
from proxy.reassign.journal import DamagedError, Journal, JournalError, JournalState
from proxy.system.logs import event
from quotas.reassignment.step import PartitionState, TopicPartition

_NO_STATE: Final = JournalState({}, Term(0, ""), 0)

logger = logging.getLogger(__name__)


class AsyncJournal:
    """Keeps one journal and updates the reassignments that clients see.

    Args:
        journal: where it lies.
        process: this process's name in the journal.

    Attributes:
        state: the journal's contents.
        partitions: the last known state of partitions in the cluster.
        shown: the reassignments that clients see.
        planning_lock: held during a decision.
        problem: why the journal cannot be used; "" if it can.
    """

    def __init__(self, journal: Journal, process: str) -> None:
        self._journal = journal
        self._lock = asyncio.Lock()
        self.process = process
        self.state = _NO_STATE
        self.partitions: Mapping[TopicPartition, PartitionState] = {}
        self.shown = OngoingMoves()
        self.planning_lock = asyncio.Lock()
        self.problem = ""

    async def read(self) -> JournalState:
        """Read the records that other processes have appended.

        Raises:
            JournalError: the journal cannot be read.
        """
        return await self._call(self._journal.read)

    async def append(
        self, records: Sequence[Record], *, expected: int | None = None, term: int | None = None
    ) -> JournalState:
        """Append records; they are durable when this returns.

        Raises:
            ConflictError, FencedError, JournalError: see `proxy.reassign.journal.Journal`.
        """
        return await self._call(lambda: self._journal.append(records, expected=expected, term=term))

    async def recover(self) -> None:
        """Set a damaged journal aside; its readable entries are for the executor to confirm.

        Raises:
            JournalError: the journal cannot be moved.
        """
        aside = ""

        def work() -> JournalState:
            nonlocal aside
            state, aside = self._journal.recover()
            return state

        state = await self._call(work)
        if aside:
            event(
                logger,
                logging.ERROR,
                "the reassignment journal was damaged and is set aside; asking the cluster which moves are valid",
                path=aside,
                moves=len(state.entries),
                problem=self.problem,
            )
        self.problem = ""

    async def publish(self) -> None:
        """Update the reassignments that clients see; for thousands of moves in a thread."""
        moves = await asyncio.to_thread(_visible_moves, self.state, self.partitions)
        self.shown.moves = MappingProxyType(moves)

    async def _call(self, work: Callable[[], JournalState]) -> JournalState:
        async with self._lock:
            try:
                state = await asyncio.to_thread(work)
            except DamagedError as error:
                self.problem = str(error)
                raise
            except JournalError as error:
                if str(error) != self.problem:
                    event(logger, logging.ERROR, "cannot use the reassignment journal", problem=str(error))
                self.problem = str(error)
                raise
            self.problem = ""
            if state is not self.state:
                self.state = state
                await self.publish()
            return state


def _visible_moves(
    state: JournalState, now: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, ShownMove]:
    return {key: _visible_move(entry, now.get(key)) for key, entry in state.entries.items()}


def _visible_move(entry: Entry, now: PartitionState | None) -> ShownMove:
    """Return a move as Kafka lists a reassignment: the target replicas, then those to remove."""
    wanted = entry.wanted
    before = entry.original
    if wanted == before:  # the move goes back: its current replicas are those to remove
        before = now.replicas if now is not None else before
    adding = tuple(broker for broker in wanted if broker not in before)
    removing = tuple(broker for broker in before if broker not in wanted)
    step = entry.step if entry.asked is None or entry.asked.step is None else entry.asked.step
    stepping = None
    if step is not None and now is not None and step.is_under_way(now):
        stepping = Stepping(step.current, step.replicas)
    return ShownMove(Ongoing(wanted + removing, adding, removing), stepping)
