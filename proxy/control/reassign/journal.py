"""What a journal of reassignments is, in a file (`file_journal`) or a topic (`topic_journal`) (KIP-435).

A journal has the moves under way and the executor's term. Records are durable before anything is submitted; of several
processes one executes, and a record that is appended in an earlier term is refused.

Non-obvious:

- A request is journaled before a broker responds to it, and is not a move until then. The other order would lose a
  step that a broker has taken if the process is killed before it can write. Nothing acts on a request without
  a response, and a refusal removes it.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple, Protocol, TypeAlias

from msgspec import Meta, Struct
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from protocol.messages.reassignments import Ongoing, Stepping
from proxy.channel import OngoingMoves, ShownMove
from proxy.system.logs import event
from quotas.reassignment.step import Move, PartitionState, Step, TopicPartition

# The journal's record of one move, and its encoding as a line (KIP-435). Pure.
#
#     asked ──► first step refused ──► removed: the entry is as it was before, or gone
#       │
#       └─► accepted ──► step ──► step … ──► ended: done, cancelled, gone
#
# An entry is written as a whole whenever it changes: no line depends on another, and the last one of a partition
# applies. A line is `checksum sequence json`; a gap in the sequence means missing lines.


LINE_BYTES_MAX: Final = 64 * 1024
_CHECKSUM_DIGITS: Final = 8

Number = Annotated[int, Meta(ge=0)]
Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]  # of a partition
BrokerId = Annotated[int, Meta(ge=-1, le=2**31 - 1)]  # -1: none, as in Kafka


class LineError(Exception):
    """A line that is not a valid record, or is damaged."""


class PendingRequest(Struct, frozen=True):
    """A request that a broker has not decided on yet.

    Attributes:
        target: the replicas that the caller wants; the original ones for a cancel.
        cancels: whether the request is a cancel.
        step: the first step, on its way on the caller's connection; None if it must wait for a slot.
        by: the requesting process and the number of its request.
    """

    target: tuple[BrokerId, ...]
    cancels: bool
    step: Step | None
    by: str


class Entry(Struct, frozen=True, tag_field="kind", tag="entry"):
    """One move in the journal.

    Attributes:
        topic_id: the topic's id at the time of the request, in hex; a topic that was created again has another.
        original: the replicas before the move; later requests do not change them.
        target: the accepted target; None before the first.
        cancelled: whether the move goes back to `original`.
        asked: the undecided request; until its decision no step begins.
        step: the last step that was, or was about to be, submitted; None if there is none.
        unsure: whether it was read from a damaged journal and the cluster has not confirmed it yet.
    """

    topic: str
    partition: Index
    topic_id: str
    original: tuple[BrokerId, ...]
    target: tuple[BrokerId, ...] | None = None
    cancelled: bool = False
    asked: PendingRequest | None = None
    step: Step | None = None
    unsure: bool = False

    @property
    def key(self) -> TopicPartition:
        """The topic and partition that the entry is about."""
        return self.topic, self.partition

    @property
    def move(self) -> Move:
        """The move as the planner's input."""
        assert self.target is not None, "no request for it was accepted yet"
        return Move(self.topic, self.partition, self.original, self.target)

    @property
    def wanted(self) -> tuple[int, ...]:
        """The final replicas by the last request."""
        if self.asked is not None:
            return self.asked.target
        assert self.target is not None, "an entry is asked for or accepted"
        return self.target

    @property
    def added_brokers(self) -> tuple[int, ...]:
        """The ids of the brokers that the move adds."""
        return tuple(broker for broker in self.wanted if broker not in self.original)

    def accepted(self) -> "Entry":
        """Return the entry after the broker has accepted the request."""
        asked = self.asked
        assert asked is not None, "nothing was asked for"
        return replace(
            self,
            target=asked.target,
            cancelled=asked.cancels,
            asked=None,
            step=self.step if asked.step is None else asked.step,
        )

    def rejected(self) -> "Entry | None":
        """Return the entry after the broker has refused the request: as it was before; None if there was none."""
        return None if self.target is None else replace(self, asked=None)


class EndedTotals(NamedTuple):
    """The totals of ended moves since there were last no moves, so that totals do not shrink while moves end.

    Attributes:
        done: the number of moves that reached their target.
        not_done: the number of other ends: cancelled, or the topic is gone. A refused request is no move.
        replicas, size: the number and bytes of the replicas that completed moves have added.
    """

    done: Number = 0
    not_done: Number = 0
    replicas: Number = 0
    size: Number = 0

    def with_end(self, ended: "Ended", entry: "Entry | None") -> "EndedTotals":
        """Return the totals with one more ended move."""
        if ended.how == "refused" or entry is None:
            return self
        if ended.how != "done":
            return self._replace(not_done=self.not_done + 1)
        return EndedTotals(
            self.done + 1, self.not_done, self.replicas + len(entry.added_brokers), self.size + ended.size
        )


class Ended(Struct, frozen=True, tag_field="kind", tag="ended"):
    """The end of a move; `how` is done, cancelled, refused, gone or lost; `size` is the number of bytes moved."""

    topic: str
    partition: Number
    how: str
    size: Number = 0  # journals of earlier releases have none

    @property
    def key(self) -> TopicPartition:
        """The topic and partition that the move was of."""
        return self.topic, self.partition


