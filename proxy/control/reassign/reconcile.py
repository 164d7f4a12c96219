"""Decides on the next steps from the journal, the cluster's state, and the duration of states. No IO.

    entry ── asked, undecided ───────────► held; its step is visible in the cluster: accepted; for too long: removed
          ── step under way ─────────────► keeps its slots; cancelled if it waits for a lost broker, or goes back;
                                           if it cannot be cancelled, it keeps no slot
          ── step done ──────────────────► its leader is elected, then the planner continues
          ── step not visible ───────────► held for a moment, since brokers may lag, then the planner continues
          ── none of these ──────────────► the planner (quotas.reassignment.batch)

A restart loses nothing: all state outside of the journal is read from the cluster again, or waited for again. A
partition with an open step gets no other, so no step is ever overridden.

Non-obvious:

- A step without a response is looked for, not repeated. ListPartitionReassignments comes from the controller,
  Metadata from a broker that may lag: a partition that is in neither of its step's two states is not touched for a
  while.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from proxy.control.reassign.cluster import ClusterState
from proxy.control.reassign.journal import Ended, Entry, PendingRequest, Record
from quotas.reassignment.batch import BatchLimits, choose_batch
from quotas.reassignment.step import Finished, PartitionState, Step, TopicPartition, Waiting, next_step

# A request with a lost connection has reported no result; brokers give it up before this time.
ASKED_MS_MAX: Final = 30_000
_ASKED_MS_MIN: Final = 2_000  # during this time its own connection reports
_VISIBLE_MS: Final = 3_000  # until every broker sees an acknowledged step
_UNSETTLED_MS: Final = 10_000  # until a state that no step explains is accepted
_GONE_MS: Final = 10_000  # until a topic that is unknown to all brokers counts as deleted
_ELECTIONS_MAX: Final = 5
_RETRY_MS: Final = (1_000, 2_000, 5_000, 10_000, 30_000, 60_000)


_NextStep: TypeAlias = Step | Finished | Waiting


@dataclass(slots=True)
class Memory:
    """What `reconcile` keeps between rounds: since when states have lasted, and how often attempts have failed.

    Times are in ms of this process's monotonic clock. A restarted process begins without it, so all waits begin again.

    Attributes:
        submitted_ms: by partition, the submitted step that is not done yet, and since when.
        failures: by partition, the number of refused submissions in a row, when to retry, and the last problem.
        dead_ms: by broker, since when it is not alive.
        gone_ms: by partition, since when it is not found in the cluster.
        asked_ms: by partition and request, since when the request is undecided.
        unsettled_ms: by partition, since when its state in the cluster fits no step of its move.
        elections: by partition, how often a leader election of its step has had no effect.
        waited: `Batch.waited` of the last round.
        settled_ms: by partition, until when a late step of an earlier executor may still reach the cluster.
    """

    submitted_ms: dict[TopicPartition, tuple[Step, int]] = field(default_factory=dict)
    failures: dict[TopicPartition, tuple[int, int, str]] = field(default_factory=dict)
    dead_ms: dict[int, int] = field(default_factory=dict)
    gone_ms: dict[TopicPartition, int] = field(default_factory=dict)
    asked_ms: dict[tuple[TopicPartition, str], int] = field(default_factory=dict)
    unsettled_ms: dict[TopicPartition, int] = field(default_factory=dict)
    elections: Counter[TopicPartition] = field(default_factory=Counter)
    waited: Mapping[TopicPartition, int] = field(default_factory=dict)
    settled_ms: dict[TopicPartition, int] = field(default_factory=dict)
    _next_steps: dict[TopicPartition, tuple[Entry, PartitionState, _NextStep]] = field(default_factory=dict)
    _basis: tuple[frozenset[int], int, frozenset[int], frozenset[int]] | None = None

    def next_steps(
        self, entries: Sequence[Entry], cluster: ClusterState, replica_count: int, lost: frozenset[int]
    ) -> dict[TopicPartition, _NextStep]:
        """Return `next_step` of each entry; results of moves that have not changed are reused from the last call."""
        basis = (cluster.live, replica_count, lost, cluster.cordoned)
        known = self._next_steps if basis == self._basis else {}
        self._basis, self._next_steps = basis, {}
        for entry in entries:
            key, now = entry.key, cluster.partitions[entry.key]
            before = known.get(key)
            if before is None or before[0] is not entry or before[1] != now:
                before = (entry, now, next_step(entry.move, now, *basis))
            self._next_steps[key] = before
        return {key: verdict for key, (_, _, verdict) in self._next_steps.items()}

    def record_failure(self, key: TopicPartition, problem: str, now_ms: int) -> None:
        """Count a refused submission of a partition's step; it is retried after a pause that grows with each one."""
        count = self.failures.get(key, (0, 0, ""))[0] + 1
        pause_ms = _RETRY_MS[min(count, len(_RETRY_MS)) - 1]
        self.failures[key] = (count, now_ms + pause_ms, problem)

    def forget(self, entries: Mapping[TopicPartition, Entry]) -> None:
        """Remove what is stored about moves that have ended, which are not in `entries` any more."""
        known: tuple[dict[TopicPartition, Any], ...] = (
            self.submitted_ms,
            self.failures,
            self.gone_ms,
            self.unsettled_ms,
            self.elections,
            self.settled_ms,
        )
        for memory in known:
            for key in [key for key in memory if key not in entries]:
                del memory[key]
        asked = {(key, entry.asked.by) for key, entry in entries.items() if entry.asked is not None}
        for one in [one for one in self.asked_ms if one not in asked]:
            del self.asked_ms[one]


