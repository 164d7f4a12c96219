"""The plan for one caller's request: the request to the broker, the journal records, and the response. Pure.

plan_request    validates, and returns the broker's part and the journal entries during its decision
outcomes_of     the broker's response -> the outcome of each partition
records_of      the broker's response -> the journal records after it
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from protocol.messages.reassignments import AlterRequest, AlterResponse, Outcome, Target
from proxy.config import ReassignmentSettings
from proxy.reassign.cluster import ClusterState
from proxy.reassign.entries import Ended, Entry, Record
from proxy.reassign.journal import JournalState
from proxy.reassign.validation import (
    NO_REASSIGNMENT_IN_PROGRESS,
    REASSIGNMENT_IN_PROGRESS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Handling,
    Verdict,
    validate,
)
from quotas.reassignment.batch import next_batch
from quotas.reassignment.step import Step, TopicPartition

REQUEST_TIMED_OUT: Final = 7
NOT_CONTROLLER: Final = 41
_UNDECIDED_ERRORS: Final = frozenset((REQUEST_TIMED_OUT, NOT_CONTROLLER))  # it may have been executed

# Errors of one occurrence in a request, not of the partition.
PER_OCCURRENCE: Final = frozenset((Handling.REFUSED, Handling.REPLACED))


class Plan(NamedTuple):
    """One request during the broker's decision; `entries` are its journal entries."""

    request: AlterRequest
    verdicts: Sequence[Verdict]
    entries: Mapping[TopicPartition, Entry]
    sent: Mapping[TopicPartition, Target]
    by: str

    @property
    def has_conflict(self) -> bool:
        """Whether a partition is refused because of another undecided request."""
        return any(verdict.outcome.error_code == REASSIGNMENT_IN_PROGRESS for verdict in self.verdicts)

    @property
    def has_unknown_partition(self) -> bool:
        """Whether a partition is refused because no broker knows it."""
        return any(verdict.outcome.error_code == UNKNOWN_TOPIC_OR_PARTITION for verdict in self.verdicts)


def plan_request(
    request: AlterRequest,
    journal: JournalState,
    cluster: ClusterState,
    settings: ReassignmentSettings,
    by: str,
) -> Plan:
    """Validate the request, and choose first steps."""
    verdicts = validate(request, journal.entries, cluster, settings.moves_max, by)
    steps = _first_steps(verdicts, journal, cluster, settings)
    entries = {one.key: _with_step(one, steps) for one in verdicts if one.entry is not None}
    return Plan(request, verdicts, entries, _to_send(verdicts, steps, cluster), by)


def records_of(plan: Plan, outcomes: Mapping[TopicPartition, Outcome], journal: JournalState) -> list[Record]:
    """Return the journal records after the broker's response."""
    records: list[Record] = []
    for key, ours in plan.entries.items():
        code, entry = outcomes[key].error_code, journal.entries.get(key)
        is_open = entry is not None and entry.asked is not None and entry.asked.by == plan.by
        if not code:
            accepted = _accepted(ours, entry, is_open)
            if accepted is not None:
                records.append(accepted)
        elif is_open and entry is not None and code not in _UNDECIDED_ERRORS:
            records.append(entry.rejected() or Ended(*key, "refused"))
    return records


def _accepted(ours: Entry, entry: Entry | None, is_open: bool) -> Entry | None:
    """Return the entry of a request that the broker has accepted; None if there is nothing to write.

    The response may be so late (a muted channel, a slow broker) that the executor has removed the request: it is then
    written again. Or the executor has seen the step and accepted it already.
    """
    pending = ours.asked
    assert pending is not None, "the request is undecided"
    if entry is None:
        return ours.accepted() if ours.target is None else None
    if is_open:
        return entry.accepted()
    if entry.asked is not None or (entry.target, entry.cancelled) == (pending.target, pending.cancels):
        return None
    return replace(entry, asked=pending).accepted()


def _first_steps(
    verdicts: Sequence[Verdict], journal: JournalState, cluster: ClusterState, settings: ReassignmentSettings
) -> dict[TopicPartition, Step]:
    """Return the steps of new moves that may begin now, in addition to those under way."""
    in_flight = {}
    for key, entry in journal.entries.items():
        step = entry.step if entry.asked is None or entry.asked.step is None else entry.asked.step
        now = cluster.partitions.get(key)
        if step is not None and now is not None and not step.is_done(now):
            in_flight[key] = step
    moves = []
    for verdict in verdicts:
        if verdict.kind is Handling.NEW:
            assert verdict.entry is not None, "what is taken has an entry"
            moves.append(replace(verdict.entry, target=verdict.entry.wanted).move)
    batch = next_batch(moves, cluster.partitions, cluster.live, settings.limits, in_flight, {})
    return {step.key: step for step in batch.steps if step.submits}


def _to_send(
    verdicts: Sequence[Verdict], steps: Mapping[TopicPartition, Step], cluster: ClusterState
) -> dict[TopicPartition, Target]:
    """Return what the broker gets: first steps, steps to cancel, and partitions that are no moves of Sluice's."""
    sent: dict[TopicPartition, Target] = {}
    for key, target, kind, _, entry in verdicts:
        if kind is Handling.UNCHANGED:
            sent[key] = target
        elif kind is Handling.NEW and key in steps:
            sent[key] = steps[key].replicas
        elif kind is Handling.CANCELLED:
            assert entry is not None, "it is a move of ours"
            step, now = entry.step, cluster.partitions[key]
            if step is not None and step.is_under_way(now) and step.may_be_cancelled(now):
                sent[key] = None
    return sent


def _with_step(verdict: Verdict, steps: Mapping[TopicPartition, Step]) -> Entry:
    entry = verdict.entry
    assert entry is not None, "there is something to write"
    assert entry.asked is not None, "the request is undecided"
    return replace(entry, asked=replace(entry.asked, step=steps.get(verdict.key)))


def outcomes_of(plan: Plan, response: AlterResponse) -> dict[TopicPartition, Outcome]:
    """Return the outcome of each partition: the broker's, or that of the validation here."""
    broker_outcomes = dict(response.partitions)
    outcomes = {}
    for verdict in plan.verdicts:
        key = verdict.key
        if response.outcome.error_code:
            outcomes[key] = broker_outcomes.get(key, response.outcome)
        elif verdict.kind in PER_OCCURRENCE:
            outcomes.setdefault(key, verdict.outcome)  # what holds of the partition comes by itself
        elif key not in plan.sent:
            outcomes[key] = verdict.outcome
        else:
            outcome = broker_outcomes.get(
                key, Outcome(-1, "The broker's response does not name the partition.")
            )
            was_over = (
                outcome.error_code == NO_REASSIGNMENT_IN_PROGRESS and verdict.kind is Handling.CANCELLED
            )
            outcomes[key] = Outcome() if was_over else outcome
    return outcomes
