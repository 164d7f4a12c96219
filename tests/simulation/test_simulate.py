"""`make simulate`: what a run has shown is printed, and written where it is whole."""

from pathlib import Path

import pytest

from tests.simulation.__main__ import Total, main, report

PAGE = "before\n<!-- simulate:begin -->\nold\n<!-- simulate:end -->\nafter\n"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_part_of_a_run_is_printed_only(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--jobs", "1", "--document", str(page)]) == 0
    assert capsys.readouterr().out.startswith("2 seeds, 0 failed; largest share ")
    assert page.read_text() == PAGE


def test_run_is_written_between_its_markers(page: Path) -> None:
    assert main(["--seeds", "2", "--jobs", "1", "--document", str(page), "--write"]) == 0
    text = page.read_text()
    assert "| seeds that fail | ≤ 0  | 0  | pass |" in text
    assert "| 2 | 0 | " in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text


@pytest.mark.parametrize(
    ("total", "passed"),
    [
        (Total(100_000, 0, 1.0, 0.9, 0.9, 60.0, 2), [True, True, True, True]),
        (Total(100_000, 1, 1.0, 0.9, 0.9, 60.0, 2), [False, True, True, True]),
        (Total(100_000, 0, 1.01, 1.1, 1.1, 60.0, 2), [True, False, False, False]),
    ],
)
def test_bars_are_no_failure_one_budget_one_burst_and_one_bound(total: Total, passed: list[bool]) -> None:
    assert [bar.passed for bar in report(total).bars] == passed
