"""Validates a caller's request as Kafka's controller does, with its error codes and messages (KIP-455). Pure.

    3    UNKNOWN_TOPIC_OR_PARTITION        39  INVALID_REPLICA_ASSIGNMENT: empty, unknown or repeated broker
    38   INVALID_REPLICATION_FACTOR: version 1 can forbid a change (KIP-860) of the factor after ongoing reassignments
    60   REASSIGNMENT_IN_PROGRESS: another request for the partition is undecided

Beyond Kafka: a target with fewer replicas than min.insync.replicas is refused (39), while Kafka accepts it, and
producers with acks=all then fail; it is accepted if the partition has too few already and does not lose any.
Permissions are not checked here: a broker checks them for every request.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from protocol.messages.reassignments import AlterRequest, Outcome, Target
from proxy.reassign.cluster import ClusterState
from proxy.reassign.entries import Entry, PendingRequest
from quotas.reassignment.step import PartitionState, TopicPartition

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
INVALID_REPLICATION_FACTOR: Final = 38
INVALID_REPLICA_ASSIGNMENT: Final = 39
REASSIGNMENT_IN_PROGRESS: Final = 60
POLICY_VIOLATION: Final = 44
NO_REASSIGNMENT_IN_PROGRESS: Final = 85


class Handling(Enum):
    """The handling of one partition of a request."""

    REFUSED = "refused"
    UNCHANGED = "unchanged"  # the request changes nothing, or it is no move of Sluice's
    NEW = "new"  # a new move
    CHANGED = "changed"  # a move gets another target
    CANCELLED = "cancelled"  # a move goes back
    REPLACED = "replaced"  # the same request names it again later


class Verdict(NamedTuple):
    """The result for one partition. `entry` is its journal entry during the broker's decision."""

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
    """Validate each occurrence of a partition; the last valid one applies, as in Kafka's controller.

    Args:
        by: the process and its request number.
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
    """Refuse an invalid target."""
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
    """Return the error of Kafka's controller for a list of replicas; empty if there is none."""
    if not target:
        return "The manual partition assignment includes an empty replica list."
    before = None
    for broker in sorted(target):
        if broker not in cluster.registered:
            return (
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
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
    """Return the result of a valid occurrence that a later one replaces: as if it were the only one."""
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
    """The replicas without ongoing changes."""
    return tuple(broker for broker in now.replicas if broker not in now.adding)


def _replicas_after(now: PartitionState) -> tuple[int, ...]:
    """The replicas after ongoing changes."""
    return tuple(broker for broker in now.replicas if broker not in now.removing)


def _refused(key: TopicPartition, target: Target, code: int, message: str) -> Verdict:
    return Verdict(key, target, Handling.REFUSED, Outcome(code, message))
