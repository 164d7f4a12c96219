"""The loop closed (issue 7): demand, capture, Spark, recommendation, applied, sent again.

The hog and the bootstrap are held and wait as long as predicted; no other client waits at all.
"""

from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.tune.loop import HOGS, Compared, Tuned, tune


@pytest.mark.timeout(900)
def test_predicted_throttling_matches_the_measured_one(kafka: Cluster, tmp_path: Path) -> None:
    tuned = tuned_in(kafka, tmp_path / "first")
    if not all(as_predicted(row) for row in tuned.compared):
        # A loaded machine delays some requests by chance; a wrong prediction is wrong each time.
        tuned = tuned_in(kafka, tmp_path / "second")
    assert {row.client for row in tuned.compared} >= HOGS
    for row in tuned.compared:
        assert row.errors == 0, row
        assert as_predicted(row), row
        if row.client in HOGS:
            assert row.predicted_ms > 1000, row
            assert row.observed_rate < row.demand or row.quota < row.demand, row


def tuned_in(kafka: Cluster, directory: Path) -> Tuned:
    directory.mkdir()
    tuned = tune(kafka.bootstrap(), directory, 30.0, print)
    print(tuned.said)
    return tuned


def as_predicted(row: Compared) -> bool:
    """Whether a client waited as it was to: the hog and the bootstrap within a tenth, all others not at all."""
    if row.client in HOGS:
        return row.observed_ms == pytest.approx(row.predicted_ms, rel=0.1)
    return (row.predicted_ms, row.observed_ms) == (0, 0)
