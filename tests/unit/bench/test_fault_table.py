"""From what was noted while things failed to a table and a picture."""

from pathlib import Path

import pytest

from tests.bench.fleet.fault_table import draw, report, rows
from tests.bench.fleet.faults import CONNECTIONS, FAULTS, Direction, Played
from tests.unit.bench.test_accuracy import texts

QUOTA = 1_000_000
SIZE = 10_000
FAULT = {fault.name: fault for fault in FAULTS}


def direction(name: str, *, gap: tuple[float, float] = (0.0, 0.0), extra: int = 0) -> Direction:
    """The quota for 40 s, the clients in turn; nothing within the gap, and so much more at 30 s."""
    found = Direction()
    for index in range(4000):
        at = index / 100
        if not gap[0] <= at < gap[1]:
            found.let_through.append((at, at, SIZE))
            found.notes.append((at, index % CONNECTIONS[name], index, SIZE))
    found.let_through += [(30.0, 30.0, SIZE)] * (extra // SIZE)
    return found


def played(**directions: Direction) -> Played:
    return Played(
        marks=[(FAULT["none"], 5.0, 15.0), (FAULT["worker"], 15.0, 25.0), (FAULT["holder"], 25.0, 35.0)],
        lives=[(-1.0, 99.0), (-1.0, 15.0), (15.0, 99.0)],
        directions=directions,
    )


def test_rows_say_what_passed_while_each_fault_lasted() -> None:
    none, worker, holder = rows(played(produce=direction("produce", gap=(16.0, 18.0))), QUOTA)
    assert (none.rate, none.below, none.lost) == (1.0, 0.0, 0)
    assert (worker.fault.name, worker.seconds) == ("worker", 10.0)
    assert worker.rate == pytest.approx(0.8)
    # Windows of 2 s that hold more than 3 % of the gap: from 15.06 s to 18.94 s.
    assert worker.below == pytest.approx(3.9, abs=0.15)
    assert holder.rate == 1.0
    assert none.jain == pytest.approx(1.0, abs=0.001)


def test_rows_show_what_was_above_the_bound_at_its_fault() -> None:
    # 3 MB at once, where there may be one second of the quota and a request of each process.
    none, worker, holder = rows(played(produce=direction("produce", extra=3_000_000)), QUOTA)
    assert max(none.excess.excess, worker.excess.excess) < 0 < holder.excess.excess
    # 2 s above the burst; less a request of 10 kB of each of the two processes that live, and more by the one that is
    # due at the same time.
    assert holder.excess.excess == pytest.approx(2.0 - 0.02 + 0.01)


def test_report_has_bars_for_what_must_not_happen() -> None:
    run = played(produce=direction("produce"), consume=direction("consume"))
    lost = run.directions["produce"]
    lost.lost = [lost.notes[2000]]
    run.directions["consume"].seen["skipped or repeated"] = 1
    outcome = report(run, QUOTA)
    missed = [bar.name for bar in outcome.bars if not bar.passed]
    assert missed == [
        "schedule, produce, all faults: acknowledged records lost",
        "schedule, consume, all faults: skipped or repeated",
    ]
    (table,) = outcome.tables
    assert [row[-1] for row in table.rows] == ["0", "–", "1", "–", "0", "–"]


def test_picture_has_a_mark_for_each_fault(tmp_path: Path) -> None:
    draw(played(produce=direction("produce")), QUOTA, tmp_path / "faults.svg")
    assert {"none", "worker", "holder", "produce"} <= texts(tmp_path / "faults.svg")
