"""Consumers at a log's end beside one that replays, all of one client id, in front of real brokers.

How long the ten wait is measured by `python -m tests.bench.catch_up`; here is shown which quota delays whom.
"""

from pathlib import Path

import pytest

from tests.bench.catch_up import CLIENT_ID, READERS, Lane, Topics, gateway, measure
from tests.cluster import Cluster

MB = 1_000_000
SECONDS = 6.0
# The ten read 0.2 MB/s. The replay has four times less than it could use in these seconds.
BUDGET = {"consumer_byte_rate": MB}
CLASS = {**BUDGET, "catch_up_byte_rate": MB, "catch_up_lag": 100}
PAST_BYTES = 40 * MB


@pytest.fixture(scope="module")
def topics(kafka: Cluster) -> Topics:
    """Both topics, of which each lane reads the full one from its beginning."""
    return Topics(kafka, PAST_BYTES)


def test_replay_waits_for_its_own_quota_and_delays_no_consumer_at_the_end(
    topics: Topics, tmp_path: Path
) -> None:
    lane = Lane("a class of its own", CLASS, replays=1)
    with gateway(lane, topics.bootstrap, tmp_path) as sluice:
        readings = measure(lane, topics, sluice, SECONDS)
        assert (
            sluice.metric("sluice_client_throttled_requests_total", client_id=CLIENT_ID, type="CatchUp") > 0
        )
        behind = sluice.metric("sluice_client_bytes_total", client_id=CLIENT_ID, type="CatchUp")
        present = sluice.metric("sluice_client_bytes_total", client_id=CLIENT_ID, type="Fetch")
    assert readings.throttled == 0
    assert 0.5 * MB < readings.replayed < 1.7 * MB
    assert len(readings.delays_ms) > 0.5 * SECONDS * READERS * 20
    assert behind > 0.5 * SECONDS * MB
    assert 0 < present < 0.5 * SECONDS * MB


def test_without_it_they_share_one_quota(topics: Topics, tmp_path: Path) -> None:
    lane = Lane("one budget", BUDGET, replays=1)
    with gateway(lane, topics.bootstrap, tmp_path) as sluice:
        assert measure(lane, topics, sluice, 2.0).throttled > 0
        assert sluice.metric("sluice_client_bytes_total", client_id=CLIENT_ID, type="CatchUp") == 0
