"""quotas.reassignment.estimate: the proposal's own arithmetic, and what it leaves out."""

import pytest

from quotas.reassignment.estimate import Replicated, estimate

MB = 1_000_000


def cluster(size: int = 50 * MB, rate: float = 0.0, partitions: int = 4) -> dict[tuple[str, int], Replicated]:
    """Partitions on brokers 1 and 2, led by 1."""
    return {("t", number): Replicated((1, 2), 1, size, rate) for number in range(partitions)}


def test_estimate_equals_the_proposals_example() -> None:
    moved = estimate(cluster(), {("t", 0): (1, 3), ("t", 1): (1, 3)}, brokers=3)
    assert moved.move_ratio == 0.5  # 2 of 4
    # 0.5 · (4 · 2 · 50 MB) / 10 MB/s
    assert moved.move_seconds(10 * MB) == 20
    # Broker 1 sends 2 · 50 MB, broker 3 receives them.
    assert moved.seconds(10 * MB) == 10
    assert moved.size == 100 * MB
    assert [(load.broker, load.role, load.size) for load in moved.loads] == [
        (1, "leader", 100 * MB),
        (3, "follower", 100 * MB),
    ]


def test_writes_slow_the_move() -> None:
    moved = estimate(cluster(rate=1 * MB), {("t", 0): (1, 3)}, brokers=3)
    assert moved.seconds(2 * MB) == 50  # 50 MB / (2 - 1) MB/s
    assert moved.bytes_in_max == 4 * MB
    assert moved.move_seconds(5 * MB) == 100  # 0.25 · 400 MB / (5 - 4) MB/s


def test_move_that_never_finishes_is_named() -> None:
    moved = estimate(cluster(rate=1 * MB), {("t", 0): (1, 3)}, brokers=3)
    assert moved.seconds(1 * MB) == float("inf")
    assert [(load.broker, load.role) for load in moved.stuck(1 * MB)] == [(1, "leader"), (3, "follower")]


def test_throttle_for_a_duration_is_the_estimate_turned_round() -> None:
    moved = estimate(cluster(rate=1 * MB), {("t", 0): (3, 4)}, brokers=4)
    throttle = moved.throttle_for(100)
    assert throttle == 3 * MB  # the leader sends 2 · 50 MB in 100 s, and 2 · 1 MB/s
    assert moved.seconds(throttle) == pytest.approx(100)


def test_bounds_of_the_throttle() -> None:
    moved = estimate(cluster(rate=1 * MB), {("t", 0): (1, 3)}, brokers=3)
    assert moved.bounds(None) == (4 * MB, None)
    assert moved.bounds(100 * MB) == (4 * MB, 98 * MB)  # N - IN / R = 100 - 4 / 2


def test_response_sizes_of_the_proposals_examples() -> None:
    moved = estimate(cluster(), {}, brokers=5)
    # 5 brokers, 1 MB/s, 10 MB: 5 · 10 / (1 · 5) = 10 s, whatever the network (GbE, 100 MB/s) is.
    assert moved.response_seconds(1 * MB, 10 * MB, 100 * MB) == 10
    moved = estimate(cluster(), {}, brokers=500)
    # 500 brokers: the network is the bottleneck, and 2 MB the most: 500 · 2 / 100 = 10 s.
    assert moved.response_seconds(1 * MB, 2 * MB, 100 * MB) == 10


def test_nothing_to_move_takes_no_time() -> None:
    moved = estimate(cluster(), {("t", 0): (2, 1)}, brokers=3)  # another order
    assert (moved.partitions_moved, moved.replicas_added) == (0, 0)
    assert moved.seconds(1) == moved.move_seconds(1) == moved.throttle_for(1) == 0


def test_partition_without_a_leader_is_sent_by_its_first_replica() -> None:
    moved = estimate({("t", 0): Replicated((2, 1), -1, 100, 0.0)}, {("t", 0): (3,)}, brokers=3)
    assert moved.loads[0].broker == 2
