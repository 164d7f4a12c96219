"""More Fetches than may be with brokers at a time under `schedule`: who waits how long there, and who rests."""

import pytest

from quotas.limiters.limiter import Flow
from quotas.limiters.schedule import ScheduledLimiter
from quotas.options import EngineOptions

MB = 1_000_000
# Each idle Fetch counts with a 128th of the burst of 2 MB, 15,625 B: three quarters of 2 MB are 96 of them, and of a
# little less, once some responses have come, 95.
AT_A_TIME = 95


def crowded(channels: int = 200, **options: float) -> tuple[ScheduledLimiter, list[Flow], list[Flow]]:
    """A quota of 2 MB/s, and so many idle channels that have all asked at 0: those admitted, and the others."""
    throttle = ScheduledLimiter(2 * MB, EngineOptions(policy="schedule", **options), 0)  # type: ignore[arg-type]  # seconds
    flows = [Flow() for _ in range(channels)]
    for flow in flows:
        flow.expected, flow.passed = 60, True
        throttle.fetch(flow, 0)
    admitted = [flow for flow in flows if flow.admitted >= 0]
    return throttle, admitted, flows[len(admitted) :]


def test_first_fetch_of_a_channel_waits_half_a_second_at_its_broker() -> None:
    # It is charged with what others bring: their bytes would be missing for as long as it waits.
    throttle, known, new = ScheduledLimiter(2 * MB, EngineOptions(policy="schedule"), 0), Flow(), Flow()
    throttle.fetch(known, 0)
    assert known.wait_ms_max == 500
    throttle.fetched(known, 60, 10)
    throttle.fetch(known, 20)
    assert known.wait_ms_max == 5000
    throttle.fetch(new, 20)
    assert new.wait_ms_max == 500


@pytest.mark.parametrize(("size", "after_ms"), [(60, 100), (16_000, 3)], ids=["in vain", "records at once"])
def test_fetch_that_waited_rests_for_the_others_share_of_the_time(size: int, after_ms: int) -> None:
    throttle, admitted, _ = crowded()
    assert len(admitted) == 53
    for flow in admitted[1:]:
        throttle.fetched(flow, 60, 0)  # at once: 0 ms of rest
    decision = throttle.fetched(admitted[0], size, after_ms)
    # None is under way any more. 147 were refused, and count as resting.
    assert decision.throttle_ms == after_ms * (147 - AT_A_TIME) // AT_A_TIME


def test_channel_that_rests_has_no_place_in_the_queue() -> None:
    throttle, admitted, _ = crowded()
    for flow in admitted:
        throttle.fetched(flow, 60, 100)
    assert admitted[0].due_ms > 100
    assert not admitted[0].queued


def test_channels_that_do_not_come_back_are_no_crowd() -> None:
    throttle, admitted, others = crowded()
    for flow in admitted[1:]:
        throttle.fetched(flow, 60, 0)
    throttle.fetch(others[-1], 900)  # refused at 0, and one of two that come back
    throttle.fetch(others[-2], 900)
    assert throttle.fetched(admitted[0], 60, 950).throttle_ms == 0


def test_closed_channels_are_no_crowd() -> None:
    throttle, admitted, others = crowded()
    for flow in admitted[1:]:
        throttle.fetched(flow, 60, 0)
    for flow in others:
        throttle.leave(flow, 10)
    assert throttle.fetched(admitted[0], 60, 100).throttle_ms == 0


def test_rest_is_no_longer_than_the_longest_mute() -> None:
    throttle, admitted, _ = crowded(2000, mute_seconds_max=0.2)
    assert throttle.fetched(admitted[0], 60, 400).throttle_ms == 200
