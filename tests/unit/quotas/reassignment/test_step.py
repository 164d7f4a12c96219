"""KIP-435's step of one partition: the proposal's own example, and each place where its text goes wrong."""

from itertools import chain, combinations, product

import pytest

from quotas.reassignment.batch import succeeded
from quotas.reassignment.step import Finished, Move, PartitionState, Step, Waiting, next_step

Replicas = tuple[int, ...]
# What a table's row holds: CR, ER, DR, NR, TR, and the leader when the step is done.
Row = tuple[Replicas, Replicas, Replicas, Replicas, Replicas, int]

EXAMPLE = Move("t", 0, (0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
ALL = frozenset(range(10))


def partition(
    replicas: Replicas, *, isr: Replicas | None = None, leader: int | None = None, min_isr: int = 1
) -> PartitionState:
    in_sync = replicas if isr is None else isr
    return PartitionState(replicas, in_sync, in_sync[0] if leader is None else leader, (), (), min_isr)


def walk(move: Move, replica_count: int, min_isr: int = 1, live: frozenset[int] = ALL) -> list[Row]:
    """Every step of a move, if all succeed, in the proposal's words."""
    now, rows = partition(move.original, min_isr=min_isr), []
    while isinstance(step := next_step(move, now, live, replica_count), Step):
        after = succeeded(now, step)
        excess = tuple(replica for replica in now.replicas if replica not in move.target)
        rows.append((now.replicas, excess, step.drops, step.adds, step.replicas, after.leader))
        now = after
    assert isinstance(step, Finished)
    return rows


def one_step(
    move: Move, now: PartitionState, dead: Replicas = (), count: int = 1, lost: Replicas = ()
) -> Step:
    step = next_step(move, now, ALL - {*dead, *lost}, count, frozenset(lost))
    assert isinstance(step, Step), step
    return step


def waits(
    move: Move, now: PartitionState, dead: Replicas = (), count: int = 1, lost: Replicas = ()
) -> Waiting:
    verdict = next_step(move, now, ALL - {*dead, *lost}, count, frozenset(lost))
    assert isinstance(verdict, Waiting), verdict
    return verdict


# The proposal's example, FTR = (5, 6, 7, 8, 9) in every row.


def test_example_one_replica_at_a_time() -> None:
    assert walk(EXAMPLE, 1) == [
        # CR               ER                DR    NR    TR               leader
        ((0, 1, 2, 3, 4), (0, 1, 2, 3, 4), (1,), (5,), (5, 0, 2, 3, 4), 5),
        ((5, 0, 2, 3, 4), (0, 2, 3, 4), (0,), (6,), (5, 6, 2, 3, 4), 5),
        ((5, 6, 2, 3, 4), (2, 3, 4), (2,), (7,), (5, 6, 7, 3, 4), 5),
        ((5, 6, 7, 3, 4), (3, 4), (3,), (8,), (5, 6, 7, 8, 4), 5),
        ((5, 6, 7, 8, 4), (4,), (4,), (9,), (5, 6, 7, 8, 9), 5),
    ]


def test_example_two_replicas_at_a_time() -> None:
    # The proposal's prose: (0, 1) -> (5, 6), (2, 3) -> (7, 8), 4 -> 9. The leader, 0, leaves after its successor leads.
    assert walk(EXAMPLE, 2) == [
        ((0, 1, 2, 3, 4), (0, 1, 2, 3, 4), (1, 2), (5, 6), (5, 6, 0, 3, 4), 5),
        ((5, 6, 0, 3, 4), (0, 3, 4), (0, 3), (7, 8), (5, 6, 7, 8, 4), 5),
        ((5, 6, 7, 8, 4), (4,), (4,), (9,), (5, 6, 7, 8, 9), 5),
    ]


@pytest.mark.parametrize("replica_count", [5, 6, 100])
def test_example_all_at_once_agrees_with_kafka(replica_count: int) -> None:
    assert walk(EXAMPLE, replica_count) == [
        ((0, 1, 2, 3, 4), (0, 1, 2, 3, 4), (1, 2, 3, 4, 0), (5, 6, 7, 8, 9), (5, 6, 7, 8, 9), 5)
    ]


def test_preferred_leader_is_elected_with_the_first_step_and_only_once() -> None:
    first = one_step(EXAMPLE, partition(EXAMPLE.original))
    assert (first.elects, first.moves_leader) == (5, True)
    second = one_step(EXAMPLE, succeeded(partition(EXAMPLE.original), first))
    assert (second.elects, second.moves_leader) == (None, False)


# The proposal read critically (reference/replication.md, section 7): each defect, and that it is not here.


@pytest.mark.parametrize("replica_count", [2, 3])
def test_defect_1_nothing_is_dropped_before_its_successor_is_in_sync(replica_count: int) -> None:
    # By the letter one in-sync copy is left with R = 2 and min ISR 2, none with R = 3. Here drops are in the same
    # reassignment as adds, and Kafka drops when what is added is in sync.
    now = partition((0, 1, 2), min_isr=2)
    step = one_step(Move("t", 0, (0, 1, 2), (5, 6, 7)), now, count=replica_count)
    assert len(step.adds) == len(step.drops) == replica_count
    assert not step.is_done(PartitionState((5, 6, 0), (0,), 0, (), (), 2))


def test_defect_2_replication_factor_never_falls_below_both_ends() -> None:
    # By the letter (0,1,2) -> (0,3,4) goes to two replicas with R = 2, and the example's cousin to (4,5,6,7).
    rows = walk(Move("t", 0, (0, 1, 2), (0, 3, 4)), 2)
    assert [row[4] for row in rows] == [(0, 3, 4)]
    rows = walk(Move("t", 0, (0, 1, 2, 3, 4), (2, 3, 4, 5, 6)), 2)
    assert [row[4] for row in rows] == [(2, 3, 4, 5, 6)]
    rows = walk(Move("t", 0, (0, 1, 2, 3, 4), (2, 3, 4, 5, 6)), 1)
    assert [row[4] for row in rows] == [(2, 3, 4, 5, 0), (2, 3, 4, 5, 6)]


def test_defect_3_shrinking_and_growing_take_the_same_care() -> None:
    # n = max(R, |FTR| - |CR|) has growth's sign in the place of shrinking's, and no code reads it.
    assert [row[4] for row in walk(Move("t", 0, (0, 1, 2, 3), (1,)), 2)] == [(1, 0), (1,)]
    assert [row[4] for row in walk(Move("t", 0, (0,), (0, 1, 2, 3)), 2)] == [(0, 1, 2), (0, 1, 2, 3)]
    assert [row[4] for row in walk(Move("t", 0, (0, 1), (2, 3, 4)), 1)] == [(2, 0), (2, 3), (2, 3, 4)]


def test_defect_4_first_step_exceeds_the_limit_to_reach_min_isr() -> None:
    # The prose: one of min ISR 3 is in sync, so two are added at once, whatever R is.
    now = partition((0, 1, 2, 3), isr=(0,), min_isr=3)
    step = one_step(Move("t", 0, (0, 1, 2, 3), (4, 5, 6, 7)), now, dead=(1, 2, 3), count=1)
    assert step.adds == (4, 5)
    assert 0 not in step.drops


def test_defect_4_repair_drops_no_replica_in_sync_and_adds_no_dead_one() -> None:
    now = partition((0, 1, 2), isr=(0,), min_isr=2)
    step = one_step(Move("t", 0, (0, 1, 2), (3, 4, 5)), now, dead=(1, 2, 3), count=1)
    # The dead would block Kafka 3.8 to 4.1: what is left is in sync, and no less than min ISR.
    assert (step.adds, step.drops, step.replicas) == ((4,), (1, 2), (4, 0))
    # A live replica that lags stays: one more in sync is all that is needed now.
    step = one_step(Move("t", 0, (0, 1, 2), (3, 4, 5)), now, dead=(2,))
    assert (step.adds, step.drops, step.replicas) == ((3,), (2,), (3, 0, 1))


def test_defect_5_elects_the_new_leader_when_it_is_in_sync() -> None:
    # The example elects 5 while it is still being added. Here it is the last thing of a step.
    step = one_step(EXAMPLE, partition(EXAMPLE.original))
    under_way = PartitionState((5, 0, 2, 3, 4, 1), (0, 1, 2, 3, 4), 0, (5,), (1,), 1)
    assert step.is_under_way(under_way)
    assert not step.is_done(under_way)
    assert step.is_done(PartitionState((5, 0, 2, 3, 4), (0, 2, 3, 4, 5), 0, (), (), 1))


def test_defect_6_every_step_is_an_ordered_list_that_begins_with_the_targets_order() -> None:
    rows = walk(Move("t", 0, (0, 1, 2), (3, 1, 0)), 1)
    assert [row[4] for row in rows] == [(3, 1, 0)]
    rows = walk(Move("t", 0, (0, 1, 2), (2, 4, 3)), 1)
    assert [row[4] for row in rows] == [(2, 4, 0), (2, 4, 3)]


def test_defect_8_a_dead_target_is_a_reason_and_not_a_silent_wait() -> None:
    verdict = waits(Move("t", 0, (0, 1), (5, 6)), partition((0, 1)), dead=(5, 6))
    assert verdict == Waiting("waits for brokers [5, 6], which are not alive", (5, 6))


# Order of leaving, order of joining.


def test_dead_replicas_are_dropped_first_then_lagging_ones_and_the_leader_last() -> None:
    move = Move("t", 0, (0, 1, 2, 3), (4, 5, 6, 7))
    assert one_step(move, partition((0, 1, 2, 3), isr=(0, 1, 2)), dead=(3,)).drops == (3,)
    assert one_step(move, partition((0, 1, 2, 3), isr=(0, 1, 3))).drops == (2,)
    # Of all that are in sync the first, but the leader.
    assert one_step(move, partition((0, 1, 2, 3), leader=1)).drops == (0,)


def test_order_alone_is_submitted_and_completes_with_an_election() -> None:
    step = one_step(Move("t", 0, (0, 1, 2), (2, 0, 1)), partition((0, 1, 2)))
    assert (step.replicas, step.adds, step.drops, step.elects) == ((2, 0, 1), (), (), 2)
    assert step.submits


def test_leader_alone_is_elected_without_a_submission() -> None:
    step = one_step(Move("t", 0, (0, 1), (1, 0)), partition((1, 0), leader=0))
    assert (step.submits, step.elects, step.moves_leader) == (False, 1, True)


def test_move_is_finished_with_the_targets_order_and_leader() -> None:
    move = Move("t", 0, (0, 1), (2, 3))
    assert next_step(move, partition((2, 3)), ALL, 1) == Finished()
    # A dead preferred leader can not lead, and is where it was to be.
    assert next_step(move, partition((2, 3), isr=(3,)), ALL - {2}, 1) == Finished()
    verdict = waits(move, partition((2, 3), isr=(3,)))
    assert verdict.reason == "the preferred leader 2 is not in sync yet"


# What waits.


def test_foreign_reassignment_is_respected() -> None:
    now = PartitionState((7, 0, 1), (0, 1), 0, (7,), (1,), 1)
    reason = waits(Move("t", 0, (0, 1), (2, 3)), now).reason
    assert reason == "another reassignment of it is under way: adding [7], removing [1]"


def test_partition_without_a_leader_waits() -> None:
    move = Move("t", 0, (0, 1), (2, 3))
    reason = "it has no leader: none of its replicas that are in sync is alive"
    assert waits(move, partition((0, 1), isr=(0,), leader=-1), dead=(0,)).reason == reason
    assert waits(move, partition((0, 1), isr=(0,), leader=0), dead=(0,)).reason == reason


def test_target_below_min_isr_is_refused_and_may_be_allowed_later() -> None:
    move = Move("t", 0, (0, 1, 2), (3,))
    reason = waits(move, partition((0, 1, 2), min_isr=2)).reason
    assert reason == "the target has 1 replicas, fewer than min.insync.replicas 2"
    assert one_step(move, partition((0, 1, 2), min_isr=1)).adds == (3,)


def test_partition_that_is_below_min_isr_anyway_may_move() -> None:
    assert one_step(Move("t", 0, (0,), (1,)), partition((0,), min_isr=2)).replicas == (1,)


def test_replica_that_lags_keeps_others_from_leaving() -> None:
    # To one replica, and that one is behind: to drop 0 or 2 would leave fewer in sync than there is room for.
    verdict = waits(Move("t", 0, (0, 1, 2), (1,)), partition((0, 1, 2), isr=(0, 2)), count=2)
    assert verdict.reason == "replicas [1] are not in sync, and dropping others would leave too few in sync"


# Dead brokers.


def test_dead_target_is_stepped_around() -> None:
    move = Move("t", 0, (0, 1, 2), (3, 4, 5))
    step = one_step(move, partition((0, 1, 2)), dead=(3,))
    assert (step.adds, step.replicas, step.elects) == ((4,), (4, 0, 2), None)


def test_dead_source_is_replaced_at_once() -> None:
    step = one_step(Move("t", 0, (0, 1, 2), (3, 1, 2)), partition((0, 1, 2), isr=(1, 2)), dead=(0,))
    assert (step.adds, step.drops, step.replicas) == ((3,), (0,), (3, 1, 2))


def test_dead_member_of_the_target_is_waited_for_and_parked_when_it_is_lost() -> None:
    move, now = Move("t", 0, (0, 1, 2), (3, 1, 2)), partition((0, 1, 2), isr=(0, 2), min_isr=2)
    reason = "broker 1, which is not alive and would keep the step from completing"
    assert waits(move, now, dead=(1,)) == Waiting(reason, (1,))
    step = one_step(move, now, lost=(1,))
    assert (step.adds, step.drops, step.replicas) == ((3,), (1,), (3, 2, 0))
    # Then only it is missing; and when it is back it is added, and what stood in for it goes.
    parked = succeeded(now, step)
    assert waits(move, parked, lost=(1,)).brokers == (1,)
    back = one_step(move, parked)
    assert (back.adds, back.drops, back.replicas) == ((1,), (0,), (3, 1, 2))


def test_below_min_isr_the_dead_are_not_dropped_by_a_step_that_can_not_complete() -> None:
    # Two replicas are left at least, so 1 or 2 stays, and Kafka 3.8 to 4.1 waits for it: the step would be taken back
    # as blocked by what is lost, and be the next step again, for ever.
    move, now = Move("t", 0, (0, 1, 2), (0, 1)), partition((0, 1, 2), isr=(0,), min_isr=2)
    expected = Waiting("broker 1, which is not alive and would keep the step from completing", (1,))
    assert waits(move, now, lost=(1, 2)) == expected
    assert waits(move, now, dead=(1, 2)) == expected
    # With a copy to come it is worth it all the same; and with 1 back, 2 goes.
    assert one_step(Move("t", 0, (0, 1, 2), (0, 1, 3)), now, lost=(1, 2)).adds == (3,)
    assert one_step(move, now, lost=(2,)).drops == (2,)


def test_two_lost_sources_are_no_copies_and_block_nothing() -> None:
    # 0 alone is alive. Three replicas of which two are lost become two that are in sync, then three.
    move, now = Move("t", 0, (0, 1, 2), (3, 4, 5)), partition((0, 1, 2), isr=(0,))
    step = one_step(move, now, lost=(1, 2))
    assert (step.adds, {*step.drops}, step.replicas) == ((3,), {1, 2}, (3, 0))
    step = one_step(move, succeeded(now, step))
    assert (step.adds, step.drops, step.replicas) == ((4,), (), (3, 4, 0))


def test_lost_broker_is_not_dropped_without_something_in_its_place() -> None:
    move = Move("t", 0, (0, 1, 2), (0, 3, 4))
    assert waits(move, partition((0, 1, 2), isr=(0, 2)), dead=(3, 4), lost=(1,)).brokers == (3, 4)


def test_shrinking_drops_the_lost_first() -> None:
    step = one_step(Move("t", 0, (0, 1, 2), (0, 1)), partition((0, 1, 2), isr=(0, 1)), lost=(2,))
    assert (step.adds, step.drops) == ((), (2,))


# What an executor asks of a step under way.


def test_cancel_is_safe_while_enough_are_in_sync_without_the_added_replicas() -> None:
    step = one_step(Move("t", 0, (0, 1, 2), (3, 1, 2)), partition((0, 1, 2), min_isr=2))
    assert step.may_be_cancelled(PartitionState((3, 1, 2, 0), (0, 1, 3), 0, (3,), (0,), 2))
    assert not step.may_be_cancelled(PartitionState((3, 1, 2, 0), (0, 3), 0, (3,), (0,), 2))


def test_step_is_blocked_by_lost_brokers_and_not_by_slow_ones() -> None:
    step = one_step(Move("t", 0, (0, 1, 2), (3, 1, 2)), partition((0, 1, 2)))
    under_way = PartitionState((3, 1, 2, 0), (0, 1, 2), 0, (3,), (0,), 1)
    assert step.blocked_by(under_way, frozenset({3})) == (3,)
    assert step.blocked_by(under_way, frozenset({1})) == ()  # in sync when it was seen
    behind = PartitionState((3, 1, 2, 0), (0, 2), 0, (3,), (0,), 1)
    assert step.blocked_by(behind, frozenset({1})) == ()  # 3 is still copied; older Kafkas do not wait for 1
    caught_up = PartitionState((3, 1, 2, 0), (0, 2, 3), 0, (3,), (0,), 1)
    assert step.blocked_by(caught_up, frozenset({1})) == (1,)
    leaderless = PartitionState((3, 1, 2, 0), (0,), -1, (3,), (0,), 1)
    assert step.blocked_by(leaderless, frozenset({0})) == (0,)


# Brokers whose log directories are all cordoned: Kafka refuses each list with one of them (KIP-1066).


def step_beside(
    cordoned: Replicas, move: Move, now: PartitionState, count: int = 1
) -> Step | Finished | Waiting:
    return next_step(move, now, ALL, count, cordoned=frozenset(cordoned))


def test_replica_on_a_cordoned_broker_leaves_first_even_if_it_leads() -> None:
    move, now = Move("t", 0, (0, 1, 2), (3, 4, 5)), partition((0, 1, 2))
    step = step_beside((0,), move, now)
    assert isinstance(step, Step)
    assert (step.adds, step.drops, step.replicas, step.elects) == ((3,), (0,), (3, 1, 2), 3)


def test_all_replicas_on_cordoned_brokers_leave_in_one_step() -> None:
    step = step_beside((1, 2), Move("t", 0, (0, 1, 2), (3, 4, 5)), partition((0, 1, 2)))
    assert isinstance(step, Step)
    assert (step.adds, step.drops, step.replicas) == ((3, 4), (1, 2), (3, 4, 0))


def test_smaller_target_drops_cordoned_brokers_at_once() -> None:
    step = step_beside((0, 1), Move("t", 0, (0, 1, 2, 3), (2,)), partition((0, 1, 2, 3)))
    assert isinstance(step, Step)
    assert set(step.drops) == {0, 1}


@pytest.mark.parametrize("replicas", [(0, 1, 2), (3, 1, 2), (2, 1, 3)])
def test_cordoned_target_is_waited_for(replicas: Replicas) -> None:
    verdict = step_beside((3,), Move("t", 0, (0, 1, 2), (3, 2, 1)), partition(replicas))
    assert isinstance(verdict, Waiting)
    assert verdict.reason == "all log directories of broker 3 are cordoned"


def test_replica_that_cannot_leave_a_cordoned_broker_is_named() -> None:
    """One of the targets is not alive, so two copies would be too few."""
    move, now = Move("t", 0, (0, 1, 2), (3, 4, 5)), partition((0, 1, 2), min_isr=3)
    verdict = next_step(move, now, ALL - {4, 5}, 1, cordoned=frozenset((0, 1)))
    assert isinstance(verdict, Waiting)
    assert "are cordoned, and not all replicas there can leave in one step" in verdict.reason


@pytest.mark.parametrize(
    ("original", "target", "isr", "min_isr"),
    [((0, 1, 2, 3), (2, 3), (0,), 1), ((0, 1, 2, 3), (2, 3), (0, 2), 2)],
)
def test_copy_that_is_needed_stays_on_a_cordoned_broker(
    original: Replicas, target: Replicas, isr: Replicas, min_isr: int
) -> None:
    """Others than it are not in sync, and leave after it."""
    now = PartitionState(original, isr, isr[0], (), (), min_isr)
    verdict = step_beside((0,), Move("t", 0, original, target), now, 2)
    assert isinstance(verdict, Waiting)
    assert "not all replicas there can leave in one step" in verdict.reason


def test_no_step_has_a_cordoned_broker_and_none_loses_copies() -> None:
    """All small moves, with each set of cordoned brokers outside of the target."""
    brokers = range(5)
    for size, wanted, min_isr, count in product((1, 2, 3), (1, 2, 3), (1, 2), (1, 2)):
        for target in combinations(brokers, wanted):
            move = Move("t", 0, tuple(range(size)), target)
            outside = [broker for broker in brokers if broker not in target]
            for cordoned in chain.from_iterable(combinations(outside, number) for number in (1, 2)):
                now, steps = partition(move.original, min_isr=min(min_isr, size, wanted)), 0
                while isinstance(step := step_beside(cordoned, move, now, count), Step):
                    assert not set(step.replicas) & set(cordoned)
                    assert len(step.replicas) >= min(len(now.replicas), wanted)
                    now, steps = succeeded(now, step), steps + 1
                assert isinstance(step, Finished), (move, cordoned, now, step)
                assert steps <= size + wanted + 2
