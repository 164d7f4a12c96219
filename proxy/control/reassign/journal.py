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
    """A line of the journal is damaged, or is not a valid record."""


class PendingRequest(Struct, frozen=True):
    """A caller's request for one partition that a broker has not accepted or rejected yet.

    Attributes:
        target: the replicas that the caller wants; the original ones for a cancel.
        cancels: whether the request cancels the partition's move.
        step: the first step, which is sent to the broker on the caller's connection; None if the limits of concurrent
            steps leave no room for it yet.
        by: the process that has taken the request, and its number there.
    """

    target: tuple[BrokerId, ...]
    cancels: bool
    step: Step | None
    by: str


class Entry(Struct, frozen=True, tag_field="kind", tag="entry"):
    """The journal's record of one move: a partition whose replicas are changed, step by step, to a target.

    Attributes:
        topic_id: the topic's id at the time of the request, in hex; a topic that was created again has another one.
        original: the replicas before the move; later requests do not change them.
        target: the replicas that the last accepted request wants; None until a request is accepted.
        cancelled: whether the move was cancelled, so that it goes back to `original`.
        asked: a request that is not accepted or rejected yet, None for none; meanwhile no step begins.
        step: the last step that was submitted, or was about to be; None if there is none.
        unsure: whether the entry is from a damaged journal, and the executor has not compared it with the cluster yet.
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
        """The topic and the partition that is moved."""
        return self.topic, self.partition

    @property
    def move(self) -> Move:
        """The move as the input of `next_step`; only for an entry with an accepted target."""
        assert self.target is not None, "no request for it was accepted yet"
        return Move(self.topic, self.partition, self.original, self.target)

    @property
    def wanted(self) -> tuple[int, ...]:
        """The final replicas by the last request, which may be undecided."""
        if self.asked is not None:
            return self.asked.target
        assert self.target is not None, "an entry is asked for or accepted"
        return self.target

    @property
    def added_brokers(self) -> tuple[int, ...]:
        """The ids of the brokers that are in the wanted replicas and not in the original ones."""
        return tuple(broker for broker in self.wanted if broker not in self.original)

    def accepted(self) -> "Entry":
        """Return the entry after the broker has accepted the request `asked`."""
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
        """Return the entry as it was before the request `asked`, which the broker has rejected.

        None: the request has created the entry, so the caller removes it.
        """
        return None if self.target is None else replace(self, asked=None)


class EndedTotals(NamedTuple):
    """The totals of the moves that have ended since the journal was last empty.

    The progress of all moves is computed from these and the moves under way, so it does not shrink when a move ends.

    Attributes:
        done: the number of moves that have reached their target.
        not_done: the number of moves that ended otherwise: cancelled, or the topic was deleted.
        replicas: the number of replicas that the completed moves have added.
        size: the size of these replicas, in bytes.
    """

    done: Number = 0
    not_done: Number = 0
    replicas: Number = 0
    size: Number = 0

    def with_end(self, ended: "Ended", entry: "Entry | None") -> "EndedTotals":
        """Return the totals with one more ended move; a rejected request is no move and is not counted.

        Args:
            ended: the end of the move.
            entry: the move's last entry; None: it is not counted.
        """
        if ended.how == "refused" or entry is None:
            return self
        if ended.how != "done":
            return self._replace(not_done=self.not_done + 1)
        return EndedTotals(
            self.done + 1, self.not_done, self.replicas + len(entry.added_brokers), self.size + ended.size
        )


class Ended(Struct, frozen=True, tag_field="kind", tag="ended"):
    """The journal's record of the end of a move.

    Attributes:
        how: "done", "cancelled", "refused" (the broker has rejected the request), "gone" (the topic was deleted), or
            "lost" (its record was damaged, or the cluster does not confirm an unsure one).
        size: the number of bytes that were moved.
    """

    topic: str
    partition: Number
    how: str
    size: Number = 0  # journals of earlier releases have none

    @property
    def key(self) -> TopicPartition:
        """The topic and the partition that was moved."""
        return self.topic, self.partition


class Term(Struct, frozen=True, tag_field="kind", tag="term"):
    """The journal's record of the start of a term: from here on this process executes moves, and no earlier one.

    Attributes:
        number: the number of the term, one more than that of the term before.
        executor: the name of the process.
        over: the totals of ended moves whose own records were removed from the journal before this record; None if no
            records were removed here.
    """

    number: Number
    executor: str
    over: EndedTotals | None = None


Record: TypeAlias = Entry | Ended | Term


_DECODER: Final = Decoder(Record)


def write_line(sequence: int, record: Record) -> bytes:
    """Encode a record as one line of the journal, with checksum, sequence and newline."""
    text = b"%d %s" % (sequence, encode(record))
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read_line(line: bytes) -> tuple[int, Record]:
    """Decode a line of the journal, without its newline; returns its sequence number and record.

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
    """The journal contains damaged records; `Journal.recover` removes them."""