@dataclass(slots=True)
class Decision:
    """What the executor does in this round, in this order: append to the journal, submit and cancel, elect.

    Attributes:
        records: the records to be appended to the journal, also for the entries of `steps`.
        steps: the steps to be submitted to the cluster.
        cancels: the partitions whose reassignment is to be cancelled.
        elections: the partitions whose preferred leader is to be elected.
        in_flight: by partition, the earlier submitted steps that are not done and count against the limits.
        waiting: by partition, why no step of its move begins.
        lost: the brokers that have been dead for so long that moves do not wait for them.
    """

    records: list[Record] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    cancels: list[TopicPartition] = field(default_factory=list)
    elections: list[TopicPartition] = field(default_factory=list)
    in_flight: dict[TopicPartition, Step] = field(default_factory=dict)
    waiting: dict[TopicPartition, Waiting] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()


class _StepState(Enum):
    """Where a step is, by the cluster's state."""

    NONE = "none"
    HELD = "held"
    UNDER_WAY = "under way"
    DONE = "done"


def reconcile(
    entries: Mapping[TopicPartition, Entry],
    cluster: ClusterState,
    limits: BatchLimits,
    memory: Memory,
    dead_target_ms: int,
    now_ms: int,
) -> Decision:
    """Compare the journal with the cluster and decide what the executor does in this round.

    Args:
        entries: the journal's entries.
        limits: the limits of concurrent steps.
        memory: kept between rounds; it is updated.
        dead_target_ms: after how long a dead broker counts as lost.
        now_ms: the monotonic clock, in ms.
    """
    memory.forget(entries)
    decision = Decision(lost=_lost_brokers(entries, cluster, memory, dead_target_ms, now_ms))
    open_entries = []
    executed = _executed_requests(entries, cluster, memory, now_ms)
    for key, entry in entries.items():
        now = cluster.partitions.get(key)
        if now is None or cluster.topic_ids.get(entry.topic) != entry.topic_id:
            _handle_missing(decision, entry, cluster, memory, now_ms)
            continue
        memory.gone_ms.pop(key, None)
        if entry.unsure:
            _confirm(decision, entry, now)
        elif entry.asked is not None:
            _handle_pending(decision, entry, now, memory, executed, now_ms)
        elif _needs_next_step(decision, entry, now, memory, now_ms):
            open_entries.append(entry)
    next_steps = memory.next_steps(open_entries, cluster, limits.replica_count, decision.lost)
    # A step that waits for a lost broker and cannot be cancelled copies nothing: other moves need not wait.
    moving = {
        key: step
        for key, step in decision.in_flight.items()
        if not step.blocked_by(cluster.partitions[key], decision.lost)
    }
    batch = choose_batch(next_steps, limits, moving, memory.waited)
    memory.waited = batch.waited
    decision.waiting.update(batch.waiting)
    for key in batch.finished:
        _end(decision, entries[key], memory, now_ms)
    for step in batch.steps:
        _begin_step(decision, entries[step.key], step, memory, now_ms)
    return decision


