"""New names below a default before a capacity that others use up: honest ones begin soon, invented ones gain little."""

from functools import partial

import pytest

from quotas.definitions.classes import NEWCOMERS_BURST_SECONDS, SHARED_BURST_SECONDS, UNPROMISED_PART, Terms
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.kinds import PRODUCE
from tests.simulation.capacity_world import MB, CapacityWorld

RATE = 8 * MB
BEGIN_MS = 20_000
SIZE = 50_000
SECONDS = 20
SAVED = 100_000


def world_of(default: float, *, members: int = 1, workers: int = 1, promised: int = 4 * MB) -> CapacityWorld:
    """A capacity all of which a class with a promised rate uses, and a default for other client ids."""
    world = CapacityWorld(RATE, {"a": Terms(promised, RATE)}, members=members, workers=workers)
    world.definitions.put(Entity(client_id=DEFAULT), {PRODUCE.key: default}, "test")
    world.add("a", 8)
    return world


def begun(world: CapacityWorld, until_ms: int) -> int:
    """How many other client ids have passed a request."""
    return len({world.names[one.client] for one in world.world.records if one.at_ms < until_ms} - {"a"})


@pytest.mark.parametrize(("members", "workers"), [(1, 1), (1, 4), (2, 2)])
def test_one_new_client_begins_at_once(members: int, workers: int) -> None:
    world = world_of(1 * MB, members=members, workers=workers)
    for number in range(10):
        world.add(f"new-{number}", size=SIZE, start_ms=BEGIN_MS + 1000 * number)
    world.world.run(BEGIN_MS + 10_000)
    for number in range(10):
        name = f"new-{number}"
        first_ms = min(one.at_ms for one in world.world.records if world.names[one.client] == name)
        assert first_ms <= BEGIN_MS + 1000 * (number + 1)


@pytest.mark.parametrize(("members", "workers", "least"), [(1, 1, 40), (1, 4, 14), (2, 2, 14)])
def test_many_new_clients_begin_together_within_the_capacity(members: int, workers: int, least: int) -> None:
    """200 first requests are 1.25 s of the capacity. Processes that begin may not send a whole burst each."""
    world = world_of(1 * MB, members=members, workers=workers)
    for number in range(200):
        world.add(f"new-{number}", size=SIZE, start_ms=BEGIN_MS)
    world.world.run(BEGIN_MS + 10_000)
    assert begun(world, BEGIN_MS + 1000) >= least
    assert begun(world, BEGIN_MS + 10_000) >= 100
    # All of them are promised 200 MB/s. Beyond a burst, one request of each may pass (docs/policies.md).
    at_once = NEWCOMERS_BURST_SECONDS * UNPROMISED_PART + SHARED_BURST_SECONDS
    requests = begun(world, BEGIN_MS + 10_000) * SIZE / RATE
    assert world.world.ratio(RATE, BEGIN_MS, BEGIN_MS + 10_000) <= 1.02 + (at_once + requests) / 10


@pytest.mark.parametrize("promised", [4 * MB, RATE], ids=["half is promised", "all is promised"])
@pytest.mark.parametrize("stays_ms", [1, 2000], ids=["once", "some requests"])
def test_a_new_name_for_each_request_takes_a_bounded_part(promised: int, stays_ms: int) -> None:
    world = world_of(0.01 * MB, promised=promised)
    for number in range(2000):
        start_ms = BEGIN_MS + 10 * number
        world.add(f"new-{number}", size=1 * MB, start_ms=start_ms, stop_ms=start_ms + stays_ms)
    world.world.run(BEGIN_MS + SECONDS * 1000)
    passed = [one for one in world.world.records if one.at_ms >= BEGIN_MS and world.names[one.client] != "a"]
    # By weight they have a half of what is left. What all of them may have at once, and one request, come on top.
    part = max(UNPROMISED_PART, (RATE - promised) / 2 / RATE)
    at_once = NEWCOMERS_BURST_SECONDS * UNPROMISED_PART * RATE + 1 * MB
    assert sum(one.size for one in passed) <= 1.05 * part * RATE * SECONDS + at_once
    assert world.rate_of("a", BEGIN_MS, BEGIN_MS + SECONDS * 1000) >= 0.95 * promised


def passed(world: CapacityWorld, until_ms: int) -> float:
    """The bytes that all names but "a" have sent after BEGIN_MS, in proportion to the capacity."""
    records = world.world.records
    sizes = [
        one.size for one in records if BEGIN_MS <= one.at_ms < until_ms and world.names[one.client] != "a"
    ]
    return sum(sizes) / RATE / ((until_ms - BEGIN_MS) / 1000)


