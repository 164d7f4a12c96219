"""A follower's quota over three leaders' processes: how much it gets, and that it never gets more (issue 5, point 4).

Virtual time; quota 4 MB/s, batches of 100 kB, leases of 5 s. Every bound says what it is made of.
"""

import pytest

from tests.simulation.lease_world import LeaseWorld

Q = 4_000_000
BATCH = 100_000
NAMES = ("a", "b", "c")
PLENTY = 10**12
LEARNED_MS = 5110 + 2000  # the holder answers after a lease; two periods


def world(seed: int = 1) -> LeaseWorld:
    return LeaseWorld(Q, NAMES, BATCH, seed)


def assert_held(found: LeaseWorld) -> None:
    """No ten seconds bring more than the quota, a full bucket of every process and a batch of each leader.

    All buckets together are a quarter of a second deep, as the one bucket of one process is.
    """
    assert found.largest(10_000) <= 10.25 * Q + len(NAMES) * BATCH
    assert found.largest(1_000) <= 1.25 * Q + len(NAMES) * BATCH


@pytest.mark.parametrize("seed", range(3))
def test_all_load_at_one_leader_gets_nearly_all(seed: int) -> None:
    found = world(seed)
    found.run(LEARNED_MS)
    found.sidecars["b"].supply = PLENTY
    found.run(2000)  # two periods
    found.run(30_000)
    assert found.rate(LEARNED_MS + 2000, found.now_ms) >= 0.95 * Q
    assert_held(found)


@pytest.mark.parametrize("loaded", [("a", "b"), NAMES])
def test_loads_at_several_leaders_share_the_whole_quota_equally(loaded: tuple[str, ...]) -> None:
    found = world()
    for name in loaded:
        found.sidecars[name].supply = PLENTY
    found.run(60_000)
    assert found.rate(20_000, 60_000) >= 0.95 * Q
    for name in loaded:
        came = sum(size for at, size, who in found.arrivals if who == name and at >= 20_000)
        assert came == pytest.approx(found.rate(20_000, 60_000) * 40 / len(loaded), rel=0.05)
    assert_held(found)


def test_rate_that_a_slow_leader_cannot_use_goes_to_the_others() -> None:
    found = world()
    for name in NAMES:
        found.sidecars[name].supply = PLENTY
    found.sidecars["c"].pace = 400_000
    found.run(60_000)
    # It sends 0.1 of the quota and keeps 0.2: twice what it uses, to notice when it can send more.
    assert found.rate(20_000, 60_000) >= 0.85 * Q
    assert_held(found)


def test_load_that_moves_from_leader_to_leader_never_adds_up() -> None:
    found = world()
    found.run(LEARNED_MS)
    for turn in range(12):
        found.sidecars[NAMES[turn % 3]].supply = 5 * Q
        found.run(6_000)
    assert_held(found)
    assert found.rate(LEARNED_MS, found.now_ms) >= 0.7 * Q


def test_holder_that_is_gone_leaves_equal_shares() -> None:
    found = world()
    found.sidecars["a"].supply = PLENTY
    found.run(20_000)
    found.book = None
    found.run(5_000)
    assert found.sidecars["a"].peer.share(9, found.now_ms) == pytest.approx(1 / 3)
    found.run(30_000)
    assert found.rate(30_000, 55_000) == pytest.approx(Q / 3, rel=0.06)  # (N - 1) / N is lost
    found.start_holder()
    found.run(LEARNED_MS + 20_000)
    assert found.rate(found.now_ms - 15_000, found.now_ms) >= 0.95 * Q
    assert_held(found)


def test_lost_peer_has_its_equal_share_and_the_others_the_rest() -> None:
    found = world()
    for name in NAMES:
        found.sidecars[name].supply = PLENTY
    found.sidecars["b"].supply = 0
    found.run(20_000)
    found.sidecars["c"].online = False
    found.run(40_000)
    lost = sum(size for at, size, who in found.arrivals if who == "c" and at >= 30_000) / 30
    assert lost == pytest.approx(Q / 3, rel=0.06)
    assert found.rate(30_000, 60_000) >= 0.93 * Q
    assert_held(found)


@pytest.mark.parametrize("seed", range(6))
def test_faults_of_every_kind_never_add_up_to_more(seed: int) -> None:
    found = world(seed)
    found.loss = 0.2
    dice = found.dice
    for _ in range(100):
        chance = dice.random()
        sidecar = found.sidecars[dice.choice(NAMES)]
        if chance < 0.3:
            sidecar.supply += int(dice.random() * 4 * Q)
        elif chance < 0.4:
            sidecar.online = not sidecar.online
        elif chance < 0.47:
            found.book = None
        elif chance < 0.6:
            found.start_holder()
        found.run(dice.randint(100, 4_000))
    assert_held(found)
