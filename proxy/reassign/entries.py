"""What is known of one move, and how a line of the journal says it (KIP-435). Pure.

    asked ──► first step refused ──► struck out: the entry is as it was before, or gone
      │
      └─► accepted ──► step ──► step … ──► ended: done, cancelled, gone

An entry is written whole whenever it changes, so a line needs no other line to be understood, and the last one of a
partition holds. A line is `checksum sequence json`; a sequence that jumps says that lines are missing.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from quotas.reassignment.step import Move, Step, TopicPartition

__all__ = [
    "Asked",
    "Ended",
    "Entry",
    "LineError",
    "Over",
    "Record",
    "Term",
    "read_line",
    "write_line",
]

LINE_BYTES_MAX: Final = 64 * 1024
_CHECKSUM_DIGITS: Final = 8


class LineError(Exception):
    """A line that is none of ours, or not as it was written."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that a broker has not judged yet.

    Attributes:
        target: what the caller wants; the original replicas where it is a cancel.
        cancels: whether it is one.
        step: the first step, on its way over the caller's own connection; None where it has to wait for its turn.
        by: the process that asks, and which of its requests it is.
    """

    target: tuple[int, ...]
    cancels: bool
    step: Step | None
    by: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One move.

    Attributes:
        topic_id: of the topic when it was asked for, in hex: one that was created again is another.
        original: the replicas before the move; they never change, whatever is asked for later.
        target: what was accepted; None while nothing is.
        cancelled: whether it goes back to `original`.
        asked: what has been asked for and not judged; meanwhile no step begins.
        step: the last step that was submitted, or was about to be; None where none is in question.
        unsure: taken from a damaged journal, and not confirmed by the cluster yet.
    """

    topic: str
    partition: int
    topic_id: str
    original: tuple[int, ...]
    target: tuple[int, ...] | None = None
    cancelled: bool = False
    asked: Asked | None = None
    step: Step | None = None
    unsure: bool = False

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return self.topic, self.partition

    @property
    def move(self) -> Move:
        """What the planner is told."""
        assert self.target is not None, "nobody has accepted it yet"
        return Move(self.topic, self.partition, self.original, self.target)

    @property
    def wanted(self) -> tuple[int, ...]:
        """What it will be in the end, as far as anybody has asked."""
        if self.asked is not None:
            return self.asked.target
        assert self.target is not None, "an entry is asked for or accepted"
        return self.target

    @property
    def coming(self) -> tuple[int, ...]:
        """The brokers that the move adds."""
        return tuple(broker for broker in self.wanted if broker not in self.original)

    def accepted(self) -> "Entry":
        """The broker has taken what was asked for."""
        asked = self.asked
        assert asked is not None, "nothing was asked for"
        return replace(
            self,
            target=asked.target,
            cancelled=asked.cancels,
            asked=None,
            step=self.step if asked.step is None else asked.step,
        )

    def struck(self) -> "Entry | None":
        """The broker has refused it: the entry as it was before; None where there was none."""
        return None if self.target is None else replace(self, asked=None)


class Over(NamedTuple):
    """What the moves came to that are over, since there were none: so that a total stays as it was at the beginning.

    Attributes:
        done: moves that reached their target.
        not_done: moves that ended otherwise: cancelled, or their topic is gone. A refused one is no move.
        replicas, size: replicas and bytes that those done have brought to new brokers.
    """

    done: int = 0
    not_done: int = 0
    replicas: int = 0
    size: int = 0

    def with_end(self, ended: "Ended", entry: "Entry | None") -> "Over":
        """Count one more."""
        if ended.how == "refused" or entry is None:
            return self
        if ended.how != "done":
            return self._replace(not_done=self.not_done + 1)
        return Over(self.done + 1, self.not_done, self.replicas + len(entry.coming), self.size + ended.size)


@dataclass(frozen=True, slots=True)
class Ended:
    """A move is over; `how` is done, cancelled, refused, gone or lost; `size` is what it brought, in bytes."""

    topic: str
    partition: int
    how: str
    size: int = 0

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Term:
    """From here on this process executes, and no earlier one does.

    Attributes:
        over: in a journal that was written anew, what the lines that were dropped came to.
    """

    number: int
    executor: str
    over: Over | None = None


Record: TypeAlias = Entry | Ended | Term


def write_line(sequence: int, record: Record) -> bytes:
    """One line, its end included."""
    content = {"kind": type(record).__name__.lower(), **_fields(record)}
    text = f"{sequence} {json.dumps(content, separators=(',', ':'))}".encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _fields(value: Record | Asked | Step) -> dict[str, object]:
    """As `dataclasses.asdict`, which copies what needs no copy and takes five times as long."""
    found = {name: getattr(value, name) for name in value.__slots__}
    for name in ("asked", "step"):
        if isinstance(found.get(name), Asked | Step):
            found[name] = _fields(found[name])
    return found


def read_line(line: bytes) -> tuple[int, Record]:
    """The sequence and the record of a line, without its end.

    Raises:
        LineError: it is not as it was written.
    """
    checksum, space, text = line.partition(b" ")
    try:
        if not space or len(checksum) != _CHECKSUM_DIGITS or int(checksum, 16) != zlib.crc32(text):
            raise LineError("the checksum is wrong")
        number, _, content = text.partition(b" ")
        fields = json.loads(content)
        return int(number), _KINDS[fields.pop("kind")](fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LineError(f"not a record: {error!r}") from None


def _entry(fields: Mapping[str, object]) -> Entry:
    values = dict(fields)
    asked = values.pop("asked")
    step = values.pop("step")
    target = values.pop("target")
    return Entry(
        topic=_text(values.pop("topic")),
        partition=_number(values.pop("partition")),
        topic_id=_text(values.pop("topic_id")),
        original=_numbers(values.pop("original")),
        target=None if target is None else _numbers(target),
        asked=None if asked is None else _asked(asked),
        step=None if step is None else _step(step),
        cancelled=values.pop("cancelled") is True,
        unsure=values.pop("unsure") is True,
    )


def _asked(fields: object) -> Asked:
    if not isinstance(fields, dict):
        raise LineError("asked is not a table")
    step = fields["step"]
    return Asked(
        _numbers(fields["target"]),
        fields["cancels"] is True,
        None if step is None else _step(step),
        _text(fields["by"]),
    )


def _step(fields: object) -> Step:
    if not isinstance(fields, dict):
        raise LineError("step is not a table")
    elects = fields["elects"]
    return Step(
        topic=_text(fields["topic"]),
        partition=_number(fields["partition"]),
        replicas=_numbers(fields["replicas"]),
        adds=_numbers(fields["adds"]),
        drops=_numbers(fields["drops"]),
        elects=None if elects is None else _number(elects),
        current=_numbers(fields["current"]),
        leader=_number(fields["leader"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise LineError(f"{value!r} is not a string")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise LineError(f"{value!r} is not a number")
    return value


def _numbers(value: object) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise LineError(f"{value!r} is not a list of numbers")
    return tuple(_number(one) for one in value)


def _ended(fields: Mapping[str, object]) -> Ended:
    # Journals of earlier releases have no size.
    size = _number(fields.get("size", 0))
    return Ended(_text(fields["topic"]), _number(fields["partition"]), _text(fields["how"]), size)


def _term(fields: Mapping[str, object]) -> Term:
    over = fields.get("over")
    return Term(
        _number(fields["number"]), _text(fields["executor"]), None if over is None else Over(*_numbers(over))
    )


_KINDS: Final[Mapping[str, Callable[[Mapping[str, object]], Record]]] = {
    "entry": _entry,
    "ended": _ended,
    "term": _term,
}