@pytest.mark.parametrize(("members", "workers"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("size", [1 * MB, 16 * MB])
@pytest.mark.parametrize("together", [False, True], ids=["in turn", "together"])
def test_a_small_request_first_does_not_excuse_a_large_one(
    members: int, workers: int, size: int, together: bool
) -> None:
    """Names begin with 100 bytes, which the class of new names soon has room for, and go on with one large request."""
    world = world_of(0.1 * MB, members=members, workers=workers)
    for number in range(300):
        start_ms = BEGIN_MS + 50 * number
        world.add(f"new-{number}", size=100, start_ms=start_ms, stop_ms=start_ms + 1)
        large_ms = BEGIN_MS + 15_000 if together else start_ms + 200
        world.add(f"new-{number}", size=size, start_ms=large_ms, stop_ms=large_ms + 1)
    seconds = 30
    until_ms = BEGIN_MS + seconds * 1000
    world.world.run(until_ms)
    # They are promised 30 MB/s, and "a" 4 of 8: they share the other 4. Besides, what new names may have at once is a
    # quarter of a second, and one request more in each process.
    at_once = NEWCOMERS_BURST_SECONDS * UNPROMISED_PART + members * workers * size / RATE
    assert passed(world, until_ms) <= 1.02 * 4 / 8 + at_once / seconds
    assert world.rate_of("a", BEGIN_MS, until_ms) >= 0.97 * 4 * MB


@pytest.mark.parametrize("rest", [1.5 * MB, 4 * MB], ids=["little more than they are promised", "a half"])
def test_a_class_without_an_entry_has_its_rate_with_large_requests(rest: float) -> None:
    """A request is ten seconds of the rate: each waits until it is paid for, or new names pay first."""
    world = CapacityWorld(RATE, {"a": Terms(RATE - rest, RATE - rest), "b": Terms(0.1 * MB, 0.1 * MB)})
    world.definitions.put(Entity(client_id=DEFAULT), {PRODUCE.key: 0.1 * MB}, "test")
    world.add("a", 8)
    for number in range(10):
        world.add(f"new-{number}", size=1 * MB, start_ms=BEGIN_MS)
    world.world.run(BEGIN_MS + 101_000)
    for number in range(10):
        rate = world.rate_of(f"new-{number}", BEGIN_MS + 1000, BEGIN_MS + 101_000)
        assert rate >= 0.79 * 0.1 * MB  # a request is a tenth of what is counted


@pytest.mark.parametrize("closes", [True, False])
def test_a_large_request_that_does_not_come_keeps_no_new_name_waiting(closes: bool) -> None:
    """New names pay first for a large request of a name: they have it back when it does not come."""
    world = world_of(0.1 * MB, promised=RATE)
    clock, engine = world.world, world.workers[0].engine
    world.add("liar", size=100, start_ms=BEGIN_MS - 5000, stop_ms=BEGIN_MS - 4999)
    for number in range(10):
        start_ms = BEGIN_MS + 1000 * (number + 1)
        world.add(f"new-{number}", size=SIZE, start_ms=start_ms, stop_ms=start_ms + 1)

    def announce() -> None:
        throttle = engine.client("", "liar", 1).produce
        flow = throttle.flow()
        flow.missing = 16 * MB
        while decision := throttle.produce(flow, flow.missing, clock.now_ms).hold_until_ms:
            clock.now_ms = decision
        throttle.announce(flow, flow.missing, clock.now_ms)
        if closes:
            throttle.leave(flow, clock.now_ms)

    clock.at(BEGIN_MS, announce)
    clock.run(BEGIN_MS + 12_000)
    assert begun(world, BEGIN_MS + 12_000) == 11


def test_names_that_save_together_do_not_spend_it_at_one_moment() -> None:
    """300 names hold a large request for ten seconds each, close, and send what is saved, all in the same moment."""
    world = world_of(0.1 * MB)
    clock, engine = world.world, world.workers[0].engine
    names = [f"hoard-{number}" for number in range(300)]
    for name in names:
        world.add(name, size=100, start_ms=BEGIN_MS - 10_000, stop_ms=BEGIN_MS - 9999)
    passed_at: list[int] = []

    def hold(name: str) -> None:
        throttle = engine.client("", name, 1).produce
        flow = throttle.flow()
        flow.trusted = flow.missing = 16 * MB
        until_ms = BEGIN_MS + 10_000

        def ask() -> None:
            if clock.now_ms >= until_ms:
                throttle.leave(flow, clock.now_ms)
                spend(name)
            elif due_ms := throttle.produce(flow, 16 * MB, clock.now_ms).hold_until_ms:
                clock.at(min(max(due_ms, clock.now_ms + 50), until_ms), ask)

        ask()

    def spend(name: str) -> None:
        throttle = engine.client("", name, 1).produce
        flow = throttle.flow()
        flow.trusted = 16 * MB
        if not throttle.produce(flow, SAVED, clock.now_ms).hold_until_ms:
            passed_at.append(SAVED)
        throttle.leave(flow, clock.now_ms)

    for name in names:
        clock.at(BEGIN_MS, partial(hold, name))
    clock.run(BEGIN_MS + 11_000)
    # They share the 4 MB/s that the promise leaves: each saves 13 kB/s, all of them 5 s of the capacity.
    assert 0 < sum(passed_at) <= 0.1 * RATE
