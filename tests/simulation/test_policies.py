"""Both policies in a closed loop: rate, burst, fairness and waits against bars of their own.

Quota 2 MB/s, requests of 1 MB, 45 s, as `make accuracy` measures it on real brokers. Every test's numbers come from a
seeded world; a failure names the seed.
"""

from dataclasses import replace
from itertools import pairwise

import pytest

from quotas.definitions.definitions import Definitions
from quotas.engine import Engine
from quotas.options import Policy
from tests.simulation.kafka_broker import KafkaGate, KafkaSensor
from tests.simulation.quota_world import ClientOptions, World, client_limits, gates_of, one_client

MB = 1_000_000
LIMIT = 2.0 * MB
SEEDS = (1, 2, 3)
HOLD_MS, MUTE_MS, LATE_MS = 15_000, 20_000, 2


def limits(rate: float = LIMIT) -> Definitions:
    return Definitions(static=client_limits(rate))


def engine(policy: Policy = "schedule", limit: float = LIMIT) -> Engine:
    return one_client(limit, policy=policy)


def new_world(seed: int = 1, limit: float = LIMIT) -> World:
    return World(gates_of(engine("schedule", limit)), seed)


def ran(until_ms: int, options: ClientOptions, times: int = 1, seed: int = 1, limit: float = LIMIT) -> World:
    """A world that has run with so many clients of one kind."""
    world = new_world(seed, limit)
    world.add(options, times)
    world.run(until_ms)
    return world


