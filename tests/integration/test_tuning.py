"""The loop closed (issue 7): demand, capture, Spark, recommendation, applied, sent again.

The hog and the bootstrap are held, nobody else waits at all, and they wait as long as predicted.
"""

from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.tune.loop import HOGS, tune


@pytest.mark.timeout(600)
def test_what_is_predicted_is_what_happens(kafka: Cluster, tmp_path: Path) -> None:
    tuned = tune(kafka.bootstrap(), tmp_path, 30.0, print)
    print(tuned.said)
    assert {row.client for row in tuned.compared} >= HOGS
    for row in tuned.compared:
        assert row.errors == 0, row
        if row.client in HOGS:
            assert row.predicted_ms > 1000, row
            assert row.observed_ms == pytest.approx(row.predicted_ms, rel=0.1), row
            assert row.observed_rate < row.demand or row.quota < row.demand, row
        else:
            assert (row.predicted_ms, row.observed_ms) == (0, 0), row
