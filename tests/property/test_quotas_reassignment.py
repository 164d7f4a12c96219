"""KIP-435's planner where nothing fails: every move ends, in few steps, no copy is made twice, no partition starves.

What fails is in tests/simulation/test_reassignment.py. I1 to I6 and I10 are checked at every submission, by
tests/support/reassigner.py.
"""

from collections import Counter
from dataclasses import dataclass
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.reassignment.batch import PATIENCE_ROUNDS, BatchLimits, next_batch, plan_moves
from quotas.reassignment.step import Move, TopicPartition
from tests.support.moves import batch_limits, replica_lists
from tests.support.reassigned_cluster import Completion, SimulatedCluster
from tests.support.reassigner import Reassigner

_BROKERS = 9
_POLLS_MAX = 400

completions: st.SearchStrategy[Completion] = st.sampled_from(get_args(Completion))
placements = replica_lists(_BROKERS, 5)
partition_limits = st.builds(
    BatchLimits,
    parallel_replica_count=st.integers(1, 3),
    parallel_partition_count=st.integers(1, 4),
    parallel_leader_movements=st.integers(1, 3),
    max_concurrent_replica_movements=st.just(1000),
)
all_limits = batch_limits(5, 8)


@dataclass
class World:
    """A cluster in which everything is in sync, and moves of all of its partitions."""

    cluster: SimulatedCluster
    moves: list[Move]

    def executor(self, limits: BatchLimits) -> Reassigner:
        return Reassigner(self.cluster, limits, {move.key: move for move in self.moves})


@st.composite
def worlds(draw: st.DrawFn, partitions_max: int = 6) -> World:
    cluster = SimulatedCluster(_BROKERS, draw(completions))
    moves = []
    for number in range(draw(st.integers(1, partitions_max))):
        original, target = draw(placements), draw(placements)
        min_isr = draw(st.integers(1, min(len(original), len(target))))
        cluster.create(("t", number), original, min_isr)
        moves.append(Move("t", number, original, target))
    return World(cluster, moves)


def catch_one_up(cluster: SimulatedCluster, data: st.DataObject) -> None:
    behind = [(key, broker) for key in cluster.partitions for broker in cluster.behind(key)]
    if behind:
        cluster.catch_up(*data.draw(st.sampled_from(behind)))


def run_to_the_end(executor: Reassigner, data: st.DataObject) -> None:
    """Poll, and let one replica after the other catch up, in any order."""
    for _ in range(_POLLS_MAX):
        executor.poll()
        for partition in executor.cluster.partitions.values():
            assert partition.leader in partition.isr, "I7: the leader is in sync"
            assert len(partition.isr) >= partition.min_isr, "I6: never below min ISR"
        if not executor.moves:
            return
        catch_one_up(executor.cluster, data)
    raise AssertionError(f"I15: no end: {executor.last}")


@settings(deadline=None, max_examples=60)
@given(world=worlds(), limits=all_limits, data=st.data())
def test_moves_end_at_their_target_in_few_steps_and_copy_nothing_twice(
    world: World, limits: BatchLimits, data: st.DataObject
) -> None:
    executor = world.executor(limits)
    run_to_the_end(executor, data)
    for move in world.moves:
        partition, old, new = world.cluster.partitions[move.key], {*move.original}, {*move.target}
        assert tuple(partition.replicas) == move.target, "I8: the target, in its order"
        assert partition.leader == move.target[0], "I8: its leader"
        assert executor.steps[move.key] <= len(new - old) + len(old - new) + 2, "I9: few steps"
        copied = {broker for key, broker in world.cluster.copied if key == move.key}
        assert copied == new - old, "I14: what is new, and nothing else"
    assert set(world.cluster.copied.values()) <= {1}, "I14: nothing twice"
    assert not executor.journal, "I10, I13: nothing is left under way"


@settings(deadline=None, max_examples=60)
@given(world=worlds(3), limits=all_limits, data=st.data())
def test_restart_at_any_point_changes_nothing(world: World, limits: BatchLimits, data: st.DataObject) -> None:
    executor = world.executor(limits)
    for _ in range(data.draw(st.integers(0, 12))):
        executor.poll(submits=data.draw(st.booleans()))
        executor = Reassigner(world.cluster, limits, executor.moves, executor.journal)
        catch_one_up(world.cluster, data)
    run_to_the_end(executor, data)
    for move in world.moves:
        assert tuple(world.cluster.partitions[move.key].replicas) == move.target, "I11: the same end"
    added = sum(len({*move.target} - {*move.original}) for move in world.moves)
    assert sum(world.cluster.copied.values()) == added, "I11: no more data moved"


