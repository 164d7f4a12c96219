"""The loop closed (issue 7): demand, capture, Spark, recommendation, applied, sent again.

The hog and the bootstrap are held and wait as long as predicted for what they send; no other client waits at all.
"""

from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.tune.loop import HOGS, tune


@pytest.mark.timeout(900)
def test_predicted_throttling_matches_the_measured_one(kafka: Cluster, tmp_path: Path) -> None:
    tuned = tune(kafka.bootstrap(), tmp_path, 30.0, print)
    print(tuned.said)
    assert {row.client for row in tuned.compared} >= HOGS
    for row in tuned.compared:
        assert row.as_predicted, row
        if row.client in HOGS:
            assert row.observed_rate < row.demand or row.quota < row.demand, row