def world_of(clients: int, options: ClientOptions, seed: int, stagger_ms: int = 0) -> World:
    world = new_world(seed)
    for number in range(clients):
        world.add(replace(options, start_ms=number * stagger_ms // max(1, clients)))
    world.run(45_000)
    return world


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("stagger_ms", [0, 1000])
@pytest.mark.parametrize("obeys", [True, False], ids=["obeys", "ignores"])
@pytest.mark.parametrize(
    ("consumes", "in_flight"), [(False, 1), (False, 5), (True, 1)], ids=["produce", "produce5", "fetch"]
)
@pytest.mark.parametrize("clients", [1, 5, 20])
def test_schedule_keeps_every_bar(
    clients: int, consumes: bool, in_flight: int, obeys: bool, stagger_ms: int, seed: int
) -> None:
    options = ClientOptions(consumes=consumes, obeys=obeys, in_flight=in_flight)
    world = world_of(clients, options, seed, stagger_ms)
    first_ms = world.records[0].at_ms
    assert world.ratio(LIMIT, 15_000, 45_000) == pytest.approx(1.0, abs=0.02)
    assert world.ratio(LIMIT, first_ms, first_ms + 1000) <= 2.5  # burst, that second's quota, one request
    assert world.largest_second(LIMIT) <= 2.5
    assert world.jain() >= 0.98
    assert world.waits.hold_ms <= HOLD_MS + LATE_MS
    assert world.waits.mute_ms <= MUTE_MS
    if in_flight == 1:  # otherwise a request waits in the socket behind the others of its own client
        assert world.waits.latency_ms < 30_000


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("obeys", [True, False], ids=["obeys", "ignores"])
def test_sixty_producers_start_at_once(obeys: bool, seed: int) -> None:
    # 60 requests make 30 s of quota: more than hold_seconds_max, so some are refused and come again.
    world = world_of(60, ClientOptions(obeys=obeys), seed)
    assert world.waits.refused > 0
    assert world.largest_second(LIMIT) <= 2.5
    assert world.ratio(LIMIT, 15_000, 45_000) == pytest.approx(1.0, abs=0.02)
    assert all(world.per_client())  # 92 requests in 45 s: all have one, some have two
    assert world.waits.hold_ms <= HOLD_MS + LATE_MS


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("obeys", [True, False], ids=["obeys", "ignores"])
def test_sixty_consumers_start_at_once(obeys: bool, seed: int) -> None:
    world = world_of(60, ClientOptions(consumes=True, obeys=obeys), seed)
    assert world.ratio(LIMIT, 0, 1000) <= 2.5
    assert world.ratio(LIMIT, 15_000, 45_000) == pytest.approx(1.0, abs=0.02)
    # 92 MB among 60: some have one request and some two, none three. (Jain cannot exceed 0.92 here.)
    assert max(world.per_client()) - min(world.per_client()) <= MB


@pytest.mark.parametrize("limit", [5.0 * MB, 20.0 * MB, 80.0 * MB])
@pytest.mark.parametrize("size", [16_000, MB])
def test_hundred_fetches_of_unknown_size_bring_no_more_than_burst_and_quota(limit: float, size: int) -> None:
    # All at once, each a new connection; a batch is no larger than brokers accept by default.
    world = ran(5000, ClientOptions(size=size, consumes=True), times=100, limit=limit)
    assert world.largest_second(limit) <= 2 + size / limit  # burst, that second's quota, one request


@pytest.mark.parametrize(
    ("clients", "limit", "times"), [(20, 2.0 * MB, 2), (20, 10.0 * MB, 1), (100, 80.0 * MB, 1)]
)
def test_consumers_far_below_their_quota_hardly_wait_when_they_start_at_once(
    clients: int, limit: float, times: int
) -> None:
    # 16 kB twice a second each: a third of the quota, or less.
    options = ClientOptions(size=16_000, max_bytes=16_000, consumes=True, think_ms=500)
    world = ran(5000, options, times=clients, limit=limit)
    # Ten or eleven may be with the broker at a time: a batch may be larger than what they ask for.
    assert world.waits.mute_ms <= 100
    # A client that was told to wait asks again half a second later here.
    first_ms = {record.client: record.at_ms for record in reversed(world.records)}
    assert len(first_ms) == clients
    assert max(first_ms.values()) <= 20 + 600 * times


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("limit", [2.0 * MB, 20.0 * MB])
def test_hundred_consumers_of_small_batches_get_the_quota_from_the_start(limit: float, seed: int) -> None:
    # The first ones bring half a second's quota each; with a hundred that wait the next may bring a batch or a few.
    world = ran(12_000, ClientOptions(size=16_000, consumes=True), times=100, seed=seed, limit=limit)
    ratios = [world.ratio(limit, begin, begin + 2000) for begin in range(2000, 12_000, 2000)]
    assert ratios == pytest.approx([1.0] * 5, abs=0.05)
    assert world.largest_second(limit) <= 2 + 16_000 / limit
    assert world.waits.mute_ms <= 2500


@pytest.mark.parametrize("clients", [100, 140])
def test_beyond_the_bounds_the_rate_holds(clients: int) -> None:
    world = ran(400_000, ClientOptions(), times=clients)
    assert world.largest_second(LIMIT) <= 2.5
    assert world.ratio(LIMIT, 50_000, 400_000) == pytest.approx(1.0, abs=0.02)
    assert all(world.per_client())  # 5.7 MB each on average: no connection starves


def test_one_request_larger_than_all_bounds_holds_the_rate() -> None:
    world = ran(700_000, ClientOptions(size=100 * MB))
    # One request each 50 s, the first one at once.
    assert len(world.records) == 15
    gaps = [after.at_ms - before.at_ms for before, after in pairwise(world.records)]
    assert all(gap >= 50_000 - 1000 for gap in gaps)


def test_sixty_producers_of_large_requests_hold_the_rate() -> None:
    # 300 MB at 2 MB/s: each needs two and a half minutes for its turn, whatever it tries.
    world = ran(600_000, ClientOptions(size=5 * MB), times=60)
    assert world.largest_second(LIMIT) <= (2 + 2 + 5) / 2  # burst, that second's quota, one request
    assert world.ratio(LIMIT, 0, 600_000) <= 1.0 + (2 + 5) / 1200
    assert world.ratio(LIMIT, 15_000, 600_000) >= 0.98


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_batch_larger_than_any_window_still_arrives(policy: Policy) -> None:
    world = World(gates_of(engine(policy)))
    world.add(ClientOptions(size=30 * MB, consumes=True))
    world.run(200_000)
    assert len(world.records) >= 8


@pytest.mark.parametrize("consumes", [False, True], ids=["produce", "fetch"])
@pytest.mark.parametrize(("large", "small"), [(1, 1), (1, 9), (9, 1), (10, 10)])
def test_mixed_sizes_share_equally_in_bytes(large: int, small: int, consumes: bool) -> None:
    world = new_world()
    world.add(ClientOptions(consumes=consumes), large)
    world.add(ClientOptions(consumes=consumes, size=16_384), small)
    world.run(60_000)
    assert world.ratio(LIMIT, 15_000, 60_000) == pytest.approx(1.0, abs=0.02)
    totals = world.per_client()
    mean = sum(totals) / len(totals)
    assert all(abs(total - mean) <= 0.05 * mean + 2 * MB for total in totals)


@pytest.mark.parametrize("closes", [True, False], ids=["closes", "idles"])
@pytest.mark.parametrize("consumes", [False, True], ids=["produce", "fetch"])
def test_share_of_stopped_clients_goes_to_the_others(consumes: bool, closes: bool) -> None:
    world = new_world()
    world.add(ClientOptions(consumes=consumes), 10)
    world.add(ClientOptions(consumes=consumes, stop_ms=20_000, closes=closes), 10)
    world.run(60_000)
    # Mutes that were told before last at most one cycle of ten seconds; then the ten have all of it.
    assert world.ratio(LIMIT, 30_000, 60_000) == pytest.approx(1.0, abs=0.03)


def test_moderate_clients_beside_greedy_ones_leave_no_capacity_unused() -> None:
    world = new_world()
    world.add(ClientOptions(size=16_000, think_ms=100), 10)
    world.add(ClientOptions(), 2)
    world.run(45_000)
    assert world.ratio(LIMIT, 15_000, 45_000) == pytest.approx(1.0, abs=0.02)


def test_clients_under_the_quota_are_left_alone() -> None:
    world = ran(45_000, ClientOptions(size=16_000, think_ms=100), times=10)
    assert (world.waits.hold_ms, world.waits.mute_ms) == (0, 0)


@pytest.mark.parametrize("obeys", [True, False], ids=["obeys", "ignores"])
@pytest.mark.parametrize("consumes", [False, True], ids=["produce", "fetch"])
def test_group_members_come_back_early_and_keep_their_slot(consumes: bool, obeys: bool) -> None:
    options = ClientOptions(consumes=consumes, obeys=obeys, group_session_timeout_ms=10_000)
    world = ran(45_000, options, times=20)
    assert world.waits.mute_ms < 3334
    assert world.ratio(LIMIT, 15_000, 45_000) == pytest.approx(1.0, abs=0.02)
    assert world.jain() >= 0.98


@pytest.mark.parametrize("consumes", [False, True], ids=["produce", "fetch"])
def test_late_timers_and_long_round_trips_cost_no_capacity(consumes: bool) -> None:
    world = World(gates_of(engine()), timer_late_ms=50, latency_ms=(5, 60))
    world.add(ClientOptions(consumes=consumes), 20)
    world.run(45_000)
    assert world.ratio(LIMIT, 15_000, 45_000) == pytest.approx(1.0, abs=0.02)
    assert world.jain() >= 0.98


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_raised_quota_is_used_as_soon_as_channels_ask_again(policy: Policy) -> None:
    quotas = engine(policy)
    world = World(gates_of(quotas))
    world.add(ClientOptions(), 5)
    world.at(20_000, lambda: quotas.update(quotas.options, limits(2 * LIMIT), world.now_ms))
    world.run(60_000)
    within = 0.02 if policy == "schedule" else 0.3
    assert world.ratio(2 * LIMIT, 35_000, 60_000) == pytest.approx(1.0, abs=within)


def test_policy_and_mode_change_under_load_without_a_stall() -> None:
    quotas = engine("kip13")
    world = World(gates_of(quotas))
    world.add(ClientOptions(), 5)
    options = quotas.options
    world.at(20_000, lambda: quotas.update(replace(options, policy="schedule"), limits(), world.now_ms))
    world.at(60_000, lambda: quotas.update(replace(options, mode="observe"), limits(), world.now_ms))
    world.at(61_000, lambda: quotas.update(replace(options, policy="schedule"), limits(), world.now_ms))
    world.run(100_000)
    assert world.ratio(LIMIT, 40_000, 60_000) == pytest.approx(1.0, abs=0.03)
    assert world.ratio(LIMIT, 60_000, 61_000) > 3
    assert world.ratio(LIMIT, 70_000, 100_000) == pytest.approx(1.0, abs=0.03)


# -- kip13 against Kafka's own arithmetic


def kafka(clients: int, consumes: bool, seed: int = 1) -> World:
    sensor = KafkaSensor(LIMIT)
    return run(World(lambda _options: KafkaGate(sensor), seed, kafka=True), clients, consumes)


def kip13(clients: int, consumes: bool, seed: int = 1) -> World:
    return run(World(gates_of(engine("kip13")), seed), clients, consumes)


def run(world: World, clients: int, consumes: bool) -> World:
    world.add(ClientOptions(consumes=consumes, max_bytes=MB), clients)
    world.run(45_000)
    return world


# 20 and more: Kafka mutes for longer than the 20 s at which we stop.
@pytest.mark.parametrize("clients", [1, 5, 10, 19])
def test_kip13_producers_are_kafkas_to_the_byte(clients: int) -> None:
    ours, theirs = kip13(clients, consumes=False), kafka(clients, consumes=False)
    passed = [[(record.at_ms, record.size) for record in world.records] for world in (ours, theirs)]
    assert passed[0] == passed[1]


@pytest.mark.parametrize(("clients", "measured"), [(1, 0.85), (5, 1.09), (10, 1.24)])
def test_kip13_producers_have_the_ratios_measured_on_kafka(clients: int, measured: float) -> None:
    ratios = [kip13(clients, consumes=False, seed=seed).ratio(LIMIT, 15_000, 45_000) for seed in SEEDS]
    assert sum(ratios) / len(ratios) == pytest.approx(measured, abs=0.15)


@pytest.mark.parametrize("clients", [1, 5, 20, 60])
def test_kip13_consumers_are_as_far_under_their_quota_as_kafkas(clients: int) -> None:
    ours, theirs = kip13(clients, consumes=True), kafka(clients, consumes=True)
    ratio = theirs.ratio(LIMIT, 15_000, 45_000)
    assert 0.55 <= ratio <= 0.8  # measured on Kafka 4.1: 0.60, 0.57, 0.58
    assert ours.ratio(LIMIT, 0, 1000) == pytest.approx(theirs.ratio(LIMIT, 0, 1000), abs=1.0)
    if clients <= 20:
        assert ours.ratio(LIMIT, 15_000, 45_000) == pytest.approx(ratio, abs=0.05)


def test_kip13_consumers_share_as_kafkas_do() -> None:
    # When the window forgets a burst, the client that asks first takes it: 0.5 or 0.9 is chance, with Kafka as well.
    ours = [kip13(20, consumes=True, seed=seed).jain() for seed in range(1, 9)]
    theirs = [kafka(20, consumes=True, seed=seed).jain() for seed in range(1, 9)]
    assert (min(ours) < 0.6, max(ours) > 0.85) == (True, True)
    assert (min(theirs) < 0.6, max(theirs) > 0.85) == (True, True)
    assert sum(ours) / 8 == pytest.approx(sum(theirs) / 8, abs=0.15)
