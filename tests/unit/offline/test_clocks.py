"""Processes whose clocks cannot all be right."""

import pytest

from offline.transforms.order import Clock, too_far_apart

DAY_MS = 86_400_000
NOW_MS = 20_454 * DAY_MS  # 2026-01-01
GOOD = Clock("good", 1000, NOW_MS, NOW_MS + DAY_MS)
WRONG = Clock("wrong", 900, 5000, DAY_MS)


def test_captures_of_a_month_are_one_recording() -> None:
    assert not too_far_apart([GOOD._replace(first_ms=NOW_MS - 39 * DAY_MS), GOOD])
    assert too_far_apart([GOOD._replace(first_ms=NOW_MS - 40 * DAY_MS), GOOD])


@pytest.mark.parametrize("clocks", [[GOOD, WRONG], [WRONG, GOOD], [WRONG, GOOD, GOOD._replace(process="b")]])
def test_the_clock_that_fewer_requests_have_is_named(clocks: list[Clock]) -> None:
    said = too_far_apart(clocks)
    # 20,454 days from 1970 to 2026, and the day that the good one lasted, less five seconds.
    assert said.startswith("the capture would be 20,454 days long, from 1970-01-01 to 2026-01-02, and 40 are")
    assert "process wrong, which says that its 900 requests are from 1970-01-01 to 1970-01-02" in said
    assert "\n" not in said


def test_one_process_alone_is_named_itself() -> None:
    assert "process good" in too_far_apart([GOOD._replace(last_ms=NOW_MS + 500 * DAY_MS)])
