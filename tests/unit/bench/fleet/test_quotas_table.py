"""From how long quotas took to tables and bars."""

from dataclasses import replace

from tests.bench.fleet.quotas import Figures, report

FOUND = Figures([0.004, 0.006, 0.020], [0.0, 0.001, 0.9], 100_000, 3.14, 250.0)


def test_longest_alteration_and_the_start_are_the_bars() -> None:
    outcome = report(FOUND)
    assert [(bar.measured, bar.limit, bar.passed) for bar in outcome.bars] == [
        (0.9, 1.0, True),
        (3.14, 10.0, True),
    ]
    late = report(replace(FOUND, seen=[0.0, 0.001, 1.1], start=10.5))
    assert [bar.passed for bar in late.bars] == [False, False]


def test_tables_have_milliseconds_and_the_start() -> None:
    altered, started = report(FOUND).tables
    assert [row[2:] for row in altered.rows] == [("6.0", "20.0", "20.0"), ("1.0", "900.0", "900.0")]
    assert started.rows == (("100,000", "3.1", "250"),)
    for table in (altered, started):
        assert {len(row) for row in table.rows} == {len(table.columns)}
