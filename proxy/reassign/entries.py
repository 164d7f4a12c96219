"""The journal's record of one move, and its encoding as a line (KIP-435). Pure.

    asked ──► first step refused ──► removed: the entry is as it was before, or gone
      │
      └─► accepted ──► step ──► step … ──► ended: done, cancelled, gone

An entry is written as a whole whenever it changes: no line depends on another, and the last one of a partition applies.
A line is `checksum sequence json`; a gap in the sequence means missing lines.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from quotas.reassignment.step import Move, Step, TopicPartition

LINE_BYTES_MAX: Final = 64 * 1024
_CHECKSUM_DIGITS: Final = 8


class LineError(Exception):
    """A line that is not a valid record, or is damaged."""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request that a broker has not decided on yet.

    Attributes:
        target: the replicas that the caller wants; the original ones for a cancel.
        cancels: whether the request is a cancel.
        step: the first step, on its way on the caller's connection; None if it must wait for a slot.
        by: the requesting process and the number of its request.
    """

    target: tuple[int, ...]
    cancels: bool
    step: Step | None
    by: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One move.

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
    partition: int
    topic_id: str
    original: tuple[int, ...]
    target: tuple[int, ...] | None = None
    cancelled: bool = False
    asked: PendingRequest | None = None
    step: Step | None = None
    unsure: bool = False

    @property
    def key(self) -> TopicPartition:
        """The partition."""
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
        """The brokers that the move adds."""
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

    done: int = 0
    not_done: int = 0
    replicas: int = 0
    size: int = 0

    def with_end(self, ended: "Ended", entry: "Entry | None") -> "EndedTotals":
        """Add one ended move."""
        if ended.how == "refused" or entry is None:
            return self
        if ended.how != "done":
            return self._replace(not_done=self.not_done + 1)
        return EndedTotals(
            self.done + 1, self.not_done, self.replicas + len(entry.added_brokers), self.size + ended.size
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a move; `how` is done, cancelled, refused, gone or lost; `size` is the number of bytes moved."""

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
    """The start of a term: from here on this process executes, and no earlier one.

    Attributes:
        over: in a rewritten journal, the totals of the dropped lines.
    """

    number: int
    executor: str
    over: EndedTotals | None = None


Record: TypeAlias = Entry | Ended | Term


def write_line(sequence: int, record: Record) -> bytes:
    """Encode one line, with its newline."""
    content = {"kind": type(record).__name__.lower(), **_fields(record)}
    text = f"{sequence} {json.dumps(content, separators=(',', ':'))}".encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _fields(value: Record | PendingRequest | Step) -> dict[str, object]:
    """Like `dataclasses.asdict`, which makes needless copies and takes five times as long."""
    found = {name: getattr(value, name) for name in value.__slots__}
    for name in ("asked", "step"):
        if isinstance(found.get(name), PendingRequest | Step):
            found[name] = _fields(found[name])
    return found


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


def _asked(fields: object) -> PendingRequest:
    if not isinstance(fields, dict):
        raise LineError("asked is not a table")
    step = fields["step"]
    return PendingRequest(
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
        _number(fields["number"]),
        _text(fields["executor"]),
        None if over is None else EndedTotals(*_numbers(over)),
    )


_KINDS: Final[Mapping[str, Callable[[Mapping[str, object]], Record]]] = {
    "entry": _entry,
    "ended": _ended,
    "term": _term,
}