@settings(deadline=None, max_examples=60)
@given(world=worlds(3), limits=all_limits, data=st.data())
def test_cancel_at_any_point_goes_back(world: World, limits: BatchLimits, data: st.DataObject) -> None:
    executor = world.executor(limits)
    for _ in range(data.draw(st.integers(0, 12))):
        executor.poll()
        catch_one_up(world.cluster, data)
    cancelled = list(executor.moves)
    for key in cancelled:
        executor.turn_back(key)
    run_to_the_end(executor, data)
    for move in world.moves:
        wanted = move.original if move.key in cancelled else move.target
        assert tuple(world.cluster.partitions[move.key].replicas) == wanted, "I12: the original"


@settings(deadline=None, max_examples=100)
@given(
    world=worlds(), limits=all_limits, lost=st.sets(st.integers(0, _BROKERS - 1), max_size=4), data=st.data()
)
def test_lost_brokers_delay_only_moves_to_them(
    world: World, limits: BatchLimits, lost: set[int], data: st.DataObject
) -> None:
    executor, cluster = world.executor(limits), world.cluster
    for _ in range(data.draw(st.integers(0, 6))):
        executor.poll()
        catch_one_up(cluster, data)
    for broker in sorted(lost):
        cluster.die(broker)
    executor.lost = frozenset(lost)
    for _ in range(_POLLS_MAX):
        before = executor.poll()
        cluster.catch_up_all()
        if not before.steps and not executor.poll().steps:
            break
    for key, move in executor.moves.items():
        partition, step = cluster.partitions[key], executor.journal.get(key)
        if step is not None:
            assert not step.may_be_cancelled(partition.now()), f"I15: {key} holds a slot for nothing"
        elif partition.leader >= 0:
            waiting = executor.last.waiting[key] if executor.last else None
            assert waiting is not None, f"I15: {key} waits without a reason"
            assert waiting.has_step or {*waiting.brokers} & lost, f"I15: {key}: {waiting}"
            assert waiting.has_step or {*move.target} & lost, f"I15: {key} could go on: {waiting}"


@pytest.mark.parametrize("completion", get_args(Completion))
def test_step_that_lost_brokers_block_is_not_begun_again_and_again(completion: Completion) -> None:
    cluster = SimulatedCluster(_BROKERS, completion)
    cluster.create(("t", 0), (0, 1, 2), min_isr=2)
    move = Move("t", 0, (0, 1, 2), (0, 1))
    executor = World(cluster, [move]).executor(BatchLimits())
    for broker in (1, 2):
        cluster.die(broker)
    executor.lost = frozenset((1, 2))
    for _ in range(3):
        assert not executor.poll().steps
        assert not executor.journal
    cluster.come_back(1)
    while executor.moves:
        executor.poll()
        cluster.catch_up_all()
    assert cluster.partitions[move.key].replicas == [0, 1]


@settings(deadline=None, max_examples=60)
@given(world=worlds(), limits=all_limits)
def test_wait_is_bounded_where_batches_end_together(world: World, limits: BatchLimits) -> None:
    executor = world.executor(limits)
    bound = PATIENCE_ROUNDS + len(world.moves) - 1
    while executor.moves:
        batch = executor.poll()
        assert all(rounds <= bound for rounds in batch.waited.values()), "I16"
        world.cluster.catch_up_all()


@settings(deadline=None, max_examples=60)
@given(world=worlds(), limits=partition_limits, data=st.data())
def test_wait_is_bounded_where_steps_end_one_by_one(
    world: World, limits: BatchLimits, data: st.DataObject
) -> None:
    executor = world.executor(limits)
    bound = PATIENCE_ROUNDS + len(world.moves) - 1
    rounds: Counter[TopicPartition] = Counter()
    for _ in range(_POLLS_MAX):
        before, moves = dict(executor.journal), dict(executor.moves)
        now = world.cluster.now()
        batch = executor.poll()
        before = {key: step for key, step in before.items() if key in executor.journal}
        for step in batch.steps:
            rounds[step.key] = 0
        for key, waiting in batch.waiting.items():
            alone = next_batch([moves[key]], now, world.cluster.live, limits, before, {})
            rounds[key] += bool(batch.steps and waiting.has_step and alone.steps)
            assert rounds[key] <= bound, "I16: its step would have fitted"
        if not executor.moves:
            return
        catch_one_up(world.cluster, data)
    raise AssertionError("no end")


@settings(deadline=None, max_examples=60)
@given(world=worlds(), limits=all_limits)
def test_plan_equals_the_executors_steps(world: World, limits: BatchLimits) -> None:
    now, live = world.cluster.now(), world.cluster.live
    plan = plan_moves(world.moves, now, live, limits)
    executor, batches = world.executor(limits), []
    while executor.moves:
        batches.append(executor.poll().steps)
        world.cluster.catch_up_all()
    assert [batch for batch in batches if batch] == list(plan.batches)
    assert not plan.waiting
    assert sorted(plan.finished) == sorted(move.key for move in world.moves)
