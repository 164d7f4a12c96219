"""From noted bytes to figures and bars."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.bench.accuracy.judge import KAFKA, KIP13, SCHEDULE, Options, draw, judge, report
from tests.bench.accuracy.relay import PRODUCE, Counted

OPTIONS = Options(seconds=30, quota=2_000_000, directions=("produce",), connections=(2,))


def noted(first_burst: int = 0) -> list[tuple[int, Counted]]:
    """Two connections in turn, 1 MB each half second, from second 100; `first_burst` more MB at once."""
    steady = [(index % 2, 100.0 + index / 2) for index in range(80)]
    burst = [(0, 100.0)] * first_burst
    return [(number, Counted(at, at, "a", PRODUCE, 1_000_000)) for number, at in burst + steady]


def test_judge_counts_from_the_first_byte() -> None:
    figures = judge((SCHEDULE, "produce", 2), noted(), {"delivered": 80}, OPTIONS)
    assert figures.first == 1.0  # 2 MB in the first second
    assert figures.steady == pytest.approx(1.0)
    assert figures.largest == 1.0
    assert figures.jain == 1.0
    assert figures.seconds[:3] == (1.0, 1.0, 1.0)


def test_judge_sees_a_burst_in_the_first_second() -> None:
    figures = judge(
        (KAFKA, "produce", 2),
        noted(first_burst=20),
        {"timeouts": 1, "_MSG_TIMED_OUT": 1, "_TRANSPORT": 3, "log lines": 9},
        OPTIONS,
    )
    assert figures.first == 11.0  # 20 MB + 2 MB
    assert figures.steady == pytest.approx(1.0)
    assert (figures.timeouts, figures.errors) == (2, 3)
    # 50 MB and 30 MB in 30 s: 80² / (2 · (50² + 30²))
    assert figures.jain == pytest.approx(6400 / 6800)


def test_judge_gives_a_starved_connection_its_share_of_nothing() -> None:
    alone = [(0, each) for _, each in noted()]
    assert judge((SCHEDULE, "produce", 2), alone, {}, OPTIONS).jain == 0.5


def test_judge_refuses_a_run_without_bytes() -> None:
    with pytest.raises(ValueError, match="no byte passed"):
        judge((SCHEDULE, "produce", 2), [], {}, OPTIONS)


def test_report_has_bars_for_schedule_and_a_comparison_for_kip13() -> None:
    found = [judge((policy, "produce", 2), noted(), {}, OPTIONS) for policy in (KAFKA, KIP13, SCHEDULE)]
    outcome = report(found, OPTIONS)
    assert [bar.passed for bar in outcome.bars] == [True] * 4
    assert len(outcome.tables) == 2
    assert outcome.tables[1].rows == (("produce", "2", "+0.00", "+0.00", "+0.00"),)


def test_picture_has_a_line_for_each_policy(tmp_path: Path) -> None:
    found = [judge((policy, "produce", 2), noted(), {}, OPTIONS) for policy in (KAFKA, SCHEDULE)]
    draw(found, tmp_path / "accuracy.svg")
    assert {KAFKA, SCHEDULE, "produce, 2 connections, rate / quota"} <= texts(tmp_path / "accuracy.svg")


def texts(path: Path) -> set[str | None]:
    return {element.text for element in ET.parse(path).iter() if element.tag.endswith("text")}
