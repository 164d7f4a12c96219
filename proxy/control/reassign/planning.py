"""The plan for one caller's request: the request to the broker, the journal records, and the response. Pure.

plan_request    validates, and returns the broker's part and the journal entries during its decision
outcomes_of     the broker's response -> the outcome of each partition
records_of      the broker's response -> the journal records after it
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from msgspec.structs import replace

from protocol.messages.reassignments import AlterRequest, AlterResponse, Outcome, Target
from proxy.config import ReassignmentSettings
from proxy.control.reassign.cluster import ClusterState
from proxy.control.reassign.journal import Ended, Entry, JournalState, PendingRequest, Record
from quotas.reassignment.batch import next_batch
from quotas.reassignment.step import PartitionState, Step, TopicPartition

# Validates a caller's request as Kafka's controller does, with its error codes and messages (KIP-455). Pure.
#
#     3    UNKNOWN_TOPIC_OR_PARTITION        39  INVALID_REPLICA_ASSIGNMENT: empty, unknown or repeated broker
#     38   INVALID_REPLICATION_FACTOR: version 1 can forbid a change (KIP-860) of the factor after ongoing
#     reassignments
#     60   REASSIGNMENT_IN_PROGRESS: another request for the partition is undecided
#
# Beyond Kafka: a target with fewer replicas than min.insync.replicas is refused (39), while Kafka accepts it, and
# producers with acks=all then fail; it is accepted if the partition has too few already and does not lose any.
# Permissions are not checked here: a broker checks them for every request.


UNKNOWN_TOPIC_OR_PARTITION: Final = 3
INVALID_REPLICATION_FACTOR: Final = 38
INVALID_REPLICA_ASSIGNMENT: Final = 39
REASSIGNMENT_IN_PROGRESS: Final = 60
POLICY_VIOLATION: Final = 44
NO_REASSIGNMENT_IN_PROGRESS: Final = 85


class Handling(Enum):
    """How one partition of a caller's request is handled."""

    REFUSED = "refused"
    UNCHANGED = "unchanged"  # the request changes nothing, or it is no move of Sluice's
    NEW = "new"  # a new move
    CHANGED = "changed"  # a move gets another target
    CANCELLED = "cancelled"  # a move goes back
    REPLACED = "replaced"  # the same request names it again later


class Verdict(NamedTuple):
    """The result of validating one partition of a request.

    Args:
        key: the topic and the partition.
        target: the requested replicas; None for a cancel.
        kind: how the partition is handled.
        outcome: the error of a refused partition; no error for all others.
        entry: the journal entry that is written before the broker decides; None for no entry.
    """

    key: TopicPartition
    target: Target
    kind: Handling
    outcome: Outcome = Outcome()
    entry: Entry | None = None


def validate(
    request: AlterRequest,
    entries: Mapping[TopicPartition, Entry],
    cluster: ClusterState,
    moves_max: int,
    by: str,
) -> list[Verdict]:
    """Validate all partitions of a request; if it names one several times, the last valid one applies, as in Kafka.

    Args:
        entries: the journal's entries.
        moves_max: the largest number of moves in the journal.
        by: the name of this process and the number of the request, for the journal.
    """
    verdicts: list[Verdict] = []
    valid: dict[TopicPartition, int] = {}
    added = 0
    for key, target in request.wanted:
        verdict = _validate_one(key, target, request.allow_factor_change, entries.get(key), cluster, by)
        if verdict.kind is Handling.NEW and key not in valid:
            added += 1
            if len(entries) + added > moves_max:
                message = f"Sluice already has {moves_max} partitions under way (reassignment.moves_max)."
                verdict = _refused(key, target, POLICY_VIOLATION, message)
        if key in valid and _cancels_nothing(verdict, entries, cluster):
            verdict = Verdict(key, target, Handling.REFUSED, Outcome(NO_REASSIGNMENT_IN_PROGRESS))
        if verdict.kind is not Handling.REFUSED:
            if key in valid:
                verdicts[valid[key]] = _replaced(verdicts[valid[key]], entries, cluster)
            valid[key] = len(verdicts)
        verdicts.append(verdict)
    return verdicts


