"""A follower's quota over three leaders' processes: how much it gets, and how much it never exceeds (KIP-73).

Virtual time; quota 4 MB/s, batches of 100 kB, leases of 15 s. Every bound says what it is made of.
"""

import pytest

from tests.simulation.follower_world import LEASE_MS, FollowerWorld

Q = 4_000_000
BATCH = 100_000
NAMES = ("a", "b", "c")
PLENTY = 10**12
LEARNED_MS = LEASE_MS + 1000  # a holder that begins raises nothing for a lease
MOVED_MS = 2500  # by then shares have followed the load


def world(seed: int = 1) -> FollowerWorld:
    return FollowerWorld(Q, NAMES, BATCH, seed)


def assert_held(found: FollowerWorld, cut_off: int = 0) -> None:
    """No ten seconds bring more than the quota, a full bucket of every process and a batch of each leader.

    All buckets together are a quarter of a second deep, as the one bucket of one process is. Each member that is cut
    off from a holder which lends to others may add an equal share.
    """
    over = 1 + cut_off / len(NAMES)
    assert found.largest(10_000) <= 10.25 * Q * over + len(NAMES) * BATCH
    assert found.largest(1_000) <= 1.25 * Q * over + len(NAMES) * BATCH


@pytest.mark.parametrize("seed", range(3))
def test_all_load_at_one_leader_gets_nearly_all(seed: int) -> None:
    found = world(seed)
    found.run_for(LEARNED_MS)
    found.sidecars["b"].supply = PLENTY
    found.run_for(MOVED_MS + 30_000)
    assert found.rate(LEARNED_MS + MOVED_MS, found.now_ms) >= 0.95 * Q
    assert_held(found)


@pytest.mark.parametrize("loaded", [("a", "b"), NAMES])
def test_loads_at_several_leaders_share_the_whole_quota_equally(loaded: tuple[str, ...]) -> None:
    found = world()
    for name in loaded:
        found.sidecars[name].supply = PLENTY
    found.run_for(60_000)
    whole = found.rate(20_000, 60_000)
    assert whole >= 0.95 * Q
    for name in loaded:
        assert found.rate(20_000, 60_000, name) == pytest.approx(whole / len(loaded), rel=0.05)
    assert_held(found)


def test_load_that_begins_while_another_leader_has_all_gets_its_half() -> None:
    found = world()
    found.run_for(LEARNED_MS)
    found.sidecars["a"].supply = PLENTY
    found.run_for(10_000)
    found.sidecars["b"].supply = PLENTY
    found.run_for(MOVED_MS + 10_000)
    since_ms = found.now_ms - 10_000
    assert found.rate(since_ms, found.now_ms, "b") == pytest.approx(Q / 2, rel=0.08)
    assert found.rate(since_ms, found.now_ms) >= 0.95 * Q
    assert_held(found)


def test_rate_that_a_slow_leader_cannot_use_goes_to_the_others() -> None:
    found = world()
    for name in NAMES:
        found.sidecars[name].supply = PLENTY
    found.sidecars["c"].pace = 400_000
    found.run_for(60_000)
    # It sends 0.1 of the quota and keeps 0.2: twice what it uses, to notice when it can send more.
    assert found.rate(20_000, 60_000) >= 0.85 * Q
    assert_held(found)


def test_load_that_moves_from_leader_to_leader_never_adds_up() -> None:
    found = world()
    found.run_for(LEARNED_MS)
    for turn in range(12):
        found.sidecars[NAMES[turn % 3]].supply = 5 * Q
        found.run_for(6_000)
    assert_held(found)
    assert found.rate(LEARNED_MS, found.now_ms) >= 0.7 * Q


def test_holder_that_is_gone_leaves_equal_shares() -> None:
    found = world()
    found.sidecars["a"].supply = PLENTY
    found.run_for(20_000)
    found.holder = None
    found.run_for(LEASE_MS)
    assert found.cut_off == len(NAMES)
    assert found.share("a") == pytest.approx(1 / 3)
    found.run_for(30_000)
    since_ms = found.now_ms - 25_000
    assert found.rate(since_ms, found.now_ms) == pytest.approx(Q / 3, rel=0.06)  # (N - 1) / N is lost
    found.start_holder()
    found.run_for(LEARNED_MS + 20_000)
    assert found.rate(found.now_ms - 15_000, found.now_ms) >= 0.95 * Q
    assert_held(found)


def test_member_that_is_cut_off_goes_on_at_an_equal_share_on_top() -> None:
    found = world()
    for name in NAMES:
        found.sidecars[name].supply = PLENTY
    found.run_for(20_000)
    found.sidecars["c"].online = False
    found.run_for(LEASE_MS + 25_000)
    since_ms = found.now_ms - 20_000
    assert found.cut_off == 1
    assert found.rate(since_ms, found.now_ms, "c") == pytest.approx(Q / 3, rel=0.06)
    others = found.rate(since_ms, found.now_ms) - found.rate(since_ms, found.now_ms, "c")
    assert others == pytest.approx(Q, rel=0.06)
    assert_held(found, cut_off=1)
    found.sidecars["c"].online = True
    found.run_for(MOVED_MS)
    since_ms = found.now_ms
    found.run_for(20_000)
    assert found.rate(since_ms, found.now_ms) == pytest.approx(Q, rel=0.06)


@pytest.mark.parametrize("seed", range(6))
def test_faults_without_a_member_that_is_cut_off_never_add_up_to_more(seed: int) -> None:
    found = world(seed)
    found.breaks = 0.02
    dice = found.dice
    for _ in range(100):
        chance = dice.random()
        sidecar = found.sidecars[dice.choice(NAMES)]
        if chance < 0.3:
            sidecar.supply += int(dice.random() * 4 * Q)
        elif chance < 0.4:
            sidecar.online = False
        elif chance < 0.5:
            found.holder = None
        found.run_for(dice.randint(100, 4_000))
        sidecar.online = True
        if found.holder is None:
            found.start_holder()
    assert_held(found)
