"""`kip13` over several processes, in virtual time: the bound that its windows give, wherever shares are moved.

In any interval T all processes together let pass at most Q T + (N + 1) w Q + C R (1 + T / ((N - 1) w)), with N windows
of w seconds, C connections and requests of R bytes. For a connection's request that is not its last one in the interval
the window W was within Q, with the time until its next request; after the latest such request there are only last ones,
one for each connection. W is (N - 1) w to (N + 1) w long, and what is before it is bounded likewise. A share that is
moved leaves the room of windows as it is, and what was taken from one process's windows comes to the other's as time
passes (`SampledRate.spread`).
"""

from random import Random
from typing import Final

import pytest

from quotas.limiters.kip13 import SampledLimiter
from quotas.limiters.limiter import Flow
from quotas.options import EngineOptions
from tests.simulation.fleet_engines import BEGIN_MS, Fleet
from tests.simulation.quota_world import ClientOptions

QUOTA: Final = 1_000_000.0
NOTHING: Final = 1e-9
STEP_MS: Final = 10
OPTIONS: Final = EngineOptions(policy="kip13")
WINDOW_SECONDS: Final = (OPTIONS.window_samples + 1) * OPTIONS.window_seconds
REST_SECONDS: Final = (OPTIONS.window_samples - 1) * OPTIONS.window_seconds
SEEDS: Final = 40


class Shared:
    """One process's throttle and its connections, which send what they may."""

    def __init__(self, share: float, connections: int) -> None:
        self.throttle = SampledLimiter(QUOTA, OPTIONS, 0)
        self.throttle.lend(share, 0)
        self.share = share
        self.flows = [Flow() for _ in range(connections)]
        for flow in self.flows:
            flow.passed = True
        self.free_ms = [0] * connections

    def lend(self, share: float, now_ms: int) -> None:
        """Give it another share."""
        self.throttle.lend(share, now_ms)
        self.share = share

    def send(self, size: int, now_ms: int) -> int:
        """Return the bytes of all connections that may send now."""
        passed = 0
        for index, flow in enumerate(self.flows):
            if now_ms >= self.free_ms[index]:
                decision = self.throttle.produce(flow, size, now_ms)
                self.free_ms[index] = now_ms + max(1, decision.throttle_ms)
                passed += size
        return passed


def beyond(passed: list[tuple[int, int]], quota: float, at_once: int) -> float:
    """Return what passed beyond the bound's two rates and one request of each connection, in seconds of the quota.

    Args:
        passed: times in ms, and bytes.
        at_once: the bytes of one request of each connection.
    """
    rate = quota + at_once / REST_SECONDS
    potential = lowest = most = 0.0
    for at_ms, size in passed:
        before = potential - rate * at_ms / 1000
        lowest = min(lowest, before)
        potential += size
        most = max(most, before + size - lowest)
    return (most - at_once) / quota


def move(processes: list[Shared], to: Shared, now_ms: int) -> None:
    """Give all to one process, after the others have come down."""
    for one in processes:
        if one is not to and one.share != NOTHING:
            one.lend(NOTHING, now_ms)
    if to.share == NOTHING:
        to.lend(1.0, now_ms)


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_moving_shares_makes_no_credit(first: int) -> None:
    worst = 0.0
    for seed in range(first, first + 10):
        draw = Random(seed)
        count, connections = draw.randint(1, 4), draw.randint(1, 2)
        size = draw.choice((10_000, 100_000, 1_000_000))
        swap_ms, change_ms = draw.choice((300, 2000, 6000)), draw.choice((1000, 5000))
        processes = [Shared(1.0 if index == 0 else NOTHING, connections) for index in range(count)]
        active = set(processes)
        passed: list[tuple[int, int]] = []
        for now_ms in range(0, 60_000, STEP_MS):
            for one in processes:
                if draw.random() < STEP_MS / change_ms:
                    active ^= {one}
            if draw.random() < STEP_MS / swap_ms:
                move(processes, draw.choice([one for one in processes if one in active] or processes), now_ms)
            passed += [(now_ms, one.send(size, now_ms)) for one in processes if one in active]
        found = beyond(passed, QUOTA, count * connections * size)
        assert found <= WINDOW_SECONDS, f"seed {seed}: {found:.1f} s"
        worst = max(worst, found)
    assert worst > REST_SECONDS / 2, "no window was ever filled"


def test_a_share_that_comes_to_an_idle_process_brings_no_window_of_its_own() -> None:
    one, other = Shared(1.0, 1), Shared(NOTHING, 1)
    other.throttle.produce(Flow(), 1, 0)  # its oldest sample is nearly over when the share comes
    first = sum(one.send(10_000, now_ms) for now_ms in range(9000, 10_800))
    other.throttle.produce(Flow(), 1, 10_800)
    move([one, other], other, 10_900)
    second = sum(other.send(10_000, now_ms) for now_ms in range(10_901, 12_000))
    assert first >= REST_SECONDS * QUOTA
    assert second <= 1.2 * QUOTA  # 1.1 s, and a request


def test_a_process_that_begins_has_its_rate_at_once_and_no_burst() -> None:
    one = Shared(1.0, 1)
    one.throttle.begin_empty(0, 0)
    at_ms = [now_ms for now_ms in range(5000) if one.send(10_000, now_ms)]
    assert len(at_ms) * 10_000 == pytest.approx(5 * QUOTA, rel=0.25)
    assert sum(10_000 for now_ms in at_ms if now_ms < 1000) <= 1.3 * QUOTA


@pytest.mark.parametrize("consumes", [False, True], ids=["produce", "consume"])
@pytest.mark.parametrize("size", [1_000_000, 100_000])
@pytest.mark.parametrize("connections", [[6, 6, 6, 6], [1, 11, 4, 8], [24, 0, 0, 0]], ids=str)
def test_two_members_with_two_workers_stay_within_the_bound_of_kip13(
    connections: list[int], size: int, consumes: bool
) -> None:
    limit = 4_000_000.0
    fleet = Fleet(limit, connections, ClientOptions(size=size, consumes=consumes), policy="kip13")
    world = fleet.world
    world.run(BEGIN_MS + 40_000)
    passed = sorted((record.at_ms, record.size) for record in world.records)
    assert beyond(passed, limit, sum(connections) * size) <= WINDOW_SECONDS
    assert world.ratio(limit, BEGIN_MS + 10_000, BEGIN_MS + 40_000) >= 0.9
