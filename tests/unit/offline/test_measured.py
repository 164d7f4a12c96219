"""Figures made from the tables on Spark's driver."""

import numpy as np

from offline.jobs.measured import Effects, Span, needs_of


def test_the_tolerance_is_a_share_of_the_recorded_time_without_gaps() -> None:
    effects = Effects([("", "a")], np.array([[5000, 900, 0]]), np.zeros((1, 3), np.int64))
    # An hour each on Monday and on Thursday: 7.2 s of two hours may be waited, not 263 s of three days.
    apart = Span(start_s=0, seconds=3 * 86_400 + 3600, recorded=7200, requests=10)
    assert needs_of(effects, apart, 0.001) == {("", "a"): 0}
    assert needs_of(effects, apart, 0.0005) == {("", "a"): 1}


def test_a_wait_while_the_quota_was_not_used_up_is_no_need() -> None:
    effects = Effects([("", "a")], np.array([[9000, 8000, 8000]]), np.array([[1000, 8000, 8000]]))
    span = Span(start_s=0, seconds=300, recorded=300, requests=10)
    assert needs_of(effects, span, 0.001) == {("", "a"): 1}
