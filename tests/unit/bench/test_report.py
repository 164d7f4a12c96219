"""Tables, bars and the place in the document they are written to."""

import doctest
from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.report import Bar, Outcome, Table


def test_report_examples_hold() -> None:
    assert doctest.testmod(report).failed == 0


def test_bar_that_was_not_measured_is_not_met() -> None:
    bar = Bar("cost", None, 1.0)
    assert not bar.passed
    assert bar.row() == ("cost", "≤ 1 ×", "–", "NOT MEASURED")


def test_bar_with_limit_zero_is_missed_by_anything() -> None:
    assert Bar("lost", 0.0, 0.0).verdict == "pass"
    assert Bar("lost", 1.0, 0.0).verdict == "MISSED"


def test_writing_replaces_one_part_and_keeps_the_rest(tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text("# A\n<!-- a:begin -->old<!-- a:end -->\ntext\n<!-- b:begin -->kept<!-- b:end -->\n")
    outcome = Outcome([Table("Speed", ("lane", "MB/s"), (("direct", "100"),))], [Bar("cost", 0.5, 1.0)])
    report.write(document, "a", [("date", "today")], outcome)
    text = document.read_text()
    assert "old" not in text
    assert "| direct | 100 |" in text
    assert "| cost | ≤ 1 × | 0.5 × | pass |" in text
    assert text.startswith("# A\n")
    assert text.endswith("\ntext\n<!-- b:begin -->kept<!-- b:end -->\n")


def test_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no markers"):
        report.replace_between("text", "bench", "content")
