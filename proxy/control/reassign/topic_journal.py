"""The journal in a compacted topic, appended to by the executor alone (docs/decisions/0014).

    take    look whether this process is the holder ─► fence all earlier writers ─► write a mark, and read up to it
    append  look at sequence and term ─► one transaction ─► acknowledged ─► read back ─► the state it leads to

Kafka fences: an append of a process whose writer is not the last one that was opened is refused. A writer has one
term: after any problem both are over, and `take` begins by looking whether this process is still the holder.

All other processes only read; what callers ask of them is forwarded to the holder (`topic_place`).

Non-obvious:

- What was read is the order of the topic, so memory is changed by what is read alone, never by what is appended.
- A writer that is opened aborts what an earlier one has left open, so up to the mark nothing can be added any more.
- Two holders for a moment fence each other in turn, until the tenure of one ends; no record is lost by it.
- With a secret records are signed (`proxy.topics.records`), with stamps that only grow; others are counted and
  ignored. The first signed FENCE makes unsigned records void. Before it, those of an earlier version are taken over as
  unsure, so a move is only carried on if the cluster knows it. What an ignored record hides is written again.
- A client that opens a writer of this transactional id, directly at the brokers, fences this process too. It takes over
  again, with one line, as often as that happens; each costs one attempt of the executor.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from proxy.control.reassign.journal import (
    LINE_BYTES_MAX,
    ConflictError,
    Contents,
    DamagedError,
    Ended,
    EndedTotals,
    Entry,
    FencedError,
    JournalError,
    JournalState,
    LineError,
    Record,
    Term,
    read_line,
    write_line,
)
from proxy.system.logs import event
from proxy.topics.records import AppendError, Portion, Problem, ReadLog, Seal, Stamps
from proxy.topics.records import Record as TopicRecord
from quotas.reassignment.step import TopicPartition

# The journal's records in a compacted topic: a line of the file journal as the value, and a key for compaction. Pure.
#
#     move/TOPIC/PARTITION   the move as it is now; a tombstone when it has ended
#     term                   the executor's term and the totals of ended moves; the last record of each append
#     fence                  the process that has begun to append
#
# The number of an append's last line is the journal's sequence; so a reader needs no record that compaction may remove.


FENCE: Final = b"fence"
_TERM: Final = b"term"
_MOVE: Final = b"move/"
_KEY_BYTES_MAX: Final = 300
_NAME_BYTES_MAX: Final = 300

# The move of a partition, or None for the term.
Found: TypeAlias = TopicPartition | None


def write_records(
    records: Sequence[Record], term: Term, totals: EndedTotals, sequence: int
) -> list[TopicRecord]:
    """Encode the records of one append, and after them one record with the term and the totals of ended moves.

    Args:
        totals: the totals of ended moves, including the moves that these records end.
        sequence: the journal's sequence before these records.

    Raises:
        LineError: a move is too large.
    """
    found = []
    for record in records:
        sequence += 1
        if isinstance(record, Ended):
            found.append(TopicRecord(_key(record.key), None))
        elif isinstance(record, Entry):
            found.append(TopicRecord(_key(record.key), _line(sequence, record)))
    found.append(TopicRecord(_TERM, _line(sequence + 1, replace(term, over=totals))))
    return found


def write_fence(process: str) -> TopicRecord:
    """Encode the first record of a process that has become the only writer, as brokers refuse the appends of others."""
    return TopicRecord(FENCE, process.encode()[:_NAME_BYTES_MAX])


def read_key(key: bytes | None) -> Found:
    """Decode the key of a record other than FENCE: the topic and partition of a move; None for the term.

    Raises:
        LineError: the key is not one of the journal's.
    """
    if key == _TERM:
        return None
    if key is None or not key.startswith(_MOVE) or len(key) > _KEY_BYTES_MAX:
        raise LineError("a key that is not the journal's")
    topic, slash, number = key[len(_MOVE) :].decode("utf-8", "replace").rpartition("/")
    if not slash or not (number.isascii() and number.isdecimal()):
        raise LineError("a key that is not a partition")
    return topic, int(number)


def read_value(place: Found, value: bytes) -> tuple[int, Entry | Term]:
    """Decode the value of a record: its sequence, and the move's entry or the term.

    Args:
        place: what `read_key` has returned for the record's key.

    Raises:
        LineError: the value is damaged, or belongs to another key.
    """
    if len(value) > LINE_BYTES_MAX:
        raise LineError(f"{len(value)} bytes are more than {LINE_BYTES_MAX}")
    sequence, record = read_line(value)
    if isinstance(record, Entry) and record.key == place:
        return sequence, record
    if isinstance(record, Term) and place is None:
        return sequence, record
    raise LineError("a value of another key")


def _key(place: TopicPartition) -> bytes:
    return b"%s%s/%d" % (_MOVE, place[0].encode(), place[1])


def _line(sequence: int, record: Record) -> bytes:
    line = write_line(sequence, record)[:-1]
    if len(line) > LINE_BYTES_MAX:
        raise LineError(f"a move of {len(line)} bytes is longer than {LINE_BYTES_MAX}")
    return line


T = TypeVar("T")

# Longer than a request to a broker may take (`proxy.control.reassign.cluster`), and twice the tenure of a holder.
SETTLE_MS: Final = 30_000
APPEND_SECONDS_MAX: Final = 10.0
BEGIN_SECONDS_MAX: Final = 16.0
_READ_BACK_SECONDS_MAX: Final = 5.0
_FIRST_SECONDS_MAX: Final = 3.0
_RECOVERED_AT_ONCE: Final = 1000
_DAMAGED_NAMED_MAX: Final = 3
_DAMAGED_MAX: Final = 10_000
_RESTORE_SECONDS: Final = 10.0
_SAID_SECONDS: Final = 60.0  # between two lines about ignored records, or about a foreign fence

logger = logging.getLogger(__name__)


class Fenced(Protocol):
    """The topic's writer, as the journal uses it (`proxy.topics.writers`).

    To fence another writer is to make the brokers refuse its appends.
    """

    @property
    def open(self) -> bool:
        """Whether this process may append, as far as it knows."""

    @property
    def problem(self) -> Problem | None:
        """Why the last `begin` failed; None if it succeeded, or before the first one."""

    def begin(self) -> "Future[None]":
        """Open the writer, and fence all others; the future has an AppendError if that fails."""

    def append(self, records: Sequence[TopicRecord]) -> "Future[int]":
        """Append records, all or none; the future has the offset after them, or an AppendError."""

    def end(self) -> "Future[None]":
        """Close the writer; this process then appends no more."""


class TopicJournal:
    """The journal in a topic; it also chooses the executor (`Leadership`), since only the executor appends.

    Args:
        log: reads the topic.
        writer: appends to the topic.
        process: this process's name in the journal.
        tenure: returns the number of this process's tenure as the holder (the one member that leads the fleet); 0 if
            it is not the holder. Called in any thread.
        alone: whether there is no fleet; then a process stops executing for good once another one has executed.
        seal: signs and verifies records; None without a secret: unsigned records are valid.

    Attributes:
        settle_ms: see `proxy.control.reassign.journal.Leadership`.
        records: counts the records that were read by result: "applied", "removed", "skipped", "damaged"; "unsigned" and
            "replayed" for those that are ignored for their signature.
        fenced: how often brokers refused this process's appends, as a client outside of the fleet has opened a writer.
    """

    settle_ms = SETTLE_MS

    def __init__(
        self,
        log: ReadLog,
        writer: Fenced,
        process: str,
        tenure: Callable[[], int],
        *,
        alone: bool,
        seal: Seal | None = None,
    ) -> None:
        self._log = log
        self._writer = writer
        self._process = process
        self._tenure = tenure
        self._alone = alone
        self._lock = threading.RLock()
        self._held_in = 0  # the tenure in which the writer was opened
        self._marked = False  # whether this process has ever executed
        self._mark = ""  # the process that was the last to begin
        self._contents = Contents()
        self._fresh: Contents | None = None  # while the topic is read from its beginning
        self._complete = False
        self._next_offset = 0
        self._damaged: dict[Found, str] = {}
        self._state: JournalState | None = None
        self.records: Counter[str] = Counter()
        self.fenced = 0
        self._seal = seal
        self._stamps = Stamps(late_us=0)
        self._topic_id = b""
        self._signed = False  # unsigned records are void
        self._signed_places: set[Found] = set()  # before that: whose last record is signed
        self._signed_sequence = 0
        self._hidden: set[bytes] = set()  # keys whose last record is an ignored one
        self._restore_at = 0.0
        self._said_at: dict[str, float] = {}
        self._was_fenced = False

    @property
    def topic(self) -> str:
        """The name of the journal's topic, for messages."""
        return self._log.topic

    @property
    def problem(self) -> Problem | None:
        """The reason why the topic cannot be read or appended to; None if it can. Any thread may ask."""
        problem = self._log.problem or self._log.write_problem
        return self._writer.problem if problem is None and self._tenure() else problem

    # What the journal is.

    def read(self) -> JournalState:
        """Return the contents as read from the topic so far; see `proxy.control.reassign.journal.Journal`."""
        with self._lock:
            self._drain()
            self._check()
            if self._hidden and self._signed and self.held and time.monotonic() >= self._restore_at:
                self._restore()
            return self._current()

    def append(
        self, records: Sequence[Record], *, expected: int | None = None, term: int | None = None
    ) -> JournalState:
        """Append records, and wait until they were read from the topic; see `Journal.append` for Args and Raises."""
        with self._lock:
            self._drain()
            self._check()
            if expected is not None and self._contents.sequence != expected:
                raise ConflictError
            if term is not None and (self._contents.term.number != term or not self.held):
                raise FencedError(self._contents.term.executor)
            if not self.held:
                raise JournalError(f"topic {self.topic}: {self._not_here()}")
            # Without records too: the fence judges whether this process still executes.
            if records or term is not None:
                self._write(self._encoded(records))
            return self._current()

    def recover(self) -> tuple[JournalState, str]:
        """Replace damaged records by tombstones, and mark the readable entries as unsure; see `Journal.recover`."""
        with self._lock:
            self._drain()
            damaged = dict(self._damaged)
            if not damaged:
                return self._current(), ""
            if not self.held:
                raise JournalError(f"topic {self.topic}: {self._not_here()}")
            known = self._contents.entries
            records: list[Record] = [replace(entry, unsure=True) for entry in known.values()]
            records += [
                Ended(*place, "lost") for place in damaged if place is not None and place not in known
            ]
            for begin in range(0, max(1, len(records)), _RECOVERED_AT_ONCE):
                self._write(self._encoded(records[begin : begin + _RECOVERED_AT_ONCE]))
            self._check()
            return self._current(), f"topic {self.topic}: " + "; ".join(self._damage_texts(damaged))

    # The choice of the executor.

    @property
    def held(self) -> bool:
        """Whether this process may execute: it is the fleet's holder and has fenced all others in this tenure."""
        return bool(self._held_in) and self._held_in == self._tenure() and self._writer.open

    def take(self) -> bool:
        """Become the only writer if this process is the fleet's holder; returns whether it may execute now.

        Brokers then refuse the appends of all earlier writers.

        Raises:
            JournalError: the topic cannot be used.
        """
        with self._lock:
            self._drain()
            if self.held:
                return True
            self._held_in = 0
            tenure = self._tenure()
            if not tenure:
                return False
            self._check(damaged=False)
            if self._alone and self._marked and self._mark != self._process:
                return False
            if self._was_fenced and self._mark == self._process:
                self.fenced += 1
                self._say("fenced", "the journal's writer was fenced by a client that is not of the fleet")
            self._was_fenced = False
            self._done(self._writer.begin(), BEGIN_SECONDS_MAX)
            if self._seal is not None and not self._signed:
                self._take_over()
            self._write([write_fence(self._process)])
            if self._mark != self._process:  # its stamp was below that of a record that was read only now
                self._write([write_fence(self._process)])
            self._marked = True
            if self._tenure() == tenure:
                self._held_in = tenure
            else:
                self._writer.end()
            return self.held

    def holder(self) -> str:
        """Return the name of the executing process from the journal's last term; "" if there is none."""
        return self._contents.term.executor

    def release(self) -> None:
        """Stop executing: close the writer, without waiting for its end."""
        self._held_in = 0
        self._writer.end()

    # Appending.

    def _encoded(self, records: Sequence[Record]) -> list[TopicRecord]:
        known = self._contents
        after = Contents(dict(known.entries), known.term, known.ended_totals)
        for record in records:
            after.apply(record)
        try:
            return write_records(records, after.term, after.ended_totals, known.sequence)
        except LineError as error:
            raise JournalError(str(error)) from error

    def _take_over(self) -> None:
        """Write the moves of an earlier version signed, and unsure; only this process can append."""
        self._write([write_fence(self._process)], signed=False)  # and read what lies before it
        if self._signed:
            return
        moves: list[Record] = [replace(entry, unsure=True) for entry in self._contents.entries.values()]
        for begin in range(0, len(moves), _RECOVERED_AT_ONCE):
            self._write(self._encoded(moves[begin : begin + _RECOVERED_AT_ONCE]))
        if moves:
            event(
                logger,
                logging.WARNING,
                "unsigned moves taken over: from now on unsigned records are ignored",
                topic=self.topic,
                moves=len(moves),
            )

    def _restore(self) -> None:
        """Write everything in force over ignored records, so that compaction removes these."""
        self._restore_at = time.monotonic() + _RESTORE_SECONDS
        hidden, self._hidden = self._hidden, set()
        entries = self._contents.entries
        # A move that has ended would come back with a genuine record of it that is appended again.
        ended = [
            TopicRecord(key, None) for key in hidden if key != FENCE and read_key(key) not in {None, *entries}
        ]
        for begin in range(0, len(ended), _RECOVERED_AT_ONCE):
            self._write(ended[begin : begin + _RECOVERED_AT_ONCE])
        moves: list[Record] = list(entries.values())
        for begin in range(0, max(1, len(moves)), _RECOVERED_AT_ONCE):
            self._write(self._encoded(moves[begin : begin + _RECOVERED_AT_ONCE]))
        self._write([write_fence(self._process)])

    def _write(self, records: Sequence[TopicRecord], *, signed: bool = True) -> None:
        if self._seal is not None and signed:
            now_us = time.time_ns() // 1000
            records = self._stamps.sign(records, self._seal, self._topic_id, now_us)
        offset = self._done(self._writer.append(records), APPEND_SECONDS_MAX)
        deadline = time.monotonic() + _READ_BACK_SECONDS_MAX
        while not self._complete or self._fresh is not None or self._next_offset < offset:
            portion = self._log.inbox.take(max(0.0, deadline - time.monotonic()))
            if portion is None:
                problem = self._log.problem
                detail = "it is not read back in time" if problem is None else problem.text
                raise JournalError(f"topic {self.topic}: {detail}")
            self._take(portion)

    def _done(self, work: "Future[T]", seconds: float) -> T:
        """Return the result of work in the log's thread.

        After any error this process executes no more until it has taken over again.
        """
        try:
            return work.result(seconds)
        except AppendError as error:
            self._held_in = 0
            self._was_fenced = error.fenced
            raise JournalError(str(error)) from error
        except TimeoutError as error:
            self.release()
            raise JournalError(f"topic {self.topic}: no response within {seconds:g} s") from error

    def _not_here(self) -> str:
        executor = self._contents.term.executor
        return f"process {executor or 'unknown'} carries reassignments out, not this one"

    # Reading.

    def _check(self, *, damaged: bool = True) -> None:
        problem = self._log.problem
        if problem is not None:
            raise JournalError(problem.text)
        if not self._complete or self._fresh is not None:
            raise JournalError(f"topic {self.topic} is being read")
        if self._log.write_problem is not None and self._tenure():
            raise JournalError(self._log.write_problem.text)
        if damaged and self._damaged:
            raise DamagedError(f"topic {self.topic}: {'; '.join(self._damage_texts(self._damaged))}")

    def _damage_texts(self, damaged: dict[Found, str]) -> list[str]:
        return [
            f"{'the term' if place is None else '-'.join(map(str, place))}: {text}"
            for place, text in list(damaged.items())[:_DAMAGED_NAMED_MAX]
        ]

    def _drain(self) -> None:
        """Take the portions that have been read; a process that has just started waits for the first ones."""
        deadline = time.monotonic() + (0 if self._complete else _FIRST_SECONDS_MAX)
        while (portion := self._log.inbox.take(self._patience(deadline))) is not None:
            self._take(portion)

    def _patience(self, deadline: float) -> float:
        waits = not self._complete and self._log.problem is None
        return max(0.0, deadline - time.monotonic()) if waits else 0.0

    def _take(self, portion: Portion) -> None:
        if portion.begins:
            self._fresh = Contents()
            self._damaged.clear()
            self._topic_id = portion.topic_id
            self._stamps.begin()
            self._signed_places.clear()
            self._signed_sequence = 0
            self._hidden.clear()
        if portion.dropped:
            self._ignored("unsigned", None, portion.dropped)
        for record in portion.records:
            self._apply(record)
        self._next_offset = portion.next_offset
        self._state = None if portion.records or portion.begins else self._state
        if portion.complete and self._fresh is not None:
            self._contents, self._fresh = self._fresh, None
            self._complete = True

    def _apply(self, record: TopicRecord) -> None:
        if not self._accepts(record):
            return
        if record.key == FENCE:
            self._mark = (record.value or b"").decode("utf-8", "replace")
            if self._mark != self._process:
                self._held_in = 0  # this process's writer is fenced
            return
        try:
            place = read_key(record.key)
        except LineError:
            self.records["skipped"] += 1
            return
        contents = self._contents if self._fresh is None else self._fresh
        if record.value is None:
            if place is not None:
                contents.entries.pop(place, None)
            self._damaged.pop(place, None)
            self.records["removed"] += 1
            return
        self._apply_value(place, record, contents)

    def _apply_value(self, place: Found, record: TopicRecord, contents: Contents) -> None:
        try:
            sequence, found = read_value(place, record.value or b"")
        except LineError as error:
            if len(self._damaged) < _DAMAGED_MAX:
                self._damaged[place] = str(error)
            self.records["damaged"] += 1
            return
        self._damaged.pop(place, None)
        self.records["applied"] += 1
        if isinstance(found, Entry):
            contents.entries[found.key] = found
        else:
            contents.term = replace(found, over=None)
            contents.ended_totals = found.over or EndedTotals()
        if record.mark:
            self._signed_sequence = max(self._signed_sequence, sequence)
        contents.sequence = max(contents.sequence, sequence)

    def _accepts(self, record: TopicRecord) -> bool:
        """Whether a record counts. With a secret it must be signed, and must not repeat an earlier one."""
        seal = self._seal
        if seal is None:
            return True
        stamp = seal.stamp_of(record, self._topic_id)
        if stamp is None:
            if self._signed or (record.key != FENCE and _place(record) in self._signed_places):
                self._ignored("unsigned", record)
                return False
            return True
        if not self._stamps.accepts(record.key, stamp):
            self._ignored("replayed", record)
            return False
        if self._signed:
            return True
        if record.key == FENCE:
            self._become_signed()
        else:
            self._signed_places.add(_place(record))
        return True

    def _become_signed(self) -> None:
        """Treat unsigned records as void from here on, those already read included."""
        self._signed = True
        places = self._signed_places
        contents = self._contents if self._fresh is None else self._fresh
        contents.entries = {place: entry for place, entry in contents.entries.items() if place in places}
        self._damaged = {place: text for place, text in self._damaged.items() if place in places}
        if None not in places:
            contents.term, contents.ended_totals = Term(0, ""), EndedTotals()
        contents.sequence = self._signed_sequence
        self._state = None

    def _ignored(self, cause: str, record: TopicRecord | None, count: int = 1) -> None:
        self.records[cause] += count
        key = None if record is None else record.key
        known = record is not None and (key == FENCE or _place(record) != _NO_PLACE)
        if known and key is not None and len(self._hidden) < _DAMAGED_MAX:
            self._hidden.add(key)
        self._say(cause, f"records of the journal are ignored: {cause}")

    def _say(self, what: str, text: str) -> None:
        now = time.monotonic()
        if now >= self._said_at.get(what, 0.0):
            self._said_at[what] = now + _SAID_SECONDS
            event(logger, logging.WARNING, text, topic=self.topic)

    def _current(self) -> JournalState:
        if self._state is None or self._state.sequence != self._contents.sequence:
            self._state = self._contents.state()
        return self._state


_NO_PLACE: Final = "", -1


def _place(record: TopicRecord) -> Found:
    """Return what a record is about; _NO_PLACE if its key is invalid."""
    try:
        return read_key(record.key)
    except LineError:
        return _NO_PLACE
