"""From what a holder used to a table and a bar."""

import pytest

from tests.bench.fleet.holder import LIMIT_PERCENT, Figures, report


@pytest.mark.parametrize(("cpu", "passed"), [(0.132, True), (0.26, False)])
def test_holder_may_use_a_quarter_of_a_core(cpu: float, passed: bool) -> None:
    outcome = report(Figures(members=16, leased=16, keys=1000, cpu=cpu, grants=277.4))
    (bar,) = outcome.bars
    assert (bar.limit, bar.passed) == (LIMIT_PERCENT, passed)
    assert bar.measured == pytest.approx(100 * cpu)
    (table,) = outcome.tables
    assert table.rows == (("16", "16", "1,000", "5%", f"{cpu:.1%}", "277"),)
    assert len(table.columns) == len(table.rows[0])


def test_members_without_a_lease_make_no_figure() -> None:
    (bar,) = report(Figures(members=16, leased=15, keys=1000, cpu=0.01, grants=1.0)).bars
    assert bar.verdict == "NOT MEASURED"
