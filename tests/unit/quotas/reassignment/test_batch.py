"""KIP-435's batches in exact numbers: limits, leader movements first, and whose turn it is."""

import pytest

from quotas.errors import DefinitionError
from quotas.reassignment.batch import PATIENCE_ROUNDS, Batch, BatchLimits, FreeSlots, next_batch, plan_moves
from quotas.reassignment.step import Move, PartitionState, Step, TopicPartition

ALL = frozenset(range(20))
Key = TopicPartition


def key(number: int) -> Key:
    return "t", number


def settled(replicas: tuple[int, ...], min_isr: int = 1) -> PartitionState:
    return PartitionState(replicas, replicas, replicas[0], (), (), min_isr)


def follower_move(number: int, source: int = 1, to: int = 10) -> tuple[Move, PartitionState]:
    """Two replicas, of which the follower moves: no leader movement, one replica added."""
    return Move("t", number, (source, 2), (source, to)), settled((source, 2))


def leader_move(number: int, source: int = 1, to: int = 10) -> tuple[Move, PartitionState]:
    return Move("t", number, (source, 2), (to, 2)), settled((source, 2))


def batch_of(
    pairs: list[tuple[Move, PartitionState]],
    limits: BatchLimits,
    in_flight: dict[Key, Step] | None = None,
    waited: dict[Key, int] | None = None,
) -> Batch:
    now = {move.key: partition for move, partition in pairs}
    return next_batch([move for move, _ in pairs], now, ALL, limits, in_flight or {}, waited or {})


def begun(batch: Batch) -> list[int]:
    return [step.partition for step in batch.steps]


def test_leader_movements_come_first_and_others_fill_the_batch() -> None:
    # P = 4, L = 2: of 3 leader movements (4, 5, 6) two, then the first two others.
    pairs = [follower_move(number) for number in range(4)] + [leader_move(number) for number in (4, 5, 6)]
    batch = batch_of(pairs, BatchLimits(parallel_partition_count=4, parallel_leader_movements=2))
    assert begun(batch) == [4, 5, 0, 1]
    turn = "waits: reassignment."
    assert batch.waiting[key(2)].reason == f"{turn}parallel_partition_count 4 is reached"
    assert batch.waiting[key(6)].reason == f"{turn}parallel_leader_movements 2 is reached"


def test_leader_movements_over_their_limit_leave_slots_to_others() -> None:
    # P = 10, L = 1: one of 3 leader movements, and all 2 others.
    pairs = [leader_move(number) for number in range(3)] + [follower_move(number) for number in (3, 4)]
    batch = batch_of(pairs, BatchLimits(parallel_partition_count=10, parallel_leader_movements=1))
    assert begun(batch) == [0, 3, 4]
    assert batch.waiting[key(1)].reason == ("waits: reassignment.parallel_leader_movements 1 is reached")
    assert batch.waiting[key(1)].has_step


def test_replica_movements_are_bounded_over_all_partitions() -> None:
    # R = 2 and M = 5: two partitions of 2 replicas each, and no third, since 6 > 5.
    pairs = [(Move("t", n, (1, 2, 3), (1, 10, 11)), settled((1, 2, 3))) for n in range(4)]
    limits = BatchLimits(parallel_replica_count=2, max_concurrent_replica_movements=5)
    batch = batch_of(pairs, limits)
    assert [len(step.adds) for step in batch.steps] == [2, 2]


def test_step_adds_at_most_a_batch() -> None:
    pairs = [(Move("t", 0, (1, 2, 3), (1, 10, 11)), settled((1, 2, 3)))]
    limits = BatchLimits(parallel_replica_count=2, max_concurrent_replica_movements=1)
    assert [step.adds for step in batch_of(pairs, limits).steps] == [(10,)]
    limits = BatchLimits(parallel_replica_count=2, max_movements_out_per_broker=1)
    assert [step.adds for step in batch_of(pairs, limits).steps] == [(10,)]


def test_brokers_have_limits_of_their_own_in_and_out() -> None:
    # All from broker 1; to 10, 10, 11, 12.
    pairs = [follower_move(n, to=to) for n, to in enumerate((10, 10, 11, 12))]
    batch = batch_of(pairs, BatchLimits(max_movements_in_per_broker=1))
    assert begun(batch) == [0, 2, 3]
    assert batch.waiting[key(1)].reason.endswith("max_movements_in_per_broker 1 of broker 10 is reached")
    batch = batch_of(pairs, BatchLimits(max_movements_out_per_broker=2))
    assert begun(batch) == [0, 1]
    assert batch.waiting[key(2)].reason.endswith("max_movements_out_per_broker 2 of broker 1 is reached")