def _lost_brokers(
    entries: Mapping[TopicPartition, Entry],
    cluster: ClusterState,
    memory: Memory,
    dead_target_ms: int,
    now_ms: int,
) -> frozenset[int]:
    """Return the brokers that have been dead for `dead_target_ms` or longer."""
    concerned = {broker for entry in entries.values() for broker in (*entry.original, *entry.wanted)}
    dead = concerned - cluster.live
    memory.dead_ms = {broker: memory.dead_ms.get(broker, now_ms) for broker in dead}
    return frozenset(
        broker for broker, since_ms in memory.dead_ms.items() if now_ms - since_ms >= dead_target_ms
    )


def _handle_missing(
    decision: Decision, entry: Entry, cluster: ClusterState, memory: Memory, now_ms: int
) -> None:
    """End a move whose topic was replaced by another, or is unknown for _GONE_MS; else let it wait."""
    key = entry.key
    since_ms = memory.gone_ms.setdefault(key, now_ms)
    is_another = cluster.topic_ids.get(entry.topic, entry.topic_id) != entry.topic_id
    if is_another or now_ms - since_ms >= _GONE_MS:
        decision.records.append(Ended(*key, "gone"))
    else:
        decision.waiting[key] = Waiting("no broker knows the partition")


def _confirm(decision: Decision, entry: Entry, now: PartitionState) -> None:
    """Confirm an entry of a damaged journal if the cluster's state agrees with it; otherwise end it as lost."""
    step = entry.step
    if step is None:
        is_so = not now.is_reassigned and now.replicas == entry.original
    else:
        is_so = step.is_under_way(now) or (
            not now.is_reassigned and now.replicas in (step.replicas, step.current)
        )
    sure = replace(entry, unsure=False, asked=None)
    if is_so and entry.target is not None:
        decision.records.append(sure)
        decision.waiting[entry.key] = Waiting("was found in a damaged journal, and the cluster confirms it")
    else:
        decision.records.append(Ended(*entry.key, "lost"))


def _executed_requests(
    entries: Mapping[TopicPartition, Entry], cluster: ClusterState, memory: Memory, now_ms: int
) -> frozenset[str]:
    """Return the requests that a broker has executed without a response to Sluice, as the cluster shows."""
    executed = set()
    for key, entry in entries.items():
        now = cluster.partitions.get(key)
        if entry.asked is None or now is None or entry.unsure:
            continue
        since_ms = memory.asked_ms.setdefault((key, entry.asked.by), now_ms)
        if now_ms - since_ms >= _ASKED_MS_MIN and _is_executed(entry, entry.asked, now):
            executed.add(entry.asked.by)
    return frozenset(executed)


def _is_executed(entry: Entry, asked: PendingRequest, now: PartitionState) -> bool:
    """Whether the cluster's state is that after the request for this partition."""
    if asked.step is not None:
        return asked.step.is_under_way(now) or asked.step.is_done(now)
    step = entry.step
    # Only the waiting request can have cancelled a step meanwhile.
    return asked.cancels and step is not None and not now.is_reassigned and now.replicas == step.current


def _handle_pending(
    decision: Decision,
    entry: Entry,
    now: PartitionState,
    memory: Memory,
    executed: frozenset[str],
    now_ms: int,
) -> None:
    """Accept a request that the cluster shows as executed, remove one undecided for ASKED_MS_MAX, else let it wait.

    The caller's connection reports the decision, unless it is lost. A request is a unit: if the cluster shows a part
    of it, its waiting partitions are accepted too.
    """
    key, asked = entry.key, entry.asked
    assert asked is not None, "it is being judged"
    since_ms = memory.asked_ms.setdefault((key, asked.by), now_ms)
    step = asked.step
    if step is not None:
        decision.in_flight[key] = step
    elif entry.step is not None and entry.step.is_under_way(now):
        decision.in_flight[key] = entry.step
    decision.waiting[key] = Waiting("the broker has not responded to the request yet")
    if asked.by in executed and (step is None or _is_executed(entry, asked, now)):
        # Waiting ones first: after a kill during the write, the visible ones are found again.
        decision.records.insert(0 if step is None else len(decision.records), entry.accepted())
    elif now_ms - since_ms >= ASKED_MS_MAX:
        decision.records.append(entry.rejected() or Ended(*key, "refused"))


