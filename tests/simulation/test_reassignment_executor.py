"""The executor on a simulated cluster: killed anywhere, unanswered, cancelled, in others' way (I5, I11 to I14)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from proxy.config import ReassignmentSettings
from proxy.control.reassign.cluster import Cluster, Sizes
from proxy.control.reassign.status import describe, progress
from quotas.reassignment.step import Move, TopicPartition
from tests.simulation.two_moves import FIRST, MOVES, SECOND, assert_moved, assert_moved_once, cluster, rounds
from tests.support.executor_world import SimulatedResponses, World
from tests.support.journal_topics import SimulatedTopic
from tests.support.reassigned_cluster import SimulatedCluster


@pytest.fixture(params=["file", "topic"])
def kind(request: pytest.FixtureRequest) -> str:
    """Where the journal lies."""
    return str(request.param)


def world_of(kind: str, directory: Path) -> World:
    return World(directory, cluster(), None, SimulatedTopic() if kind == "topic" else None)


@pytest.fixture
def world(kind: str, tmp_path: Path) -> World:
    return world_of(kind, tmp_path)


def test_moves_are_carried_out(world: World) -> None:
    world.take(*MOVES)
    world.run()
    assert_moved_once(world.cluster)
    assert world.stats.reassignment_ends == {"done": 2}
    told = [event.kind for event in world.events]
    assert told.count("reassignment_ended") == 2
    assert told.count("reassignment_step") == world.stats.reassignment_steps["submitted"]


def test_total_of_the_status_stays_while_moves_end(world: World) -> None:
    """Leaders change, and one move ends before the other; sizes were read once, of the original replicas."""
    world.take(*MOVES)
    world.round()
    keys = [move.key for move in MOVES]
    world.executor.sizes = Sizes().updated({1: {FIRST.key: 100, SECOND.key: 10}}, keys)
    shown, ended = [], set()
    while entries := world.journal.state.entries:
        known, executor = world.journal.state, world.executor
        moves = progress(entries, world.journal.partitions, executor.decision, executor.sizes)
        document = describe(moves, ReassignmentSettings(), None, known.ended_totals)
        shown.append((document["bytes_total"], document["replicas_total"]))
        ended.add(known.ended_totals.done)
        world.round()
        world.cluster.catch_up_all()
        assert len(shown) < 100
    # Three new replicas of 100 bytes, and one of 10.
    assert set(shown) == {(310, 4)}
    assert ended == {0, 1}


def test_killed_at_every_place_it_ends_the_same(tmp_path: Path, kind: str) -> None:
    """I11: the same final state, and no copy made twice."""
    whole = world_of(kind, tmp_path / "whole")
    whole.take(*MOVES)
    whole.places = 0
    whole.run()
    assert whole.places >= 20
    for place in range(1, whole.places + 1):
        world = world_of(kind, tmp_path / str(place))
        world.take(*MOVES)
        world.places, world.kill_at = 0, place
        world.run()
        assert world.processes == 2, place
        assert_moved_once(world.cluster)


@pytest.mark.parametrize("place", range(1, 60, 7))
def test_killed_while_going_back_it_ends_at_the_original(world: World, place: int) -> None:
    world.take(*MOVES)
    rounds(world, 2)
    world.turn_back(FIRST.key)
    world.places, world.kill_at = 0, place
    world.run()
    now = world.cluster.partitions[FIRST.key].now()
    assert (now.replicas, now.leader, set(now.isr)) == ((0, 1, 2), 0, {0, 1, 2})
    assert world.cluster.partitions[SECOND.key].now().replicas == SECOND.target


def test_cancel_takes_back_the_step_under_way(world: World) -> None:
    world.take(FIRST)
    world.round()
    assert world.cluster.partitions[FIRST.key].now().adding == (3,)
    world.turn_back(FIRST.key)
    world.run(catches_up=False)
    assert world.cluster.partitions[FIRST.key].now().replicas == (0, 1, 2)
    assert world.stats.reassignment_ends == {"cancelled": 1}
    assert not world.cluster.copied, "nothing was waited for that is not wanted"


def test_submission_without_a_response_is_looked_for_and_not_repeated(world: World) -> None:
    world.take(*MOVES)
    world.mute = True
    world.run()
    assert_moved_once(world.cluster)


def test_broker_that_tells_no_sizes_holds_no_step_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_cluster: Cluster, _brokers: Sequence[int]) -> dict[int, dict[TopicPartition, int]]:
        await asyncio.sleep(3600)
        raise AssertionError("the test is over")

    monkeypatch.setattr(SimulatedResponses, "sizes", never)
    world.take(*MOVES)

    async def rounds() -> None:
        async with asyncio.timeout(30):
            while world.journal.state.entries or not world.executor.leads:
                await world.round_while()
                world.cluster.catch_up_all()

    asyncio.run(rounds())
    assert_moved(world.cluster)


def test_callers_do_not_wait_for_a_broker_that_hangs_in_a_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = asyncio.Event()

    async def never(_cluster: Cluster, _topics: Sequence[str], **_: object) -> None:
        looks.set()
        await asyncio.sleep(3600)

    world.take(*MOVES)
    monkeypatch.setattr(SimulatedResponses, "read_state", never)

    async def request_meanwhile() -> None:
        round_ = asyncio.create_task(world.round_while())
        async with asyncio.timeout(30):
            await looks.wait()
            async with world.journal.planning_lock:
                round_.cancel()
            with pytest.raises(asyncio.CancelledError):
                await round_

    asyncio.run(request_meanwhile())


def test_foreign_reassignment_is_waited_for(world: World) -> None:
    world.cluster.alter(FIRST.key, (0, 1, 5))
    world.take(FIRST)
    for _ in range(5):
        world.round()
    assert world.cluster.partitions[FIRST.key].now().adding == (5,)
    assert "another reassignment" in world.executor.decision.waiting[FIRST.key].reason
    world.run()
    assert world.cluster.partitions[FIRST.key].now().replicas == FIRST.target


def test_dead_target_is_waited_for_then_stepped_around(world: World) -> None:
    world.settings = ReassignmentSettings(dead_target_seconds=10)
    world.take(FIRST)
    world.round()
    world.cluster.die(3)  # in the middle of its step
    for _ in range(8):
        world.round()
    assert world.cluster.partitions[FIRST.key].now().adding == (3,), "waited for"
    rounds(world, 30)
    now = world.cluster.partitions[FIRST.key].now()
    assert {4, 5} <= set(now.replicas), "stepped around"
    assert len(now.isr) >= 2
    assert 3 in world.executor.decision.lost
    world.cluster.come_back(3)
    world.run()
    assert world.cluster.partitions[FIRST.key].now().replicas == FIRST.target


def test_broker_that_dies_after_its_step_delays_no_other_move(world: World) -> None:
    found = world.cluster = SimulatedCluster(6)
    first, second = Move("t", 0, (0, 1), (2, 3)), Move("t", 1, (0, 1), (4, 5))
    for move in (first, second):
        found.create(move.key, move.original)
    world.settings = ReassignmentSettings(dead_target_seconds=10, parallel_partition_count=1)
    world.take(first, second)
    world.round()
    found.catch_up_all()
    found.die(2)  # its first step is done
    rounds(world, 80)
    assert found.partitions[second.key].now().replicas == second.target
    assert 3 in found.partitions[first.key].now().isr, "stepped around"
    found.come_back(2)
    world.run()
    assert found.partitions[first.key].now().replicas == first.target


def test_stuck_step_delays_no_other_move(world: World) -> None:
    """A replica that is kept died: Kafka 3.8 to 4.1 wait for it, and a cancel would leave too few in sync."""
    found = world.cluster = SimulatedCluster(6, "targets")
    first, second = Move("t", 0, (0, 1), (2, 1)), Move("t", 1, (0, 1), (4, 5))
    found.create(first.key, first.original, min_isr=2)
    found.create(second.key, second.original)
    world.settings = ReassignmentSettings(dead_target_seconds=10, parallel_partition_count=1)
    world.take(first, second)
    world.round()
    found.die(1)
    found.catch_up_all()
    rounds(world, 80)
    assert found.partitions[first.key].now().adding == (2,), "left alone"
    assert found.partitions[second.key].now().replicas == second.target
    found.come_back(1)
    world.run()
    assert found.partitions[first.key].now().replicas == first.target


def test_deleted_topic_is_dropped_after_a_while(world: World) -> None:
    world.take(*MOVES)
    world.cluster.delete(FIRST.key)
    rounds(world, 5)
    assert FIRST.key in world.journal.state.entries
    world.run()
    assert world.stats.reassignment_ends == {"gone": 1, "done": 1}


def test_topic_that_was_created_again_is_another(world: World) -> None:
    world.take(FIRST)
    world.topic_ids["t"] = "cd" * 16
    world.run(rounds=2)
    assert world.cluster.partitions[FIRST.key].now().replicas == FIRST.original
    assert world.stats.reassignment_ends == {"gone": 1}


def test_request_without_validation_is_struck_out(world: World) -> None:
    world.ask(FIRST)
    world.run(rounds=40)
    assert world.cluster.partitions[FIRST.key].now().replicas == FIRST.original
    assert world.stats.reassignment_ends == {"refused": 1}


def test_cancel_without_validation_changes_nothing(world: World) -> None:
    world.take(FIRST)
    world.ask(FIRST, cancels=True)
    world.run(rounds=60)
    assert world.cluster.partitions[FIRST.key].now().replicas == FIRST.target


def two_worlds(directory: Path) -> tuple[SimulatedCluster, World, World]:
    """Two processes with one journal in a file."""
    found = cluster()
    first, second = World(directory, found), World(directory, found)
    first.take(*MOVES)
    return found, first, second


def test_only_one_of_two_executes(tmp_path: Path) -> None:
    found, first, second = two_worlds(tmp_path)
    for _ in range(3):
        first.round()
        second.round()
        assert (first.executor.leads, second.executor.leads) == (True, False)
        found.catch_up_all()
    first.kill()
    second.run()
    assert_moved_once(found)


def test_one_that_reaches_no_broker_lets_another_execute(tmp_path: Path) -> None:
    found, first, second = two_worlds(tmp_path)
    first.round()
    first.unreachable = True
    for _ in range(29):
        first.round()
        second.round()
        assert not second.executor.leads, "not at once: brokers are restarted"
    for _ in range(3):
        first.round()
        second.round()
    assert (first.executor.leads, second.executor.leads) == (False, True)
    assert first.executor.problem == "no broker answers"
    second.run()
    assert_moved(found)
    first.unreachable = False
    first.round()
    assert not first.executor.leads


def test_one_alone_that_reaches_no_broker_goes_on_when_it_does(world: World) -> None:
    world.take(*MOVES)
    world.unreachable = True
    for _ in range(100):
        world.round()
    world.unreachable = False
    world.run()
    assert_moved_once(world.cluster)


def test_executor_that_was_replaced_submits_nothing_more(tmp_path: Path) -> None:
    """The lock was given to two, as a network file system might: the journal's term decides."""
    found, first, second = two_worlds(tmp_path)
    first.round()
    first.kill()  # it does not know that it has lost its lock
    second.round()
    assert second.executor.leads
    found.catch_up_all()
    first.round()
    assert not first.executor.leads
    second.run()
    assert_moved(found)


def test_damaged_journal_is_set_aside_and_confirmed_moves_go_on(tmp_path: Path) -> None:
    world = World(tmp_path, cluster())
    world.take(*MOVES)
    rounds(world, 2)
    world.kill()
    path = tmp_path / "journal"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = b"?" + lines[1][1:]
    path.write_bytes(b"".join(lines))
    world.start()
    world.run()
    assert_moved_once(world.cluster)
    assert (tmp_path / "journal.damaged-1").read_bytes() == b"".join(lines)


def test_move_of_a_damaged_journal_that_the_cluster_contradicts_is_dropped(tmp_path: Path) -> None:
    world = World(tmp_path, cluster())
    world.take(*MOVES)
    world.kill()
    path = tmp_path / "journal"
    path.write_bytes(path.read_bytes() + b"garbage\n")
    world.cluster.alter(FIRST.key, (0, 2, 5))
    world.cluster.catch_up_all()
    world.start()
    world.run()
    assert world.cluster.partitions[FIRST.key].now().replicas == (0, 2, 5), "left alone"
    assert world.cluster.partitions[SECOND.key].now().replicas == SECOND.target
    assert world.stats.reassignment_ends == {"lost": 1, "done": 1}
