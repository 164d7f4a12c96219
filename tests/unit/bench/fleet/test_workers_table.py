"""From what several workers used to a table and bars."""

from tests.bench.fleet.workers import LIMIT, Figures, report


def test_workers_are_compared_with_one_turn_by_turn() -> None:
    one = Figures([8.0, 8.0, 8.0], [10.0, 20.0, 10.0], [100.0] * 3, 0.001, [40.0])
    # A machine that is slower in the second turn is so for both.
    two = Figures([8.0, 8.0, 8.0], [10.4, 20.8, 10.4], [150.0] * 3, 0.01, [41.0, 33.0, 35.0])
    four = Figures([8.0, 8.0, 8.0], [11.0, 22.0, 11.0], [150.0] * 3, 0.02, [41.0, 33.0, 33.0, 34.0, 34.0])
    outcome = report({1: one, 2: two, 4: four})
    assert [(round(bar.measured or 0, 3), bar.limit, bar.passed) for bar in outcome.bars] == [
        (1.04, LIMIT, True),
        (1.1, LIMIT, False),
    ]
    (table,) = outcome.tables
    assert [row[-3:] for row in table.rows] == [("40", "–", "40"), ("41", "34", "109"), ("41", "34", "175")]
