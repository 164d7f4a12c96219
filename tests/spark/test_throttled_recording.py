"""A recording made while quotas were enforced: the pauses that it was told are taken out before others are tried."""

from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from offline.jobs import backtest, demand
from offline.options import BacktestOptions
from offline.store import Store
from quotas.backtest.outcomes import backtest as fast_path
from quotas.backtest.recording import recording_of
from quotas.options import EngineOptions
from tests.support.pipeline import first, write_ingested

PAIRS = 20
RESPONSE_BYTES = 6_000_000
RESPONDED, EMPTIED = 100_000, -1  # service time, us
MUTE_MS = 5000
QUOTA = 2e6


def rows() -> dict[str, Any]:
    """A consumer that gets 6 MB, then an empty response with a mute of 5 s, and so on; it never pauses by itself."""
    sent_us = 10_000_000 + np.arange(PAIRS) * (RESPONDED + MUTE_MS * 1000)
    ones = np.ones(2 * PAIRS, np.int64)
    return {
        "at_us": np.column_stack((sent_us, sent_us + RESPONDED)).ravel(),
        "connection": ones,
        "seq": np.arange(2 * PAIRS),
        "client_id": ["reader", "reader"] * PAIRS,
        "broker": ones,
        "api_key": ones,
        "request_bytes": 100 * ones,
        "response_bytes": np.array([RESPONSE_BYTES, 20] * PAIRS),
        "service_us": np.array([RESPONDED, EMPTIED] * PAIRS),
        "throttle_ms": np.array([0, MUTE_MS] * PAIRS),
    }


def test_mutes_of_emptied_fetches_are_no_think_time(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(spark, str(tmp_path))
    made = rows()
    write_ingested(store, made, (10_000, 120_000))
    demand.run(spark, store, store)
    backtest.run(spark, BacktestOptions(produce=(QUOTA,), fetch=(QUOTA,), heavy=1), store, store)
    recording = recording_of(
        connection=made["connection"],
        at_us=made["at_us"],
        sizes=made["response_bytes"],
        service_us=made["service_us"],
        throttle_us=made["throttle_ms"] * 1000,
        consumes=True,
    )
    assert len(recording) == PAIRS, "what was emptied is no demand"
    span = first(store.read("demand/span"))
    expected = fast_path(
        recording, [QUOTA], EngineOptions(), start_s=span["start_s"], seconds=span["seconds"]
    ).each[0]
    (found,) = store.read("backtest/outcomes").collect()
    assert (found["requests"], found["throttled"], found["throttle_ms"]) == (
        PAIRS,
        expected.throttled,
        expected.throttle_ms,
    )
    # 120 MB at 2 MB/s take a minute; with the mutes as think time it would ask for 1.2 MB/s and never wait.
    assert 45_000 < expected.throttle_ms < 75_000
