"""Strategies for reassignments: where replicas lie, and the limits of steps."""

from hypothesis import strategies as st

from quotas.reassignment.batch import BatchLimits


def replica_lists(brokers: int, factor_max: int) -> st.SearchStrategy[tuple[int, ...]]:
    """The replicas of a partition: some of the brokers 0, 1, ..., in any order."""
    return st.permutations(range(brokers)).flatmap(
        lambda order: st.integers(1, factor_max).map(lambda size: tuple(order[:size]))
    )


def batch_limits(replicas_max: int, movements_max: int) -> st.SearchStrategy[BatchLimits]:
    """All limits, small enough to be reached."""
    return st.builds(
        BatchLimits,
        parallel_replica_count=st.integers(1, replicas_max),
        parallel_partition_count=st.integers(1, 4),
        parallel_leader_movements=st.integers(1, 3),
        max_concurrent_replica_movements=st.integers(1, movements_max),
        max_movements_in_per_broker=st.none() | st.integers(1, 3),
        max_movements_out_per_broker=st.none() | st.integers(1, 3),
    )
