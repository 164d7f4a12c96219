"""Sizes of replicas: what stays from one reading to the next."""

from proxy.control.reassign.cluster import Sizes

A, B = ("a", 0), ("b", 0)


def test_largest_reading_of_a_partition_stays_while_it_is_moved() -> None:
    assert (Sizes().partition(A), Sizes().replica(1, A)) == (0, 0)
    sizes = Sizes().updated({1: {A: 100, B: 7}, 2: {A: 40}}, [A])
    assert (sizes.partition(A), sizes.partition(B)) == (100, 0), "b is not moved"
    sizes = sizes.updated({2: {A: 90}}, [A, B])
    assert (sizes.partition(A), sizes.replica(1, A), sizes.replica(2, A)) == (100, 0, 90)
    assert sizes.updated({2: {A: 120}}, [A]).partition(A) == 120
    assert sizes.updated({}, [B]).largest == {B: 0}
