"""What a journal of reassignments is, in a file (`file_journal`) or a topic (`topic_journal`) (KIP-435).

A journal has the moves under way and the executor's term. Records are durable before anything is submitted; of several
processes one executes, and a record that is appended in an earlier term is refused.

Non-obvious:

- A request is journaled before a broker responds to it, and is not a move until then. The other order would lose a
  step that a broker has taken if the process is killed before it can write. Nothing acts on a request without
  a response, and a refusal removes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from proxy.reassign.entries import Ended, EndedTotals, Entry, Record, Term
from quotas.reassignment.step import TopicPartition


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
        """Let another process execute."""


_NO_TERM: Final = Term(0, "")


class Contents:
    """The state of a journal, built record by record."""

    def __init__(self) -> None:
        self.entries: dict[TopicPartition, Entry] = {}
        self.term = _NO_TERM
        self.ended_totals = EndedTotals()

    def apply(self, record: Record) -> None:
        """Apply the next record."""
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

    def state(self, sequence: int) -> JournalState:
        """Return the contents as they are now."""
        return JournalState(dict(self.entries), self.term, sequence, self.ended_totals)
