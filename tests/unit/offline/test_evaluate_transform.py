"""A client's rows to its days: needs, minutes, what throttling held back, and days that are not to be served."""

import numpy as np
import pyarrow as pa
import pytest

from offline.transforms.evaluate import Calendar, burst_s, days_of, whole_days
from quotas.options import EngineOptions

DAY_S = 600
NAME = ("produce", "", "a")


def calendar(days: int = 3, **others: object) -> Calendar:
    return Calendar(start_s=1000, seconds=days * DAY_S, day_s=DAY_S, burst_s=1.0, **others)  # type: ignore[arg-type]  # one of its fields


def rows(sizes: np.ndarray, *, paused: np.ndarray | None = None, broker: int = -1) -> pa.Table:
    """Bytes by second from the recording's beginning, and the throttle time that was told in each."""
    count = len(sizes)
    return pa.table(
        {
            "second": 1000 + np.arange(count),
            "broker": np.full(count, broker),
            "bytes": sizes.astype(np.float64),
            "connections": (sizes > 0).astype(np.float64),
            "paused_s": np.zeros(count) if paused is None else paused,
            "further_s": np.zeros(count),
        }
    )


def by_day(*rates: float) -> np.ndarray:
    return np.repeat(np.array(rates), DAY_S)


def test_need_of_each_day_is_nearly_its_rate() -> None:
    found = days_of(NAME, rows(by_day(1e6, 0, 3e6)), calendar())
    # 600 s at the rate pass in 600 s, the burst and 0.6 s that are tolerated: 600 / 601.6 of it.
    assert found.needs == pytest.approx([1e6 * 600 / 601.6, 0, 3e6 * 600 / 601.6], rel=1e-3)
    assert [len(minutes) for minutes in found.minutes] == [DAY_S, 0, DAY_S]
    assert found.waited(2, np.array([1e6])) == pytest.approx(1.0)  # 1800 s would be more than the day
    # At 0.8 of the rate 600 s of work take 750, less the burst; waits are interpolated between steps of 1 to 10 %.
    assert found.waited(0, np.array([0.8e6, 1.02e6])) == pytest.approx([149 / 600, 0], abs=0.002)


def test_rows_may_come_in_any_order() -> None:
    table = rows(by_day(1e6, 2e6, 3e6))
    mixed = table.take(np.random.default_rng(1).permutation(table.num_rows))
    assert days_of(NAME, mixed, calendar()).needs.tolist() == days_of(NAME, table, calendar()).needs.tolist()


def test_budget_of_the_busiest_broker_is_what_counts() -> None:
    both = pa.concat_tables([rows(by_day(1e6, 1e6, 1e6), broker=1), rows(by_day(2e6, 1e6, 0), broker=2)])
    found = days_of(NAME, both, calendar())
    assert found.needs / found.needs[1] == pytest.approx([2, 1, 1], rel=1e-3)
    assert found.minutes[0].mean() == 3e6


def test_throttled_bytes_are_what_it_would_have_sent() -> None:
    # On the first day it was told to wait for three quarters of each second: it would have sent four times as much.
    paused = by_day(0.75, 0, 0)
    found = days_of(NAME, rows(by_day(5e5, 2e6, 2e6), paused=paused), calendar())
    assert found.held.tolist() == pytest.approx([4, 1, 1])
    assert found.needs[0] == pytest.approx(found.needs[1], rel=1e-3)
    assert found.recorded[0] == pytest.approx(found.needs[0] / 4, rel=1e-3)


def test_day_that_was_not_recorded_has_no_need() -> None:
    found = days_of(NAME, rows(by_day(1e6, 0, 1e6)), calendar(idle=frozenset({1})))
    assert np.isnan(found.needs).tolist() == [False, True, False]


def test_truth_says_on_which_days_a_client_misbehaves() -> None:
    hogs = {NAME: (DAY_S + 1.0, DAY_S + 2.0)}
    table = rows(by_day(1e6, 1e6, 1e6))
    assert days_of(NAME, table, calendar(hogs=hogs)).misbehaves.tolist() == [False, True, False]
    assert not days_of(("fetch", "", "a"), table, calendar(hogs=hogs)).misbehaves.any()


def test_last_day_counts_if_nearly_all_of_it_was_recorded() -> None:
    assert [whole_days(seconds, 600) for seconds in (600, 1169, 1171, 1200)] == [1, 1, 2, 2]


def test_burst_is_the_policys() -> None:
    assert burst_s(EngineOptions(policy="schedule", burst_seconds=2.0)) == 2.0
    assert burst_s(EngineOptions(policy="kip13", window_samples=11, window_seconds=1.0)) == 10.0
