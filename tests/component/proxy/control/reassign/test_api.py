"""Callers' requests: what is sent in their place, what is written down when, and what they are told (KIP-435)."""

import asyncio
from pathlib import Path

import pytest

from protocol.messages.reassignments import AlterResponse, Outcome
from proxy.config import ReassignmentSettings
from proxy.control.reassign.cluster import Cluster, ClusterError, ClusterState
from tests.support.executor_world import Killed, SimulatedResponses, World
from tests.support.reassigned_cluster import SimulatedCluster

ONE, TWO, THREE = ("t", 0), ("t", 1), ("t", 2)
DENIED = Outcome(31, "Cluster authorization failed.")


@pytest.fixture
def world(tmp_path: Path) -> World:
    cluster = SimulatedCluster(6)
    for key in (ONE, TWO, THREE):
        cluster.create(key, (0, 1))
    return World(tmp_path, cluster, ReassignmentSettings(parallel_partition_count=2))


def moves(world: World) -> dict[tuple[str, int], tuple[int, ...] | None]:
    known = world.journal.state.entries
    return {key: entry.target for key, entry in known.items()}


def told(response: AlterResponse) -> list[int]:
    return [outcome.error_code for _, outcome in response.partitions]


def test_first_steps_go_over_the_callers_connection_and_the_rest_waits(world: World) -> None:
    response = world.request((ONE, (2, 3)), (TWO, (2, 3)), (THREE, (2, 3)))
    assert world.sent == {ONE: (2, 0), TWO: (2, 0)}, "two partitions at once, one replica each"
    assert (response.outcome, told(response)) == (Outcome(), [0, 0, 0])
    assert moves(world) == {ONE: (2, 3), TWO: (2, 3), THREE: (2, 3)}
    assert world.woken == 1
    world.run()
    for key in (ONE, TWO, THREE):
        assert world.cluster.partitions[key].now().replicas == (2, 3)


def test_unauthorized_reassignment_and_cancel_are_refused_without_effect(world: World) -> None:
    response = world.request((ONE, (2, 3)), (("nowhere", 0), (1,)), denial=DENIED)
    assert response == AlterResponse(0, True, DENIED, [(ONE, DENIED), (("nowhere", 0), DENIED)])
    assert not list(world.directory.iterdir()), "nothing is journaled"
    assert world.stats.reassignment_requests == {"refused": 1}
    assert world.request() == AlterResponse(0, True, Outcome(0, ""), []), "nothing is to be decided"
    assert told(world.request((ONE, (2, 3)), version=0)) == [0]
    assert told(world.request((ONE, None), denial=DENIED)) == [31]
    assert moves(world) == {ONE: (2, 3)}
    world.run()
    assert world.cluster.partitions[ONE].now().replicas == (2, 3)


def test_refusal_of_all_comes_back_for_every_partition_and_nothing_stays(world: World) -> None:
    refusal = AlterResponse(0, True, DENIED, [(ONE, DENIED)])
    response = world.request((ONE, (2, 3)), (("nowhere", 0), (1,)), refusal=refusal)
    assert response == refusal._replace(partitions=[(ONE, DENIED), (("nowhere", 0), DENIED)])
    assert moves(world) == {}
    assert world.cluster.partitions[ONE].now().replicas == (0, 1)


def test_request_without_a_possible_step_is_validated_all_the_same(world: World) -> None:
    world.request((ONE, (2, 3)), (TWO, (2, 3)))
    response = world.request((THREE, (2, 3)), denial=DENIED)
    assert world.sent == {}
    assert response.partitions == [(THREE, DENIED)]
    assert THREE not in moves(world)


def test_refusal_of_one_partition_is_told_and_the_others_go_on(world: World) -> None:
    refused = Outcome(39, "no")
    refusal = AlterResponse(0, True, Outcome(), [(ONE, refused), (TWO, Outcome())])
    response = world.request((ONE, (2, 3)), (TWO, (2, 3)), refusal=refusal)
    assert response == refusal
    assert moves(world) == {TWO: (2, 3)}


@pytest.mark.parametrize("code", [7, 41])
def test_request_with_unknown_outcome_is_kept(world: World, code: int) -> None:
    outcome = Outcome(code, "who knows")
    world.request((ONE, (2, 3)), refusal=AlterResponse(0, True, outcome, [(ONE, outcome)]))
    assert moves(world) == {ONE: None}
    for _ in range(40):
        world.round()
    assert moves(world) == {}, "it was not done"


def test_step_that_was_taken_without_a_response_goes_on(world: World) -> None:
    world.request((ONE, (2, 3)), lost=True)
    assert moves(world) == {ONE: None}
    world.run()
    assert world.cluster.partitions[ONE].now().replicas == (2, 3)


def test_partly_taken_request_without_a_response_goes_on_as_a_whole(world: World) -> None:
    """The third partition has to wait for its turn: nothing of it can be seen in the cluster."""
    world.request((ONE, (2, 3)), (TWO, (2, 3)), (THREE, (2, 3)), lost=True)
    world.run()
    for key in (ONE, TWO, THREE):
        assert world.cluster.partitions[key].now().replicas == (2, 3)
    assert world.stats.reassignment_ends == {"done": 3}


def test_cancel_that_was_done_without_a_response_holds(world: World) -> None:
    world.request((ONE, (2, 3)))
    world.round()
    world.request((ONE, None), lost=True)
    world.run()
    assert world.cluster.partitions[ONE].now().replicas == (0, 1)
    assert world.stats.reassignment_ends == {"cancelled": 1}


def test_request_beside_one_that_is_not_judged_is_refused_in_the_end(world: World) -> None:
    world.request((ONE, (2, 3)), lost=True)
    assert told(world.request((ONE, (2, 3)), (TWO, (2, 3)))) == [60, 0]
    assert moves(world) == {ONE: None, TWO: (2, 3)}


