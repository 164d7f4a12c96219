"""Moves under random kills, deaths, delays and cancels: they end where they should (I5, I8, I11, I12).

The simulated cluster refuses an override by an assertion, so I5 is checked at every submission.
"""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.config import ReassignmentSettings
from quotas.reassignment.step import Move
from tests.support.executor_world import Killed, World
from tests.support.moves import replica_lists
from tests.support.reassigned_cluster import Completion, RefusedError, SimulatedCluster

BROKERS = 6
ASSIGNMENTS = replica_lists(BROKERS, 3)
EVENTS = st.one_of(
    st.just(("round", 0)),
    st.just(("round", 0)),
    st.tuples(st.just("catch up"), st.integers(0, 5)),
    st.tuples(st.just("catch up"), st.integers(0, 5)),
    st.tuples(st.just("kill"), st.integers(1, 6)),
    st.tuples(st.just("die"), st.integers(0, BROKERS - 1)),
    st.tuples(st.just("come back"), st.integers(0, BROKERS - 1)),
    st.tuples(st.just("cancel"), st.integers(0, 1)),
    st.tuples(st.just("mute"), st.integers(0, 1)),
    st.tuples(st.just("later"), st.integers(1, 20)),
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    ends=st.lists(st.tuples(ASSIGNMENTS, ASSIGNMENTS), min_size=1, max_size=2),
    events=st.lists(EVENTS, max_size=30),
    replica_count=st.integers(1, 3),
    completion=st.sampled_from(get_args(Completion)),
)
def test_moves_end_where_they_should(
    ends: list[tuple[tuple[int, ...], tuple[int, ...]]],
    events: list[tuple[str, int]],
    replica_count: int,
    completion: Completion,
) -> None:
    cluster = SimulatedCluster(BROKERS, completion)
    moves = [Move("t", number, *pair) for number, pair in enumerate(ends)]
    for move in moves:
        cluster.create(move.key, move.original)
    chosen = ReassignmentSettings(parallel_replica_count=replica_count, dead_target_seconds=10)
    cancels = Cancels()
    with TemporaryDirectory() as directory:
        world = World(Path(directory), cluster, chosen)
        world.take(*moves)
        for event, argument in events:
            happen(world, event, argument, cancels)
        in_work = set(world.journal.state.entries)
        # Everything is well again, and then it ends.
        world.kill_at, world.mute = 0, False
        for broker in range(BROKERS):
            cluster.come_back(broker)
        world.run()
        world.kill()
    for move in moves:
        now = cluster.partitions[move.key].now()
        wanted = move.original if move.partition in cancels.with_response else move.target
        if move.partition in cancels.without_response and now.replicas == move.original:
            wanted = move.original
        assert now.replicas == wanted
        assert not now.is_reassigned
        # The leader after a move is not checked here: a broker's death may have changed it.
        if move.key in in_work or not any(event == "die" for event, _ in events):
            assert now.leader == wanted[0]


@dataclass
class Cancels:
    """Partitions by what their callers know: that it is cancelled; or nothing, for Sluice was killed."""

    with_response: set[int] = field(default_factory=set)
    without_response: set[int] = field(default_factory=set)


def happen(world: World, event: str, argument: int, cancels: Cancels) -> None:
    """Let one thing happen."""
    if event == "kill":
        world.kill_at = world.places + argument
    elif event == "mute":
        world.mute = bool(argument)
    elif event == "later":
        world.now_ms += argument * 1000
    else:
        happen_to_brokers(world.cluster, event, argument)
    try:
        if event == "round":
            world.round()
        elif event == "cancel":
            cancel(world, ("t", argument), cancels.with_response)
    except Killed:
        if event == "cancel":
            cancels.without_response.add(argument)
        world.kill()
        world.kill_at = 0
        world.start()


def happen_to_brokers(cluster: SimulatedCluster, event: str, argument: int) -> None:
    """Let one thing happen to the cluster."""
    if event == "die" and len(cluster.live) > 1:
        cluster.die(argument)
    elif event == "come back":
        cluster.come_back(argument)
    elif event == "catch up":
        behind = [(key, broker) for key in cluster.partitions for broker in cluster.behind(key)]
        if behind:
            cluster.catch_up(*behind[argument % len(behind)])


def cancel(world: World, key: tuple[str, int], cancelled: set[int]) -> None:
    """Ask for a cancel, if there is something to cancel."""
    if key not in world.journal.state.entries:
        return
    try:
        response = world.request((key, None))
    except RefusedError:
        return
    entry = world.journal.state.entries.get(key)
    if not response.partitions[0][1].error_code and entry is not None and entry.cancelled:
        cancelled.add(key[1])
