"""A simulated cluster with two partitions that are moved, and where the moves are to end."""

from quotas.reassignment.step import Move
from tests.support.executor_world import World
from tests.support.reassigned_cluster import SimulatedCluster

FIRST = Move("t", 0, (0, 1, 2), (3, 4, 5))
SECOND = Move("t", 1, (1, 2), (2, 3))
MOVES = (FIRST, SECOND)
WANTED_COPIES = {(FIRST.key, 3), (FIRST.key, 4), (FIRST.key, 5), (SECOND.key, 3)}


def cluster() -> SimulatedCluster:
    """Six brokers, and the partitions of both moves."""
    found = SimulatedCluster(6)
    found.create(FIRST.key, FIRST.original, min_isr=2)
    found.create(SECOND.key, SECOND.original)
    return found


def assert_moved(found: SimulatedCluster) -> None:
    """Both moves have ended at their targets."""
    for move in MOVES:
        now = found.partitions[move.key].now()
        assert (now.replicas, now.leader, set(now.isr)) == (move.target, move.target[0], set(move.target))
        assert not now.is_reassigned


def assert_moved_once(found: SimulatedCluster) -> None:
    """Both moves have ended at their targets, and no copy was made twice or in vain."""
    assert_moved(found)
    assert found.copied == dict.fromkeys(WANTED_COPIES, 1)


def rounds(world: World, count: int) -> None:
    """So many rounds, after each of which all replicas catch up."""
    for _ in range(count):
        world.round()
        world.cluster.catch_up_all()
