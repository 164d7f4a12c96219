"""A journal in a topic: two holders, late steps, appends without acknowledgement (docs/decisions/0014)."""

from pathlib import Path

import pytest

from proxy.topics.records import Problem, Record
from tests.simulation.two_moves import MOVES, assert_moved, assert_moved_once, cluster, rounds
from tests.support.executor_world import Killed, World
from tests.support.journal_topics import SimulatedTopic

SETTLE_ROUNDS = 30  # of a second


def worlds(directory: Path) -> tuple[World, World]:
    """Two members; the first one is the holder, and has both moves to carry out."""
    found, topic = cluster(), SimulatedTopic()
    first, second = (World(directory, found, None, topic, tenure=tenure) for tenure in (1, 0))
    first.take(*MOVES)
    return first, second


def test_member_that_is_not_the_holder_shows_moves_and_executes_none(tmp_path: Path) -> None:
    first, second = worlds(tmp_path)
    for _ in range(3):
        first.round()
        second.round()
        assert (first.executor.leads, second.executor.leads) == (True, False)
        assert set(second.journal.shown.moves) == set(first.journal.state.entries)
        assert second.executor.holder() == first.journal.process
        first.cluster.catch_up_all()


def test_next_holder_goes_on_where_the_last_one_was_killed(tmp_path: Path) -> None:
    first, second = worlds(tmp_path)
    first.round()
    second.tenure = 1
    second.run()
    assert_moved_once(first.cluster)


def test_executor_that_was_fenced_submits_nothing_more(tmp_path: Path) -> None:
    """Both are holders for a moment: the later one fences the earlier one."""
    first, second = worlds(tmp_path)
    first.round()
    second.tenure = 1
    second.round()
    assert second.executor.leads
    first.cluster.catch_up_all()
    steps = first.stats.reassignment_steps.copy()
    first.round()
    assert not first.executor.leads
    assert first.stats.reassignment_steps == steps
    first.tenure = 0
    second.run()
    first.round()
    assert not first.executor.leads
    assert_moved(first.cluster)


def test_two_holders_for_a_while_lose_nothing(tmp_path: Path) -> None:
    first, second = worlds(tmp_path)
    second.tenure = 1
    for _ in range(40):
        first.round()
        second.round()
        assert not (first.lock.held and second.lock.held and first.topic and first.topic.epoch == 0)
        first.cluster.catch_up_all()
    first.tenure = 0
    second.run()
    assert_moved_once(first.cluster)


def test_tenure_that_ends_between_journal_and_submission_submits_nothing(tmp_path: Path) -> None:
    first, second = worlds(tmp_path)
    place = first.place

    def end_tenure() -> None:
        place()
        if any(entry.step is not None for entry in first.journal.state.entries.values()):
            first.tenure = 0  # the step has been read back, and is about to be submitted

    first.place = end_tenure  # type: ignore[method-assign]  # as late as it can be
    first.round()
    assert not first.executor.leads
    assert not any(one.now().is_reassigned for one in first.cluster.partitions.values())
    second.tenure = 1
    second.run()
    assert_moved(first.cluster)


@pytest.mark.parametrize("passed", range(SETTLE_ROUNDS))
def test_late_step_of_an_executor_that_was_stopped_changes_no_end(tmp_path: Path, passed: int) -> None:
    """It was stopped between its last look and the write, and goes on after the other one has begun."""
    first, second = worlds(tmp_path)
    first.stalls = True
    with pytest.raises(Killed):
        first.round()
    assert first.stalled
    second.tenure = 1
    rounds(second, passed)
    first.arrive()
    second.run()
    assert_moved(first.cluster)


def until_killed(world: World) -> None:
    for _ in range(10):
        try:
            world.round()
        except Killed:
            return
        world.cluster.catch_up_all()
    raise AssertionError("it submits nothing")


@pytest.mark.parametrize("passed", range(0, SETTLE_ROUNDS, 3))
@pytest.mark.parametrize("step", [2, 3])
def test_late_second_step_changes_no_end(tmp_path: Path, passed: int, step: int) -> None:
    first, second = worlds(tmp_path)
    rounds(first, step - 1)
    first.stalls = True
    until_killed(first)
    second.tenure = 1
    rounds(second, passed)
    first.arrive()
    second.run()
    assert_moved(first.cluster)


@pytest.mark.parametrize("count", range(1, 4))
@pytest.mark.parametrize("after", range(6))
@pytest.mark.parametrize("lost", [False, True])
def test_appends_that_fail_or_are_not_acknowledged_lose_nothing(
    tmp_path: Path, after: int, count: int, lost: bool
) -> None:
    topic = SimulatedTopic()
    world = World(tmp_path, cluster(), None, topic)
    world.take(*MOVES)
    rounds(world, after)
    if lost:
        topic.lose = count
    else:
        topic.refuse = count
    world.run()
    assert_moved_once(world.cluster)


def test_topic_that_is_away_is_said_and_moves_go_on_after_it(tmp_path: Path) -> None:
    topic = SimulatedTopic()
    world = World(tmp_path, cluster(), None, topic)
    world.take(*MOVES)
    world.round()
    topic.problem = Problem("missing", "topic __journal was deleted")
    for _ in range(40):
        world.round()
    assert world.executor.problem == "topic __journal was deleted"
    assert not world.executor.leads
    topic.problem, topic.write_problem = None, Problem("denied", "an ACL denies Write")
    world.round()
    assert world.executor.problem == "an ACL denies Write"
    topic.write_problem = None
    world.run()
    assert_moved(world.cluster)


def test_damaged_record_is_replaced_and_confirmed_moves_go_on(tmp_path: Path) -> None:
    topic = SimulatedTopic()
    world = World(tmp_path, cluster(), None, topic)
    world.take(*MOVES)
    world.round()
    world.cluster.catch_up_all()
    topic.append([Record(b"move/t/1", b"junk"), Record(b"move/t/2", b"junk"), Record(b"other", b"?")])
    world.round()
    assert "t-1: " in world.executor.problem or world.executor.problem == ""
    world.run()
    assert_moved(world.cluster)
    topic.compact()
    assert not [record for _, record in topic.records if (record.key or b"").startswith(b"move/")]


def test_process_without_a_fleet_that_was_replaced_does_not_come_back(tmp_path: Path) -> None:
    """A rolling upgrade: the later one stays, also while the earlier one drains."""
    topic = SimulatedTopic()
    old, new = (topic.journal(name, lambda: 1, alone=True) for name in ("old", "new"))
    assert old.take()
    assert new.take()
    assert not old.take()
    assert new.held
    later = topic.journal("later", lambda: 1, alone=True)
    assert later.take()
