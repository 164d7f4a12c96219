"""The schedules of `make latency`, and what is made of what its generator finds."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.bench import latency
from tests.bench.lanes import DIRECT
from tests.bench.latency import FOUND, LOADS, SETTLE_SECONDS, Found, Full, Load, Times, Turn, judge, schedule
from tests.bench.saturate.__main__ import HAPROXY, SLUICE


def turn(p999: float) -> Turn:
    return Turn(Times(1.0, 2.0, p999), Times(0.01, 0.02, 0.03), 0.5, 0.25)


def found(rounds: tuple[float, ...] = (4.0,)) -> list[Found]:
    return [
        Found(tls, connections, load, 1000.0, [turn(p999) for p999 in rounds])
        for tls in (False, True)
        for connections in latency.CONNECTIONS
        for load in LOADS
    ]


def test_requests_are_due_at_the_rate_and_at_random_distances() -> None:
    due = schedule(10_000, 100, 5.0, seed=1)
    # Of 50,000 of a Poisson process the standard deviation is their root, 224.
    assert len(due) == pytest.approx(50_000, abs=4 * 224)
    gaps = np.diff(due["at"])
    assert gaps.min() >= 0
    assert due["at"][-1] < 5.0
    # Of exponential distances the standard deviation is the mean.
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_every_connection_has_its_part_of_the_requests() -> None:
    counts = Counter(schedule(10_000, 10, 5.0, seed=1)["connection"].tolist())
    assert sorted(counts) == list(range(10))
    assert all(count == pytest.approx(5_000, rel=0.1) for count in counts.values())


def test_same_seed_is_the_same_schedule_and_another_is_another() -> None:
    one = schedule(500, 10, 1.0, seed=7)
    assert one.tobytes() == schedule(500, 10, 1.0, seed=7).tobytes()
    assert one.tobytes() != schedule(500, 10, 1.0, seed=8).tobytes()


def test_percentiles_are_those_of_requests_due_after_the_lane_has_settled() -> None:
    # 1 to 1,000 ms, in falling order; before them ten requests that took long.
    early = [(SETTLE_SECONDS / 2, 9.0, 9.0)] * 10
    late = [(SETTLE_SECONDS * 2, number / 1e4, number / 1e3) for number in range(1000, 0, -1)]
    latencies, lateness = judge(np.array(early + late, FOUND))
    assert (latencies.p50, latencies.p99, latencies.p999) == pytest.approx((500, 990, 999))
    assert (lateness.p50, lateness.p99, lateness.p999) == pytest.approx((50, 99, 99.9))


def test_nothing_found_is_no_result() -> None:
    with pytest.raises(ValueError, match="no values"):
        judge(np.zeros(0, FOUND))


def test_every_lane_has_the_rates_of_sluice() -> None:
    for share in latency.SHARES:
        lanes = [load.lane for load in LOADS if load[1:] == (share, SLUICE)]
        assert sorted(lanes) == sorted((DIRECT, HAPROXY, SLUICE))
        assert Load(HAPROXY, share, HAPROXY) in LOADS


def test_row_has_the_median_of_the_rounds_and_each_of_them() -> None:
    full = [Full(False, 10, SLUICE, 50_000.0, 0.99, 0.6)]
    passed, plaintext, tls = latency.outcome_of(full, found((9.0, 4.0, 5.0))).tables
    assert passed.rows == (("10", "plaintext", "Sluice", "50,000", "99%", "60%"),)
    row = dict(zip(plaintext.columns, plaintext.rows[0], strict=True))
    assert row["p99.9 ms"] == "5.00"
    assert row["p99.9 of each round"] == "4.00 5.00 9.00"
    assert len(plaintext.rows) == len(tls.rows) == len(latency.CONNECTIONS) * len(LOADS)


def test_picture_has_a_chart_for_each_load_without_and_with_tls(tmp_path: Path) -> None:
    latency.draw(found(), tmp_path / "latency.svg")
    text = (tmp_path / "latency.svg").read_text()
    assert all(f"{kind}, {share}%" in text for kind in ("plaintext", "TLS") for share in (30, 70))
    assert text.count("1,000 connections") == 4
