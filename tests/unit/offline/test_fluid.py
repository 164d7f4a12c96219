"""Waits and needs from bytes by second: exact where it can be counted by hand, and beside the backtest of requests."""

import numpy as np
import pytest

from quotas.backtest import fluid
from quotas.backtest.outcomes import backtest
from quotas.backtest.recording import recording_of
from quotas.options import EngineOptions
from tests.support.recordings import RECORDINGS, Recorded, Recording

SCHEDULE = EngineOptions(policy="schedule", scope="cluster")
TOLERANCE = 0.001


def one_day(sizes: list[float], quota: float, burst_s: float = 1.0) -> float:
    seconds = np.arange(len(sizes))
    cuts = np.array([0, len(sizes)])
    return float(fluid.waits(seconds, np.array(sizes), cuts, np.array([[quota]]), burst_s)[0, 0])


def test_burst_is_free_and_the_rest_is_waited_for() -> None:
    # 10 MB at 2 MB/s take 5 s: one second of burst, one that passes, three that are waited for.
    assert one_day([10e6], 2e6) == pytest.approx(3.0)
    assert one_day([10e6], 2e6, burst_s=3.0) == pytest.approx(1.0)


def test_pause_refills_the_burst_and_no_more() -> None:
    # Each time 4 MB at 2 MB/s: the burst and the second itself. Nine idle seconds give back no more than the burst.
    assert one_day([4e6, *[0.0] * 9, 4e6], 2e6) == 0.0
    # 0.5 s of the burst are back after a second at half the quota: 4 MB / 2 MB/s - 1 - 0.5 s.
    assert one_day([4e6, 1e6, 4e6], 2e6) == pytest.approx(0.5)


def test_each_day_begins_anew() -> None:
    waits = fluid.waits(
        np.array([0, 1]), np.array([4e6, 4e6]), np.array([0, 1, 1, 2]), np.full((3, 1), 2e6), 1.0
    )
    assert waits.tolist() == [[0.0], [0.0], [0.0]]


def test_need_is_the_smallest_quota_with_the_tolerated_wait() -> None:
    # 10 MB: burst, second and 3 tolerated seconds are five at the need.
    seconds, cuts = np.array([7]), np.array([0, 1])
    assert fluid.needs(seconds, np.array([10e6]), cuts, 1.0, 3.0)[0] == pytest.approx(2e6, rel=1e-3)
    assert fluid.needs(seconds, np.array([10e6]), np.array([0, 0, 1]), 1.0, 0.0).round(-4).tolist() == [
        0,
        5e6,
    ]


CLIENTS = [
    (recording, one)
    for recording in RECORDINGS
    for one in {one.name.partition("-")[0]: one for one in recording.clients}.values()
    # Bytes by second do not have the pauses of one, nor that Fetches of the other wait for each other.
    if not one.throttle_ms and one.connections < 64
]


def by_both(recording: Recording, one: Recorded, times: list[float]) -> tuple[np.ndarray, np.ndarray, int]:
    """Waits of one connection in s at multiples of its need, by seconds and by requests; its series of busy seconds."""
    count = len(one.at_us) * one.connections
    made = recording_of(
        connection=np.repeat(np.arange(one.connections), len(one.at_us)),
        at_us=np.tile(one.at_us, one.connections),
        sizes=np.full(count, one.size),
        service_us=np.full(count, one.service_us),
        consumes=recording.direction == "fetch",
    )
    moved_us = one.at_us + (one.service_us if recording.direction == "fetch" else 0)
    seconds, requests = np.unique(moved_us // 1_000_000, return_counts=True)
    sizes = (requests * one.size * one.connections).astype(np.float64)
    cuts = np.array([0, len(seconds)])
    need = fluid.needs(seconds, sizes, cuts, 1.0, TOLERANCE * recording.seconds)[0]
    quotas = need * np.array(times)
    found = backtest(made, quotas.tolist(), SCHEDULE, start_s=0, seconds=recording.seconds)
    by_request = [(each.throttle_ms - each.idle_ms) / 1000 / one.connections for each in found.each]
    runs = 1 + int((np.diff(seconds) > 1).sum())
    return fluid.waits(seconds, sizes, cuts, quotas[None], 1.0)[0], np.array(by_request), runs


@pytest.mark.parametrize(("recording", "one"), CLIENTS, ids=lambda each: each.name)
def test_waits_are_those_of_the_requests_but_for_a_second_a_burst(
    recording: Recording, one: Recorded
) -> None:
    """A second's bytes are spread over it here; requests come when they come, and a mute is whole.

    So each series of busy seconds differs by up to 1.3 s, the first by 2 s more; in one with few requests in a second
    (growth) by a quarter.
    """
    by_second, by_request, runs = by_both(recording, one, [0.25, 0.5, 0.7, 0.9, 1.05, 1.5])
    apart = by_request - by_second
    assert (apart >= -0.5).all()
    assert (
        apart <= 2 + 1.3 * runs + (0.25 * by_request if one.name == "growing" else 0.02 * by_request)
    ).all()


STEADY = [
    each
    for each in CLIENTS
    if each[1].name.startswith(("small", "equal", "steady", "reader", "member", "hog"))
]


@pytest.mark.parametrize(("recording", "one"), STEADY, ids=lambda each: each.name)
def test_need_of_a_steady_client_is_that_of_the_backtest_within_five_percent(
    recording: Recording, one: Recorded
) -> None:
    _, (below, above), _ = by_both(recording, one, [0.97, 1.05])
    tolerated_s = TOLERANCE * recording.seconds
    assert below > tolerated_s >= above * one.connections