def test_steps_under_way_hold_their_slots_and_their_partitions() -> None:
    pairs = [follower_move(number) for number in range(3)]
    first = batch_of(pairs, BatchLimits(parallel_partition_count=2))
    in_flight = {step.key: step for step in first.steps}
    assert begun(batch_of(pairs, BatchLimits(parallel_partition_count=2), in_flight)) == []
    assert begun(batch_of(pairs, BatchLimits(parallel_partition_count=3), in_flight)) == [2]
    del in_flight[key(0)]
    assert begun(batch_of(pairs[1:], BatchLimits(parallel_partition_count=2), in_flight)) == [2]


def test_lowered_limits_hold_from_the_next_step_on() -> None:
    pairs = [follower_move(number) for number in range(6)]
    in_flight = {step.key: step for step in batch_of(pairs, BatchLimits(parallel_partition_count=4)).steps}
    lowered = BatchLimits(parallel_partition_count=2)
    # 4 under way and 2 allowed: nothing begins until fewer than 2 are.
    assert begun(batch_of(pairs, lowered, in_flight)) == []
    for number in range(3):
        del in_flight[key(number)]
    assert len(batch_of(pairs, lowered, in_flight).steps) == 1


def test_repair_over_a_limit_passes_when_it_is_alone() -> None:
    # One of min ISR 3 is in sync: the step adds 2, M is 1.
    hurt = Move("t", 0, (1, 2, 3), (10, 11, 12)), PartitionState((1, 2, 3), (1,), 1, (), (), 3)
    limits = BatchLimits(max_concurrent_replica_movements=1, max_movements_out_per_broker=1)
    batch = batch_of([hurt], limits)
    assert [step.adds for step in batch.steps] == [(10, 11)]
    other = next(iter(batch_of([follower_move(1, source=5)], limits).steps))
    assert begun(batch_of([hurt], limits, {other.key: other})) == []


def test_finished_and_deleted_partitions_are_named() -> None:
    done = Move("t", 0, (1, 2), (3, 4)), settled((3, 4))
    gone = Move("t", 1, (1, 2), (3, 4))
    batch = next_batch([done[0], gone], {key(0): done[1]}, ALL, BatchLimits(), {}, {})
    assert (batch.finished, batch.missing, batch.steps) == ((key(0),), (key(1),), ())


def test_rounds_are_counted_only_if_another_step_began() -> None:
    pairs = [follower_move(number) for number in range(2)]
    limits = BatchLimits(parallel_partition_count=1)
    batch = batch_of(pairs, limits)
    assert batch.waited == {key(1): 1}
    in_flight = {step.key: step for step in batch.steps}
    assert batch_of(pairs, limits, in_flight, {key(1): 1}).waited == {key(1): 1}


def test_longest_wait_is_first_among_equals() -> None:
    pairs = [follower_move(number) for number in range(3)]
    limits = BatchLimits(parallel_partition_count=1)
    assert begun(batch_of(pairs, limits, waited={key(1): 2, key(2): 3})) == [2]


def test_patience_ends_the_leaders_precedence() -> None:
    pairs = [leader_move(0), follower_move(1)]
    limits = BatchLimits(parallel_partition_count=1)
    assert begun(batch_of(pairs, limits, waited={key(1): PATIENCE_ROUNDS - 1})) == [0]
    assert begun(batch_of(pairs, limits, waited={key(1): PATIENCE_ROUNDS})) == [1]


def test_one_that_waits_long_for_two_brokers_has_its_place_kept() -> None:
    # It needs 10 and 11 at once; 10 is busy, and others would take 11 whenever it is free.
    wide = Move("t", 0, (1, 2, 3), (1, 10, 11)), settled((1, 2, 3))
    limits = BatchLimits(parallel_replica_count=2, max_movements_in_per_broker=1)
    busy = batch_of([follower_move(9, to=10)], limits).steps[0]
    pairs = [wide, follower_move(1, to=11), follower_move(2, to=12)]
    patient = batch_of(pairs, limits, {busy.key: busy})
    assert begun(patient) == [1, 2]
    impatient = batch_of(pairs, limits, {busy.key: busy}, {key(0): PATIENCE_ROUNDS})
    assert begun(impatient) == [2]


@pytest.mark.parametrize("name", BatchLimits.__slots__)
def test_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match=rf"reassignment\.{name}: must be at least 1, not 0"):
        BatchLimits(**{name: 0})


def test_cost_of_a_plan_depends_on_beginning_steps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else 10,000 partitions would take minutes: each batch begins two of them."""
    looks = 0
    lacks = FreeSlots.exceeded_limit

    def counted(room: FreeSlots, step: Step) -> str:
        nonlocal looks
        looks += 1
        return lacks(room, step)

    monkeypatch.setattr(FreeSlots, "exceeded_limit", counted)
    pairs = [leader_move(number) for number in range(1000)] + [
        follower_move(number) for number in range(1000, 1010)
    ]
    plan = plan_moves([move for move, _ in pairs], {move.key: now for move, now in pairs}, ALL, BatchLimits())
    assert len(plan.batches) == 500
    assert len(plan.finished) == 1010
    # Those that begin, and in each batch the first of every kind that does not fit.
    assert looks <= 1010 + 500 * 2
