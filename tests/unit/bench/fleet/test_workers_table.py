"""From what several workers used to a table and bars."""

from tests.bench.fleet.workers import ALONE, LIMIT, MANY, Figures, report


def figures(alone: list[float], memory: list[float]) -> Figures:
    return Figures({ALONE: alone, MANY: [8.0] * 3}, {ALONE: [90.0] * 3, MANY: [100.0] * 3}, 0.001, memory)


def test_workers_are_compared_with_one_turn_by_turn() -> None:
    one = figures([10.0, 20.0, 10.0], [40.0])
    # A machine that is slower in the second turn is so for both.
    two = figures([10.4, 20.8, 10.4], [41.0, 33.0, 35.0])
    four = figures([11.0, 22.0, 11.0], [41.0, 33.0, 33.0, 34.0, 34.0])
    outcome = report({1: one, 2: two, 4: four})
    assert [(round(bar.measured or 0, 3), bar.limit, bar.passed) for bar in outcome.bars] == [
        (1.04, LIMIT, True),
        (1.0, LIMIT, True),
        (1.1, LIMIT, False),
        (1.0, LIMIT, True),
    ]
    (table,) = outcome.tables
    assert [row[-3:] for row in table.rows] == [("40", "–", "40"), ("41", "34", "109"), ("41", "34", "175")]
    assert {len(row) for row in table.rows} == {len(table.columns)}