def _needs_next_step(
    decision: Decision, entry: Entry, now: PartitionState, memory: Memory, now_ms: int
) -> bool:
    """Whether the planner is to choose the next step."""
    key, step = entry.key, entry.step
    state = _StepState.NONE if step is None else _step_state(step, now, memory, now_ms)
    _, due_ms, problem = memory.failures.get(key, (0, 0, ""))
    if step is not None and state in (_StepState.UNDER_WAY, _StepState.HELD):
        decision.in_flight[key] = step
        if state is _StepState.UNDER_WAY and due_ms <= now_ms and _must_cancel(entry, step, now, decision):
            decision.cancels.append(key)
        elif state is _StepState.UNDER_WAY and (dead := step.blocked_by(now, decision.lost)):
            decision.waiting[key] = Waiting(
                f"its step waits for brokers {list(dead)}, which are not alive, and taken back it would leave fewer "
                f"in sync than min.insync.replicas {now.min_isr}",
                dead,
            )
        return False
    if now_ms < due_ms:
        decision.waiting[key] = Waiting(f"will be retried: {problem}")
        return False
    if step is not None and state is _StepState.DONE and _needs_leader(step, now, memory):
        decision.in_flight[key] = step
        decision.elections.append(key)
        return False
    return True


def _step_state(step: Step, now: PartitionState, memory: Memory, now_ms: int) -> _StepState:
    key = step.key
    submitted, since_ms = memory.submitted_ms.get(key, (None, now_ms))
    if submitted != step:
        memory.submitted_ms[key] = (step, since_ms := now_ms)
    if step.is_under_way(now):
        memory.unsettled_ms.pop(key, None)
        return _StepState.UNDER_WAY
    if now.is_reassigned:
        return _StepState.NONE  # of another tool; the planner waits for its end
    if now.replicas == step.replicas:
        if step.is_done(now) or step.replicas == step.current:
            memory.unsettled_ms.pop(key, None)
            return _StepState.DONE
        # A picture of just before; or what was added is out of sync again, perhaps for good: the planner minds that.
        unsettled_ms = memory.unsettled_ms.setdefault(key, now_ms)
        return _StepState.HELD if now_ms - unsettled_ms < _UNSETTLED_MS else _StepState.DONE
    if now.replicas == step.current:
        memory.unsettled_ms.pop(key, None)
        return _StepState.HELD if now_ms - since_ms < _VISIBLE_MS else _StepState.NONE
    # A broker's metadata during a change, or another tool's change.
    unsettled_ms = memory.unsettled_ms.setdefault(key, now_ms)
    return _StepState.HELD if now_ms - unsettled_ms < _UNSETTLED_MS else _StepState.NONE


def _must_cancel(entry: Entry, step: Step, now: PartitionState, decision: Decision) -> bool:
    leads_away = entry.cancelled and not set(step.adds) <= set(entry.original)
    return (leads_away or bool(step.blocked_by(now, decision.lost))) and step.may_be_cancelled(now)


def _needs_leader(step: Step, now: PartitionState, memory: Memory) -> bool:
    return (
        step.elects is not None
        and now.leader != step.elects
        and step.elects in now.isr
        and memory.elections[step.key] < _ELECTIONS_MAX
    )


def _end(decision: Decision, entry: Entry, memory: Memory, now_ms: int) -> None:
    """End a move; if a late step of an earlier executor might still change its replicas, let it wait."""
    if now_ms < memory.settled_ms.get(entry.key, now_ms):
        decision.waiting[entry.key] = Waiting(
            "done; a late step of the process that carried it out before would still be noticed"
        )
    else:
        decision.records.append(Ended(*entry.key, "cancelled" if entry.cancelled else "done"))


def _begin_step(decision: Decision, entry: Entry, step: Step, memory: Memory, now_ms: int) -> None:
    """Begin a new step; one that only elects a leader is not submitted, and has a limited number of tries."""
    if step.submits:
        decision.steps.append(step)
        decision.records.append(replace(entry, step=step))
        memory.elections.pop(step.key, None)
    elif memory.elections[step.key] < _ELECTIONS_MAX:
        decision.elections.append(step.key)
    else:
        _end(decision, entry, memory, now_ms)  # the replicas are in place; the leader is not worth a wait
