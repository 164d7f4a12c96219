"""The smallest executor that carries out what the planner says, on a simulated cluster; it judges every step.

It keeps what a journal would: each move, and the step that is about to be submitted. A restart forgets everything
else. Invariants of a single step (I1 to I5, I10) are checked where steps are submitted, so no test can pass one by.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from quotas.reassignment.batch import Batch, BatchLimits, next_batch
from quotas.reassignment.step import Move, PartitionState, Step, TopicPartition
from tests.support.reassigned_cluster import RefusedError, SimulatedCluster


@dataclass
class Reassigner:
    """Moves, the journal of their steps, and the cluster they are carried out on."""

    cluster: SimulatedCluster
    limits: BatchLimits
    moves: dict[TopicPartition, Move] = field(default_factory=dict)
    journal: dict[TopicPartition, Step] = field(default_factory=dict)
    waited: Mapping[TopicPartition, int] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()
    steps: Counter[TopicPartition] = field(default_factory=Counter)
    foreign: set[TopicPartition] = field(default_factory=set)
    last: Batch | None = None

    def add(self, move: Move) -> None:
        """Take a move on."""
        self.moves[move.key] = move

    def turn_back(self, key: TopicPartition) -> None:
        """A user cancels: the step under way is cancelled if that is safe, then everything goes back."""
        self.moves[key] = self.moves[key].reversed()
        step, partition = self.journal.get(key), self.cluster.partitions.get(key)
        if (
            step
            and partition
            and step.is_under_way(partition.now())
            and step.may_be_cancelled(partition.now())
        ):
            self.cluster.cancel(key)
            del self.journal[key]

    def restart(self) -> None:
        """A kill leaves moves and journal. A step that the cluster does not show was not submitted, or is done."""
        self.waited = {}
        self.last = None

    def poll(self, submits: bool = True) -> Batch:
        """Look at the cluster, end steps that are done, begin the next; `submits` False: killed just before."""
        now = self.cluster.now()
        for key, step in list(self.journal.items()):
            if key not in now or not self._is_under_way(step, now[key]):
                del self.journal[key]
        now = self.cluster.now()  # with the leaders that were just elected
        batch = next_batch(
            list(self.moves.values()),
            now,
            self.cluster.live,
            self.limits,
            self.journal,
            self.waited,
            self.lost - self.cluster.live,
        )
        self.last, self.waited = batch, batch.waited
        for key in (*batch.finished, *batch.missing):
            del self.moves[key]
        for step in batch.steps:
            check_step(step, now[step.key], self.cluster.live, self.limits, self.lost, self.moves[step.key])
            assert step.key not in self.journal, "I5: one step in flight a partition"
            self.journal[step.key] = step
        for waiting in batch.waiting.values():
            assert not self.cluster.live.intersection(waiting.brokers), "I15: waits for the living"
        self.check_limits(batch)
        if submits:
            self.submit(batch)
        return batch

    def submit(self, batch: Batch) -> None:
        """Submit what the journal has."""
        for step in batch.steps:
            assert not self.cluster.partitions[step.key].now().is_reassigned, "I5: never an override"
            if step.submits:
                self.cluster.alter(step.key, step.replicas)
            self.steps[step.key] += 1
            self._elect(step)

    def check_limits(self, batch: Batch) -> None:
        """I10, where this batch began something."""
        limits, steps = self.limits, list(self.journal.values())
        if not batch.steps:
            return
        assert len(steps) <= limits.parallel_partition_count, "I10: P"
        if any(step.moves_leader for step in batch.steps):
            assert sum(step.moves_leader for step in steps) <= limits.parallel_leader_movements, "I10: L"
        begun = [step for step in batch.steps if step.adds]
        copying = [step for step in steps if step.adds]
        if not begun or len(copying) == 1:
            return  # a repair may pass a limit when it is alone
        assert sum(len(step.adds) for step in copying) <= limits.max_concurrent_replica_movements, "I10: M"
        into = Counter(broker for step in copying for broker in step.adds)
        out_of: Counter[int] = Counter()
        for step in copying:
            out_of[step.leader] += len(step.adds)
        for step in begun:
            alone = out_of[step.leader] == len(step.adds)
            out = limits.max_movements_out_per_broker
            assert alone or out is None or out_of[step.leader] <= out, "I10: out of a broker"
            for broker in step.adds:
                most = limits.max_movements_in_per_broker
                assert most is None or into[broker] <= most, "I10: into a broker"

    def _is_under_way(self, step: Step, now: PartitionState) -> bool:
        """Whether a step still holds its slots; gives up one that a lost broker keeps from ending."""
        if not step.is_under_way(now):
            self._elect(step)
            return False
        if step.blocked_by(now, self.lost - self.cluster.live) and step.may_be_cancelled(now):
            self.cluster.cancel(step.key)
            return False
        return True

    def _elect(self, step: Step) -> None:
        partition = self.cluster.partitions[step.key]
        if step.elects is not None and not partition.now().is_reassigned:
            try:
                self.cluster.elect_preferred(step.key)
            except RefusedError:
                return


def check_step(
    step: Step,
    now: PartitionState,
    live: frozenset[int],
    limits: BatchLimits,
    lost: frozenset[int],
    move: Move,
) -> None:
    """I1 to I5 of one step."""
    current, target, following = {*now.replicas}, {*move.target}, {*step.replicas}
    needed = min(now.min_isr, len(target))
    in_sync = {*now.isr} & live
    assert len(following - current) <= max(limits.replica_count, needed - len(in_sync)), "I1: at most R"
    # What stood on a lost broker was no copy: neither before nor after.
    factor = min(len(current - lost), len(target))
    in_repair = len(in_sync) < needed
    assert in_repair or len(following) >= factor, "I2: replication factor"
    assert len(following) >= min(needed, len(current)), "I2: min ISR"
    assert len(following) == len(step.replicas), "I3: no duplicates"
    assert following <= current | target, "I3: no other replica"
    assert {*step.adds} == following - current, "I3: adds"
    assert {*step.drops} == current - following, "I3: drops"
    assert {*step.adds} <= live, "I4: adds are alive"
    assert not now.is_reassigned, "I5: nothing under way"
    kept = (in_sync & following) | {*step.adds}
    assert len(kept) >= min(len(in_sync), len(following)), "I6: as many in sync as before, or all"
    assert len(kept) >= min(needed, len(in_sync) + len(step.adds)), "I6: never below min ISR"