def test_request_waits_for_one_that_is_not_judged_yet(world: World) -> None:
    """A client whose connection was lost asks again at once; brokers take one request after the other."""
    world.request((ONE, (2, 3)), (TWO, (2, 3)), (THREE, (2, 3)), lost=True)
    world.conflict_wait_seconds_max = 30.0

    async def both() -> AlterResponse:
        again = asyncio.create_task(world.request_while((ONE, (2, 3)), (TWO, (2, 3)), (THREE, (4, 5))))
        while not again.done():
            await world.round_while()
            await asyncio.sleep(0.05)
        return await again

    assert told(asyncio.run(both())) == [0, 0, 0]
    assert world.sent == {}, "what is under way is left alone"
    world.run()
    assert world.cluster.partitions[THREE].now().replicas == (4, 5)


def test_topic_that_brokers_do_not_know_yet_is_looked_for_again(world: World) -> None:
    """The controller has created it, and a broker's picture of the cluster is a moment older."""
    world.conflict_wait_seconds_max = 30.0
    new = ("new", 0)

    async def both() -> AlterResponse:
        asked = asyncio.create_task(world.request_while((new, (2, 3)), (ONE, (2, 3))))
        await asyncio.sleep(0.1)
        world.cluster.create(new, (0, 1))
        return await asked

    assert told(asyncio.run(both())) == [0, 0]
    assert told(world.request((("nowhere", 0), (2, 3)))) == [3], "not for ever"


def test_invalid_request_is_refused_and_not_forwarded(world: World) -> None:
    response = world.request((ONE, (9,)), (TWO, (2, 3)))
    assert world.sent == {TWO: (2, 0)}
    assert told(response) == [39, 0]
    assert moves(world) == {TWO: (2, 3)}


def test_request_without_batched_moves_passes(world: World) -> None:
    response = world.request((ONE, None), (TWO, (0, 1)))
    assert world.sent == {ONE: None, TWO: (0, 1)}
    assert told(response) == [85, 0]
    assert moves(world) == {}


def test_cancel_takes_back_the_step_over_the_callers_connection(world: World) -> None:
    world.request((ONE, (2, 3)))
    world.round()
    response = world.request((ONE, None))
    assert world.sent == {ONE: None}
    assert told(response) == [0]
    assert world.cluster.partitions[ONE].now().replicas == (0, 1)
    world.run(catches_up=False)
    assert world.stats.reassignment_ends == {"cancelled": 1}


def test_cancel_between_two_steps_goes_back_in_steps(world: World) -> None:
    world.request((ONE, (2, 3)))
    world.cluster.catch_up_all()
    response = world.request((ONE, None))
    assert world.sent == {}, "the broker was asked once, whether the caller may"
    assert told(response) == [0]
    world.run()
    assert world.cluster.partitions[ONE].now().replicas == (0, 1)


def test_another_target_holds_from_the_next_step_on(world: World) -> None:
    world.request((ONE, (2, 3)))
    assert told(world.request((ONE, (4, 5)))) == [0]
    assert world.sent == {}, "the step under way is left alone"
    world.run()
    assert world.cluster.partitions[ONE].now().replicas == (4, 5)


def test_cluster_that_can_not_be_asked_means_a_response_to_try_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(_self: Cluster, _topics: object, **_: object) -> ClusterState:
        raise ClusterError("no broker is reachable")

    monkeypatch.setattr(SimulatedResponses, "read_state", unreachable)
    response = world.request((ONE, (2, 3)))
    assert response.outcome == Outcome(7, "Sluice cannot ask the cluster: no broker is reachable")
    assert told(response) == [7]


def test_request_is_refused_if_the_journal_cannot_be_written(world: World) -> None:
    world.request((TWO, (2, 3)))
    path = world.directory / "journal"
    path.unlink()
    path.mkdir()
    response = world.request((ONE, (2, 3)))
    assert response.outcome.error_code == 56
    assert world.cluster.partitions[ONE].now().replicas == (0, 1)


@pytest.mark.parametrize("place", range(1, 7))
def test_killed_while_a_request_gets_a_response_it_is_done_or_not_at_all(world: World, place: int) -> None:
    world.places, world.kill_at = 0, place
    try:
        world.request((ONE, (2, 3)), (TWO, (3, 2)))
        was_killed = False
    except Killed:
        was_killed = True
    assert was_killed == (place <= 6)
    world.kill_at = 0
    world.start()
    world.run(rounds=60)
    now = world.cluster.partitions[ONE].now(), world.cluster.partitions[TWO].now()
    assert [one.replicas for one in now] in ([(2, 3), (3, 2)], [(0, 1), (0, 1)])
    assert set(world.cluster.copied.values()) <= {1}
    if place >= 4:
        assert now[0].replicas == (2, 3), "a broker has taken it"


def test_late_response_restores_a_request_that_the_executor_removed(world: World) -> None:
    """A channel that was muted for a minute: the executor has struck the request out meanwhile."""
    world.late_rounds = 40
    assert told(world.request((ONE, (2, 3)))) == [0]
    assert world.stats.reassignment_ends == {"refused": 1}
    assert moves(world) == {ONE: (2, 3)}
    world.run()
    assert world.cluster.partitions[ONE].now().replicas == (2, 3)


def test_partition_twice_gets_two_responses_and_the_last_holds(world: World) -> None:
    response = world.request((ONE, (9,)), (ONE, (4, 5)), (ONE, (2, 3)), (ONE, (1, 1)))
    assert world.sent == {ONE: (2, 0)}
    assert told(response) == [39, 0, 0, 39]
    assert moves(world) == {ONE: (2, 3)}