class ConflictError(Exception):
    """Another process has appended a record since the caller's last read; it should read and decide again."""


class FencedError(Exception):
    """The caller's term is over: another process executes moves now."""


class JournalState(NamedTuple):
    """The contents of a journal at one time; immutable.

    Args:
        entries: the moves under way and undecided requests, by topic and partition.
        term: the term of the process that executes.
        sequence: the number of the last record.
        ended_totals: the totals of ended moves.
    """

    entries: Mapping[TopicPartition, Entry]
    term: Term
    sequence: int
    ended_totals: EndedTotals = EndedTotals()


class Journal(Protocol):
    """A journal of moves, in a file or a topic.

    All methods block, so call them outside of the event loop, one at a time.
    """

    def read(self) -> JournalState:
        """Read the records that all processes have appended; returns the journal's contents.

        Raises:
            DamagedError: the journal contains damaged records.
            JournalError: the journal cannot be read.
        """

    def append(
        self, records: Sequence[Record], *, expected: int | None = None, term: int | None = None
    ) -> JournalState:
        """Append records, all or none; when this returns they are durable.

        Args:
            expected: the `JournalState.sequence` that the caller has decided on; None: any sequence is accepted.
            term: the number of the executor's term; None: the caller need not be the executor.

        Raises:
            ConflictError: the sequence is not `expected`, since other records were appended.
            FencedError: the term is over, since another process executes.
            DamagedError, JournalError: the journal cannot be written. The records are not in it, or, if the message
                says so, it is not known whether they are.
        """

    def recover(self) -> tuple[JournalState, str]:
        """Remove damaged records from the journal, and mark the readable entries as unsure.

        Returns: the contents of the journal, and where the damaged records are or what they were, for the log; "" if
        none were damaged.

        Raises:
            JournalError: the journal cannot be written.
        """


class Leadership(Protocol):
    """Chooses the one process that executes moves. `take` blocks, so call it outside of the event loop.

    Attributes:
        settle_ms: for how long a step may still reach the cluster after another process has become the executor, in ms.
    """

    settle_ms: int

    @property
    def held(self) -> bool:
        """Whether this process may execute now; False: only another one may, until `take` succeeds."""

    def take(self) -> bool:
        """Try once to become the executing process; returns whether this process may execute now.

        Raises:
            JournalError, OSError: the lock or the journal cannot be used.
        """

    def holder(self) -> str:
        """Return the name of the process that executes moves, as far as known; "" if it is not known."""

    def release(self) -> None:
        """Stop executing, so that another process may."""


class Contents(Struct):
    """The contents of a journal while its records are read, one after the other.

    Attributes:
        sequence: the number of the last record.
    """

    entries: dict[TopicPartition, Entry] = {}
    term: Term = Term(0, "")
    ended_totals: EndedTotals = EndedTotals()
    sequence: int = 0

    def apply(self, record: Record) -> None:
        """Apply the next record of the journal to the contents; the caller sets `sequence`."""
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
        """Return an immutable copy of the contents."""
        return JournalState(dict(self.entries), self.term, self.sequence, self.ended_totals)


# The journal for the event loop: its calls run in a thread, one after the other; the last state is kept.
#
# A decision about several partitions holds `planning_lock`, so that the API and the executor of one process do not use
# the same slot twice; between processes the journal's sequence prevents that.


logger = logging.getLogger(__name__)


class AsyncJournal:
    """The journal for the event loop: calls its blocking methods in a thread, one after the other.

    It also keeps the list of reassignments that clients see up to date.

    Args:
        journal: the journal in a file or a topic.
        process: this process's name in the journal.

    Attributes:
        state: the journal's contents as last read.
        partitions: the last known state of the moved partitions in the cluster.
        shown: the reassignments that ListPartitionReassignments shows to clients.
        planning_lock: held from reading the journal until the decision that is based on it is appended.
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
        """Remove damaged records from the journal; the executor then compares the other entries with the cluster.

        Raises:
            JournalError: the journal cannot be written.
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
        """Update `shown`, the reassignments that clients see, in a thread, since there may be thousands."""
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
