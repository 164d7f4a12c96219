"""What `make price` makes of its turns, without brokers and without revisions but this one."""

from pathlib import Path

import pytest

from tests.bench.price import instructions, turns
from tests.bench.price.__main__ import LIMIT, counted, table
from tests.bench.price.checkouts import WORKING_TREE, RevisionError, checkout, verify
from tests.support.proxy_process import ROOT


def test_drift_costs_neither_side() -> None:
    # Each turn costs 1 more than the turn before it, whichever side has it: (10, 11), (13, 12), (14, 15), (17, 16).
    costs = iter(range(10, 18))
    found = turns.Figures(4)
    for order in turns.alternating(4):
        pair = {which: float(next(costs)) for which in order}
        found.before.append(pair[0])
        found.after.append(pair[1])
    assert (found.before, found.after) == ([10.0, 13.0, 14.0, 17.0], [11.0, 12.0, 15.0, 16.0])
    # 11/10, 12/13, 15/14, 16/17: the middle of 16/17 = 0.941 and 15/14 = 1.071
    assert found.ratio == pytest.approx((16 / 17 + 15 / 14) / 2)


def test_table_names_the_interval_and_the_rounds() -> None:
    found = turns.Figures(2, before=[10.0, 10.0, 10.0, 10.0], after=[10.2, 10.2, 10.4, 10.4])
    (row,) = table("schedule", {"Produce, 100 bytes": found}).rows
    name, before, after, ratio, _, rounds, pairs = row
    assert (name, before, after, pairs) == ("Produce, 100 bytes", "10.00", "10.30", "4")
    assert (ratio, rounds) == ("1.030", "1.020 … 1.040")
    assert found.ratio <= LIMIT


def test_working_tree_is_used_where_it_stands(tmp_path: Path) -> None:
    assert checkout(WORKING_TREE, tmp_path / "unused") == ROOT
    assert not (tmp_path / "unused").exists()


def test_revision_that_git_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RevisionError, match="no-such-revision"):
        checkout("no-such-revision", tmp_path / "tree")


def test_tree_without_the_proxy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RevisionError, match="starts"):
        verify(tmp_path)


def test_instructions_have_a_bar_for_each_request() -> None:
    found = counted(
        "kip13", {"Produce, 100 bytes": (40_000.0, 41_000.0), "Fetch, 100 bytes": (30_000.0, 31_200.0)}
    )
    assert [row[3] for row in found.tables[0].rows] == ["1.0250", "1.0400"]
    assert [bar.passed for bar in found.bars] == [True, False]


def test_dump_without_totals_is_no_figure() -> None:
    with pytest.raises(ValueError, match="totals"):
        instructions.dumped("events: Ir\n")
