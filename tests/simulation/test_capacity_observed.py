"""A capacity while quotas are only observed: nothing waits, and what is predicted follows the predicted allowances."""

from quotas.definitions.classes import Terms
from quotas.definitions.kinds import PRODUCER_BYTE_RATE
from quotas.options import EngineOptions
from tests.simulation.capacity_world import MB, CapacityWorld

SECONDS = 60


def observed(capacity: float) -> CapacityWorld:
    """A and b send 3 and 6 MB/s, whatever is decided; a is promised 4, and b is promised 2 MB/s."""
    world = CapacityWorld(capacity, {"a": Terms(4 * MB, 8 * MB), "b": Terms(2 * MB, 8 * MB)})
    for worker in world.workers:
        options = EngineOptions(policy="schedule", scope="cluster", mode="observe")
        worker.engine.update(options, world.definitions, 0)
    # Each connection sends 100 kB, and some 7 ms of latency later waits so long that it sends 0.5 MB/s.
    world.add("a", 6, think_ms=193)
    world.add("b", 12, think_ms=193)
    world.world.run(SECONDS * 1000)
    return world


def would_wait(world: CapacityWorld, client_id: str) -> float:
    """The part of the time that a client's connections would have waited, of one of them."""
    channels = {"a": 6, "b": 12}[client_id]
    views = [view for view in world.workers[0].engine.views(SECONDS * 1000) if view.client_id == client_id]
    return sum(view.would_throttle_ms_total for view in views) / (SECONDS * 1000) / channels


def has(world: CapacityWorld) -> dict[str | None, tuple[float, float]]:
    """What each class would have of its rate, and beyond it, in MB/s."""
    (state,) = world.capacities.states()
    return {one.bucket.client_id: (one.rate / MB, one.lent / MB) for one in state.classes if one.bucket}


def test_class_beyond_its_allowance_would_wait_and_the_other_would_not() -> None:
    world = observed(8 * MB)
    passed = {name: world.rate_of(name, 10_000, SECONDS * 1000) / MB for name in "ab"}
    assert 2.6 < passed["a"] < 3.1
    assert 5.2 < passed["b"] < 6.1
    found = has(world)
    # a uses 3 of its 4; b has its 2 and what is left of 8, about 3.
    assert 2.5 < found["a"][0] <= 4
    assert found["b"][0] == 2
    assert 2.4 < found["b"][1] < 3.5
    assert would_wait(world, "a") < 0.01
    assert would_wait(world, "b") > 0.5  # mutes run while it prepares its next request, so they are long


def test_none_would_wait_where_the_capacity_is_large_enough() -> None:
    world = observed(20 * MB)
    assert sum(has(world)["b"]) > 5.2
    assert would_wait(world, "a") < 0.01
    # In the first second, until it may borrow: what would wait is a demand, as what waits is.
    assert would_wait(world, "b") < 0.02
    assert world.definitions.capacities[PRODUCER_BYTE_RATE].rate == 20 * MB
