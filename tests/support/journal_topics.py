"""The reassignment journal's topic without brokers: transactions, fences and compaction as Kafka has them.

    topic = SimulatedTopic()
    journal = topic.journal("process 1", tenure)   # as a process that has just started reads it
    topic.refuse = 1                               # so many appends; `lose`: carried out, not acknowledged

A log that is opened finds the topic compacted as far as Kafka could have done it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from proxy.control.reassign.topic_journal import TopicJournal
from proxy.topics.records import AppendError, Portion, Problem, Record, Seal

T = TypeVar("T")


def nothing() -> None:
    """Where no test looks."""


class SimulatedTopic:
    """One partition.

    Attributes:
        place: called before and after each effect; may raise, as a kill there.
        refuse, lose: how many of the next appends fail, without and with effect.
        problem, write_problem, fence_problem: why it cannot be read, appended to, or fenced.
    """

    def __init__(self) -> None:
        self.records: list[tuple[int, Record]] = []
        self.end = 0
        self.epoch = 0
        self.place: Callable[[], None] = nothing
        self.refuse = self.lose = 0
        self.problem: Problem | None = None
        self.write_problem: Problem | None = None
        self.fence_problem: Problem | None = None

    def journal(
        self, process: str, tenure: Callable[[], int], *, alone: bool = False, seal: Seal | None = None
    ) -> TopicJournal:
        """Open it, in a process of its own."""
        log, writer = SimulatedLog(self), SimulatedWriter(self)
        return TopicJournal(log, writer, process, tenure, alone=alone, seal=seal)

    def append(self, records: Sequence[Record]) -> int:
        """Append a committed transaction; return the offset after its records. A marker follows them."""
        self.records += [(self.end + index, record) for index, record in enumerate(records)]
        offset = self.end + len(records)
        self.end = offset + 1
        return offset

    def compact(self) -> None:
        """Leave the last record of each key, without tombstones."""
        last = {record.key: offset for offset, record in self.records}
        self.records = [
            (offset, record)
            for offset, record in self.records
            if last[record.key] == offset and record.value is not None
        ]


class SimulatedLog:
    """Reads the topic; it is its own inbox."""

    def __init__(self, topic: SimulatedTopic) -> None:
        topic.compact()
        self._topic = topic
        self._position: int | None = None

    @property
    def topic(self) -> str:
        return "__journal"

    @property
    def inbox(self) -> "SimulatedLog":
        return self

    @property
    def problem(self) -> Problem | None:
        return self._topic.problem

    @property
    def write_problem(self) -> Problem | None:
        return self._topic.problem or self._topic.write_problem

    def again(self) -> None:
        """Read from the beginning once more, as after a long time without brokers."""
        self._position = None

    def take(self, _seconds: float = 0) -> Portion | None:
        """Return what is new; None for nothing."""
        topic, begins = self._topic, self._position is None
        if topic.problem is not None or self._position == topic.end:
            return None
        records = [record for offset, record in topic.records if offset >= (self._position or 0)]
        self._position = topic.end
        return Portion(records, topic.end, begins, True, b"i" * 16)


class SimulatedWriter:
    """Appends to the topic, until another one begins."""

    def __init__(self, topic: SimulatedTopic) -> None:
        self._topic = topic
        self._epoch = 0
        self.problem: Problem | None = None

    @property
    def open(self) -> bool:
        return self._epoch > 0

    def begin(self) -> "Future[None]":
        """Fence all others."""
        self._topic.place()
        self.problem = self._topic.problem or self._topic.fence_problem
        if self.problem is not None:
            return _failed(AppendError(self.problem.text))
        self._topic.epoch += 1
        self._epoch = self._topic.epoch
        self._topic.place()
        return _done(None)

    def append(self, records: Sequence[Record]) -> "Future[int]":
        """Append a transaction."""
        topic = self._topic
        topic.place()
        if self._epoch != topic.epoch:
            return self._fail("another process appends", fenced=True)
        if topic.refuse:
            topic.refuse -= 1
            return self._fail("refused")
        offset = topic.append(records)
        if topic.lose:
            topic.lose -= 1
            return self._fail("not acknowledged")
        topic.place()
        return _done(offset)

    def end(self) -> "Future[None]":
        """Append no more."""
        self._epoch = 0
        return _done(None)

    def _fail(self, text: str, *, fenced: bool = False) -> "Future[int]":
        self._epoch = 0
        return _failed(AppendError(text, fenced=fenced))


def _done(value: T) -> "Future[T]":
    future: Future[T] = Future()
    future.set_result(value)
    return future


def _failed(error: Exception) -> "Future[T]":
    future: Future[T] = Future()
    future.set_exception(error)
    return future
