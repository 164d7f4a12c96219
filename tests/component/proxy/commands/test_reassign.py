"""`sluice reassign estimate`: what it reads, what it says, and what it refuses."""

import pytest

from proxy.commands.reassign import check_plan, describe, table
from proxy.system.errors import UsageError
from quotas.reassignment.estimate import Replicated, estimate

MB = 1_000_000
PARTITIONS = {("t", number): Replicated((1,), 1, 10 * MB, 1000.0) for number in range(2)}


def test_plan_about_something_else_is_refused() -> None:
    check_plan({("t", 0): (1, 2)}, PARTITIONS, {1: None, 2: None})
    with pytest.raises(UsageError, match="no partition t-9"):
        check_plan({("t", 9): (1,)}, PARTITIONS, {1: None})
    with pytest.raises(UsageError, match="no broker 2 "):
        check_plan({("t", 0): (1, 2)}, PARTITIONS, {1: None})


def test_report_has_duration_and_required_rate() -> None:
    moved = estimate(PARTITIONS, {("t", 0): (2,)}, brokers=2)
    report = describe(moved, 1_001_000, 5, None, 1000)
    assert report["move_ratio"] == 0.5
    assert report["seconds"] == 10  # 10 MB / (1,001,000 - 1,000)
    assert report["suggested_throttle"] == 2_001_000  # 10 MB / 5 s + 1,000
    assert report["throttle_over"] == 2000
    assert report["warnings"] == []
    lines = list(table(report))
    assert "move ratio: 50.0%" in lines
    assert "suggested throttle: 2.0 MB/s" in lines
    assert "move time by brokers: 10.0 s" in lines
    assert "       1    leader    10.0 MB     1.0 kB/s" in lines


def test_move_that_never_ends_is_a_warning_and_the_responses_size_too() -> None:
    moved = estimate(PARTITIONS, {("t", 0): (2,)}, brokers=2)
    report = describe(moved, 1000, None, 1_500, 10 * MB)
    assert report["seconds"] == "never"
    warnings = report["warnings"]
    assert isinstance(warnings, list)
    assert warnings[0].startswith("the move never finishes: broker 1 as a leader gets 1.0 kB/s of new data")
    assert any("replica.fetch.response.max.bytes" in warning for warning in warnings)
    assert any("T < N - IN/R" in warning for warning in describe(moved, 1400, None, 1_500, 1)["warnings"])  # type: ignore[attr-defined]  # a list