class Term(Struct, frozen=True, tag_field="kind", tag="term"):
    """The start of a term: from here on this process executes, and no earlier one.

    Attributes:
        over: in a rewritten journal, the totals of the dropped lines.
    """

    number: Number
    executor: str
    over: EndedTotals | None = None


Record: TypeAlias = Entry | Ended | Term


_DECODER: Final = Decoder(Record)


def write_line(sequence: int, record: Record) -> bytes:
    """Encode one line, with its newline."""
    text = b"%d %s" % (sequence, encode(record))
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read_line(line: bytes) -> tuple[int, Record]:
    """Decode a line without its newline; returns its sequence and record.

    Raises:
        LineError: the line is damaged.
    """
    checksum, space, text = line.partition(b" ")
    try:
        if not space or len(checksum) != _CHECKSUM_DIGITS or int(checksum, 16) != zlib.crc32(text):
            raise LineError("the checksum is wrong")
        number, _, content = text.partition(b" ")
        record = _DECODER.decode(content)
        if isinstance(record, Entry):
            for step in (record.step, record.asked.step if record.asked else None):
                if step is not None and not _fits(step):
                    raise LineError("a step with a number that Kafka cannot express")
        return int(number), record
    except (ValueError, RecursionError) as error:
        raise LineError(f"not a record: {error}") from None


def _fits(step: Step) -> bool:
    """Whether a step's numbers are int32: the planner's own type has no bounds, and what is read may be forged."""
    brokers = (*step.replicas, *step.adds, *step.drops, *step.current, step.leader, step.elects or 0)
    return 0 <= step.partition < 2**31 and all(-1 <= broker < 2**31 for broker in brokers)


class JournalError(Exception):
    """The journal cannot be read or written; the message says what to do."""


class DamagedError(JournalError):
    """The journal contains damaged records: `Journal.recover` sets them aside."""


class ConflictError(Exception):
    """Another record was appended since the last read: read again."""


class FencedError(Exception):
    """Another process executes now."""


class JournalState(NamedTuple):
    """The journal's contents; immutable."""

    entries: Mapping[TopicPartition, Entry]
    term: Term
    sequence: int
    ended_totals: EndedTotals = EndedTotals()


class Journal(Protocol):
    """One journal. All calls block: make them outside of the loop, one at a time."""

    def read(self) -> JournalState:
        """Read the records that any process has appended.

        Raises:
            DamagedError: the journal contains damaged records.
            JournalError: the journal cannot be read.
        """

    def append(
        self, records: Sequence[Record], *, expected: int | None = None, term: int | None = None
    ) -> JournalState:
        """Append records, all or none; when this returns they are durable.

        Args:
            expected: the sequence on which the decision is based; None if it is based on none.
            term: the caller's term; None if the caller need not be the executor.

        Raises:
            ConflictError: other records were appended since then.
            FencedError: another process executes.
            DamagedError, JournalError: the journal cannot be written. The records are not there, or, if the message
                says so, it is not known whether they are.
        """

    def recover(self) -> tuple[JournalState, str]:
        """Set damaged records aside; returns the readable entries, as unsure, and where the others are now.

        Raises:
            JournalError: it cannot be done.
        """


class Leadership(Protocol):
    """The choice of the executing process. `take` blocks: call it outside of the loop.

    Attributes:
        settle_ms: for how long a step that an earlier executor was about to submit may still arrive.
    """

    settle_ms: int

    @property
    def held(self) -> bool:
        """Whether this process may execute now."""

    def take(self) -> bool:
        """Try once; returns whether this process may execute now.

        Raises:
            JournalError, OSError: it cannot be found out.
        """

    def holder(self) -> str:
        """Return the name of the process that executes, as far as known."""

    def release(self) -> None:
        """Stop executing, so that another process may."""


class Contents(Struct):
    """The contents of a journal, built record by record; `sequence` is that of the last one."""

    entries: dict[TopicPartition, Entry] = {}
    term: Term = Term(0, "")
    ended_totals: EndedTotals = EndedTotals()
    sequence: int = 0

    def apply(self, record: Record) -> None:
        """Change the contents by the next record of the journal."""
        if isinstance(record, Entry):
            if not self.entries:
                self.ended_totals = EndedTotals()
            self.entries[record.key] = record
        elif isinstance(record, Ended):
            self.ended_totals = self.ended_totals.with_end(record, self.entries.pop(record.key, None))
        else:
            self.term = replace(record, over=None)
            if record.over is not None:
                self.ended_totals = record.over

    def state(self) -> JournalState:
        """Return the contents as they are now."""
        return JournalState(dict(self.entries), self.term, self.sequence, self.ended_totals)


# The journal for the event loop: its calls run in a thread, one after the other; the last state is kept.
#
# A decision about several partitions holds `planning_lock`, so that the API and the executor of one process do not use
# the same slot twice; between processes the journal's sequence prevents that.


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
        self.state = Contents().state()
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
            ConflictError, FencedError, JournalError: see `proxy.control.reassign.journal.Journal`.
        """
        return await self._call(lambda: self._journal.append(records, expected=expected, term=term))

    async def recover(self) -> None:
        """Set a damaged journal aside; the executor confirms its readable entries with the cluster.

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
