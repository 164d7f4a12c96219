"""GCRA with a share of a limit: what is kept in bytes when the limit or the share changes."""

import pytest

from quotas.limiters.gcra import VirtualSchedule
from quotas.limiters.limiter import ADMITTED, Flow
from quotas.limiters.schedule import ScheduledLimiter
from quotas.options import EngineOptions

LIMIT = 1_000_000.0


def schedule(now_ms: int = 0) -> ScheduledLimiter:
    return ScheduledLimiter(LIMIT, EngineOptions(policy="schedule"), now_ms)


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_a_debt_stays_the_same_in_bytes_whatever_the_share(share: float) -> None:
    one = schedule()
    one.lend(0.2, 0)
    one.delivered(500_000, 0)  # 0.2 MB of burst, 0.3 MB owed
    one.lend(share, 0)
    assert one.debt_bytes(0) == pytest.approx(300_000)
    assert one.credit_bytes(0) == pytest.approx(-300_000)


def test_a_share_that_goes_and_comes_back_makes_no_credit() -> None:
    one = schedule()
    one.delivered(900_000, 0)
    for _ in range(100):
        one.lend(1e-6, 0)
        one.lend(1.0, 0)
    assert one.credit_bytes(0) <= 100_000


def test_a_limiter_that_begins_empty_has_what_came_since_its_process_began() -> None:
    one = schedule(now_ms=10_400)
    one.begin_empty(10_000, 10_400)
    assert one.credit_bytes(10_400) == pytest.approx(400_000)
    other = schedule(now_ms=60_000)
    other.begin_empty(10_000, 60_000)
    assert other.credit_bytes(60_000) == LIMIT


def test_a_changed_limit_keeps_what_is_owed_and_has_its_own_burst() -> None:
    one = VirtualSchedule(LIMIT, 1000, 0)
    one.lend(0.5, 0)
    one.limit_to(4 * LIMIT, 1000)  # half a second's burst came back: it is idle
    assert one.credit_bytes(1000) == 2 * LIMIT  # half of 4 MB/s, for a second


def test_a_fetch_that_was_charged_at_another_share_is_given_back() -> None:
    one, flow = schedule(), Flow()
    flow.expected = 200_000
    one.delivered(500_000, 0)
    assert one.fetch(flow, 0) is ADMITTED
    assert one.credit_bytes(0) == pytest.approx(300_000)
    one.lend(0.5, 0)
    one.fetched(flow, 0, 0)  # nothing came
    assert one.credit_bytes(0) == pytest.approx(500_000, rel=0.01)
