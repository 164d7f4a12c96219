"""One caller's request: what of it is sent where, what is written down, and what the caller is told. Pure.

plan_request    what is judged here, what goes to the broker, what the journal holds while it judges
outcomes_of     the broker's answer -> what became of each partition
records_of      the same -> what the journal holds from then on
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from protocol.messages.alter_reassignments import AlterAnswer, AlterRequest, Outcome, Target
from proxy.config import ReassignmentSettings
from proxy.reassign.cluster import Seen
from proxy.reassign.entries import Ended, Entry, Record
from proxy.reassign.journal import Known
from proxy.reassign.validation import (
    NO_REASSIGNMENT_IN_PROGRESS,
    REASSIGNMENT_IN_PROGRESS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Kind,
    Verdict,
    judge,
)
from quotas.reassignment.batch import next_batch
from quotas.reassignment.step import Step, TopicPartition

__all__ = ["OF_ITS_OWN", "Plan", "outcomes_of", "plan_request", "records_of"]

REQUEST_TIMED_OUT: Final = 7
NOT_CONTROLLER: Final = 41
_OPEN: Final = frozenset((REQUEST_TIMED_OUT, NOT_CONTROLLER))  # it may have been done

# What is said of one occurrence in a request, and not of the partition.
OF_ITS_OWN: Final = frozenset((Kind.REFUSED, Kind.REPLACED))


class Plan(NamedTuple):
    """One request, while the broker judges it; `entries` are what the journal holds of it."""

    asked: AlterRequest
    verdicts: Sequence[Verdict]
    entries: Mapping[TopicPartition, Entry]
    sent: Mapping[TopicPartition, Target]
    by: str

    @property
    def meets_another(self) -> bool:
        """Whether anything is refused because of another request that is not judged yet."""
        return any(verdict.outcome.error_code == REASSIGNMENT_IN_PROGRESS for verdict in self.verdicts)

    @property
    def misses_some(self) -> bool:
        """Whether anything is refused because no broker knows of it."""
        return any(verdict.outcome.error_code == UNKNOWN_TOPIC_OR_PARTITION for verdict in self.verdicts)


def plan_request(
    asked: AlterRequest, known: Known, seen: Seen, settings: ReassignmentSettings, by: str
) -> Plan:
    """Judge, and choose first steps."""
    verdicts = judge(asked, known.entries, seen, settings.moves_max, by)
    steps = _first_steps(verdicts, known, seen, settings)
    entries = {one.key: _with_step(one, steps) for one in verdicts if one.entry is not None}
    return Plan(asked, verdicts, entries, _to_send(verdicts, steps, seen), by)


def records_of(plan: Plan, told: Mapping[TopicPartition, Outcome], known: Known) -> list[Record]:
    """What the journal is to hold after the broker's answer."""
    records: list[Record] = []
    for key, ours in plan.entries.items():
        code, entry = told[key].error_code, known.entries.get(key)
        is_open = entry is not None and entry.asked is not None and entry.asked.by == plan.by
        if not code:
            accepted = _accepted(ours, entry, is_open)
            if accepted is not None:
                records.append(accepted)
        elif is_open and entry is not None and code not in _OPEN:
            records.append(entry.struck() or Ended(*key, "refused"))
    return records


def _accepted(ours: Entry, entry: Entry | None, is_open: bool) -> Entry | None:
    """The entry of what a broker has taken; None where there is nothing to write.

    An answer may be so late (a muted channel, a slow broker) that the executor has struck the request out: then it is
    written anew. Or it has seen the step and accepted it already.
    """
    asked = ours.asked
    assert asked is not None, "it was asked for"
    if entry is None:
        return ours.accepted() if ours.target is None else None
    if is_open:
        return entry.accepted()
    if entry.asked is not None or (entry.target, entry.cancelled) == (asked.target, asked.cancels):
        return None
    return replace(entry, asked=asked).accepted()


def _first_steps(
    verdicts: Sequence[Verdict], known: Known, seen: Seen, settings: ReassignmentSettings
) -> dict[TopicPartition, Step]:
    """The steps of new moves that may begin now, beside everything that is in question already."""
    in_flight = {}
    for key, entry in known.entries.items():
        step = entry.step if entry.asked is None or entry.asked.step is None else entry.asked.step
        now = seen.now.get(key)
        if step is not None and now is not None and not step.is_done(now):
            in_flight[key] = step
    moves = []
    for verdict in verdicts:
        if verdict.kind is Kind.TAKEN:
            assert verdict.entry is not None, "what is taken has an entry"
            moves.append(replace(verdict.entry, target=verdict.entry.wanted).move)
    batch = next_batch(moves, seen.now, seen.live, settings.limits, in_flight, {})
    return {step.key: step for step in batch.steps if step.submits}


def _to_send(
    verdicts: Sequence[Verdict], steps: Mapping[TopicPartition, Step], seen: Seen
) -> dict[TopicPartition, Target]:
    """What the broker gets to see: first steps, steps to take back, and what is none of our business."""
    sent: dict[TopicPartition, Target] = {}
    for key, target, kind, _, entry in verdicts:
        if kind is Kind.PASSED:
            sent[key] = target
        elif kind is Kind.TAKEN and key in steps:
            sent[key] = steps[key].replicas
        elif kind is Kind.CANCELLED:
            assert entry is not None, "it is a move of ours"
            step, now = entry.step, seen.now[key]
            if step is not None and step.is_under_way(now) and step.may_be_cancelled(now):
                sent[key] = None
    return sent


def _with_step(verdict: Verdict, steps: Mapping[TopicPartition, Step]) -> Entry:
    entry = verdict.entry
    assert entry is not None, "there is something to write"
    assert entry.asked is not None, "it is asked for"
    return replace(entry, asked=replace(entry.asked, step=steps.get(verdict.key)))


def outcomes_of(plan: Plan, answer: AlterAnswer) -> dict[TopicPartition, Outcome]:
    """What became of each partition: as the broker says, or as was judged here."""
    said = dict(answer.partitions)
    told = {}
    for verdict in plan.verdicts:
        key = verdict.key
        if answer.outcome.error_code:
            told[key] = said.get(key, answer.outcome)
        elif verdict.kind in OF_ITS_OWN:
            told.setdefault(key, verdict.outcome)  # what holds of the partition comes by itself
        elif key not in plan.sent:
            told[key] = verdict.outcome
        else:
            outcome = said.get(key, Outcome(-1, "The broker's response does not name the partition."))
            was_over = outcome.error_code == NO_REASSIGNMENT_IN_PROGRESS and verdict.kind is Kind.CANCELLED
            told[key] = Outcome() if was_over else outcome
    return told