def _validate_one(
    key: TopicPartition,
    target: Target,
    may_change_factor: bool,
    entry: Entry | None,
    cluster: ClusterState,
    by: str,
) -> Verdict:
    topic, partition = key
    now = cluster.partitions.get(key)
    if topic not in cluster.topic_ids:
        return _refused(key, target, UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    if now is None:
        message = f"Unable to find partition {topic}:{partition}."
        return _refused(key, target, UNKNOWN_TOPIC_OR_PARTITION, message)
    if entry is not None and entry.topic_id != cluster.topic_ids[topic]:
        entry = None  # of a deleted topic with the same name
    if target is not None:
        refused = _check_target(key, target, may_change_factor, entry, now, cluster)
        if refused is not None:
            return refused
    if entry is None:
        return _without_entry(key, target, now, cluster, by)
    if entry.asked is not None:
        message = "Another request to reassign the partition has no response yet."
        return _refused(key, target, REASSIGNMENT_IN_PROGRESS, message)
    goal = entry.original if target is None else target
    cancels = goal == entry.original
    asked = PendingRequest(goal, cancels, None, by)
    kind = Handling.CANCELLED if cancels else Handling.CHANGED
    return Verdict(key, target, kind, entry=replace(entry, asked=asked))


def _check_target(
    key: TopicPartition,
    target: tuple[int, ...],
    may_change_factor: bool,
    entry: Entry | None,
    now: PartitionState,
    cluster: ClusterState,
) -> Verdict | None:
    """Return a refusal if the target is invalid; None if it is valid."""
    message = _replicas_problem(target, cluster)
    if message:
        return _refused(key, target, INVALID_REPLICA_ASSIGNMENT, message)
    factor = len(_replicas_after(now)) if entry is None else len(entry.wanted)
    if not may_change_factor and len(target) != factor:
        message = f"The replication factor is changed from {factor} to {len(target)}"
        return _refused(key, target, INVALID_REPLICATION_FACTOR, message)
    before = _replicas_before(now) if entry is None else entry.original
    if len(target) < min(now.min_isr, len(before)):
        message = (
            f"The manual partition assignment has {len(target)} replicas, fewer than min.insync.replicas "
            f"{now.min_isr}: Sluice refuses to go below it."
        )
        return _refused(key, target, INVALID_REPLICA_ASSIGNMENT, message)
    return None


def _replicas_problem(target: tuple[int, ...], cluster: ClusterState) -> str:
    """Return the message of Kafka's controller on an invalid list of replicas; "" if it is valid."""
    if not target:
        return "The manual partition assignment includes an empty replica list."
    before = None
    for broker in sorted(target):
        if broker not in cluster.registered:
            return (
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if broker in cluster.cordoned:
            return (
                f"The manual partition assignment includes broker {broker}, but all its log directories are "
                "cordoned."
            )
        if broker == before:
            return f"The manual partition assignment includes the broker {broker} more than once."
        before = broker
    return ""


def _without_entry(
    key: TopicPartition, target: Target, now: PartitionState, cluster: ClusterState, by: str
) -> Verdict:
    if target is None or (target == now.replicas and not now.is_reassigned):
        return Verdict(key, target, Handling.UNCHANGED)
    topic, partition = key
    entry = Entry(topic, partition, cluster.topic_ids[topic], _replicas_before(now))
    return Verdict(
        key, target, Handling.NEW, entry=replace(entry, asked=PendingRequest(target, False, None, by))
    )


def _replaced(verdict: Verdict, entries: Mapping[TopicPartition, Entry], cluster: ClusterState) -> Verdict:
    """Return the verdict on a valid occurrence that a later one of the same partition replaces."""
    code = NO_REASSIGNMENT_IN_PROGRESS if _cancels_nothing(verdict, entries, cluster) else 0
    return Verdict(verdict.key, verdict.target, Handling.REPLACED, Outcome(code))


def _cancels_nothing(
    verdict: Verdict, entries: Mapping[TopicPartition, Entry], cluster: ClusterState
) -> bool:
    """Whether the controller refuses a cancel, because the same request's target is not under way yet."""
    key, target, kind, _, _ = verdict
    is_cancel = target is None and kind is not Handling.REFUSED
    return is_cancel and key not in entries and not cluster.partitions[key].is_reassigned


def _replicas_before(now: PartitionState) -> tuple[int, ...]:
    """Return the replicas as if the reassignment under way had not begun."""
    return tuple(broker for broker in now.replicas if broker not in now.adding)


def _replicas_after(now: PartitionState) -> tuple[int, ...]:
    """Return the replicas as if the reassignment under way were complete."""
    return tuple(broker for broker in now.replicas if broker not in now.removing)


def _refused(key: TopicPartition, target: Target, code: int, message: str) -> Verdict:
    return Verdict(key, target, Handling.REFUSED, Outcome(code, message))


REQUEST_TIMED_OUT: Final = 7
NOT_CONTROLLER: Final = 41
_UNDECIDED_ERRORS: Final = frozenset((REQUEST_TIMED_OUT, NOT_CONTROLLER))  # it may have been executed

# Errors of one occurrence in a request, not of the partition.
PER_OCCURRENCE: Final = frozenset((Handling.REFUSED, Handling.REPLACED))


class Plan(NamedTuple):
    """A validated request, from before it is journaled until the broker has decided on its first steps.

    Args:
        verdicts: the results of validation, in the order of the request.
        entries: the journal entries that are written before the broker decides.
        sent: what is sent to the broker: the first steps' replicas, None for a cancel.
        by: the name of this process and the number of the request.
    """

    request: AlterRequest
    verdicts: Sequence[Verdict]
    entries: Mapping[TopicPartition, Entry]
    sent: Mapping[TopicPartition, Target]
    by: str

    def refuses(self, error_code: int) -> bool:
        """Whether validation has refused any partition with this Kafka error code."""
        return any(verdict.outcome.error_code == error_code for verdict in self.verdicts)


def plan_request(
    request: AlterRequest,
    journal: JournalState,
    cluster: ClusterState,
    settings: ReassignmentSettings,
    by: str,
) -> Plan:
    """Validate a request and choose the first steps that may begin at once, within the limits of concurrent steps."""
    verdicts = validate(request, journal.entries, cluster, settings.moves_max, by)
    steps = _first_steps(verdicts, journal, cluster, settings)
    entries = {one.key: _with_step(one, steps) for one in verdicts if one.entry is not None}
    return Plan(request, verdicts, entries, _to_send(verdicts, steps, cluster), by)


def records_of(plan: Plan, outcomes: Mapping[TopicPartition, Outcome], journal: JournalState) -> list[Record]:
    """Return the records that the broker's response adds to the journal: accepted and rejected entries.

    Args:
        outcomes: the outcome of each partition (`outcomes_of`).
        journal: the journal's contents as they are now.
    """
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
    batch = next_batch(
        moves, cluster.partitions, cluster.live, settings.limits, in_flight, {}, cordoned=cluster.cordoned
    )
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
    """Return the outcome of each partition: the broker's if it was sent there, otherwise that of the validation."""
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
