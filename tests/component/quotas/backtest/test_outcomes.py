"""The backtest's totals, with numbers that can be followed by hand."""

import numpy as np
import pytest

from quotas.backtest.outcomes import backtest
from quotas.backtest.recording import Recording, recording_of
from quotas.options import EngineOptions

MB = 1_000_000


def every_second(count: int, size: int, *, consumes: bool = False, group_ms: int = 0) -> Recording:
    return recording_of(
        connection=np.zeros(count, np.int64),
        at_us=np.arange(count) * MB,
        sizes=np.full(count, size),
        service_us=np.zeros(count, np.int64),
        group_ms=np.full(count, group_ms),
        consumes=consumes,
    )


def test_a_throttled_clients_later_requests_move() -> None:
    # 6 MB a second at 2 MB/s: the fourth makes 24 MB in 10 s, X = 2 s; the fifth comes at 3 + 2 + 1 s.
    found = backtest(every_second(5, 6 * MB), [2e6], EngineOptions(), start_s=0, seconds=10)
    assert found.load[0].tolist() == [6 * MB] * 4 + [0, 0, 6 * MB, 0, 0, 0]


def test_waits_are_counted_once_a_request() -> None:
    (outcome,) = backtest(every_second(4, 6 * MB), [2e6], EngineOptions(), start_s=0, seconds=4).each
    assert (outcome.requests, outcome.decisions, outcome.throttled) == (4, 4, 1)
    assert (outcome.throttle_ms, outcome.throttle_ms_max, outcome.throttle_ms_p99) == (2000, 2000, 2000)
    assert (outcome.bytes, outcome.bytes_delayed, outcome.bytes_late) == (24 * MB, 6 * MB, 0)
    assert outcome.end_us == 5 * MB  # muted until then


def test_bytes_after_the_end_are_late() -> None:
    (outcome,) = backtest(every_second(5, 6 * MB), [2e6], EngineOptions(), start_s=0, seconds=5).each
    assert outcome.bytes_late == 6 * MB


def test_a_group_members_mute_is_a_fifth_of_its_session_timeout() -> None:
    made = every_second(4, 6 * MB, group_ms=5000)
    (outcome,) = backtest(made, [2e6], EngineOptions(), start_s=0, seconds=4).each
    assert outcome.throttle_ms == 1000


def test_a_fetch_that_gets_an_empty_response_is_sent_again() -> None:
    (outcome,) = backtest(
        every_second(12, 6 * MB, consumes=True), [2e6], EngineOptions(), start_s=0, seconds=60
    ).each
    assert outcome.decisions > outcome.requests == 12
    assert outcome.bytes == 72 * MB


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_a_quota_above_the_demand_changes_nothing(policy: str) -> None:
    options = EngineOptions(policy="kip13" if policy == "kip13" else "schedule")
    found = backtest(every_second(100, MB), [20e6], options, start_s=0, seconds=100)
    assert found.each[0].throttle_ms == 0
    assert found.load[0].tolist() == [MB] * 100


def at_once(connections: int, size: int, service_us: int) -> Recording:
    """One Fetch on each connection, all at the same time."""
    return recording_of(
        connection=np.arange(connections),
        at_us=np.zeros(connections, np.int64),
        sizes=np.full(connections, size),
        service_us=np.full(connections, service_us),
        consumes=True,
    )


@pytest.mark.parametrize("limit", [2e6, 80e6])
def test_first_fetches_of_a_recording_do_not_wait_for_each_other(limit: float) -> None:
    options = EngineOptions(policy="schedule")
    (outcome,) = backtest(at_once(6, 10_000, 5000), [limit], options, start_s=0, seconds=1).each
    assert outcome.throttle_ms == 0


def test_first_fetches_that_bring_more_than_the_burst_wait() -> None:
    options = EngineOptions(policy="schedule")
    (outcome,) = backtest(at_once(4, MB, 5000), [2e6], options, start_s=0, seconds=9).each
    assert (outcome.throttled, outcome.idle_ms) == (4, 0)  # half a second of quota each


def test_waits_for_idle_fetches_are_counted_separately() -> None:
    # They share a quarter of the burst of 2 MB (test_schedule.py): 53 are with the broker when all of it is reached.
    options = EngineOptions(policy="schedule")
    (outcome,) = backtest(at_once(56, 50, 250_000), [2e6], options, start_s=0, seconds=1).each
    # Three are told 100 ms three times; at 250 ms the first three that end rest: 69, 42 and 14 ms.
    assert (outcome.throttled, outcome.throttle_ms, outcome.idle_ms) == (6, 1025, 1025)
