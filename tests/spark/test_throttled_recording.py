"""A recording made while quotas were enforced: the pauses that it was told are taken out before others are tried."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from offline.jobs import backtest, demand
from offline.options import BacktestOptions
from offline.schemas import TABLES, ddl
from offline.store import Store
from quotas.backtest.outcomes import backtest as fast_path
from quotas.backtest.recording import recording_of
from quotas.options import EngineOptions

PAIRS = 20
RESPONSE_BYTES = 6_000_000
RESPONDED, EMPTIED = 100_000, -1  # service time, us
MUTE_MS = 5000
QUOTA = 2e6


def rows() -> pa.Table:
    """A consumer that gets 6 MB, then an empty response with a mute of 5 s, and so on; it never pauses by itself."""
    pair_us = RESPONDED + MUTE_MS * 1000
    sent_us = 10_000_000 + np.arange(PAIRS) * pair_us
    columns = {
        "at_us": np.column_stack((sent_us, sent_us + RESPONDED)).ravel(),
        "connection": [1, 1] * PAIRS,
        "seq": np.arange(2 * PAIRS),
        "user": ["", ""] * PAIRS,
        "client_id": ["reader", "reader"] * PAIRS,
        "broker": [1, 1] * PAIRS,
        "api_key": [1, 1] * PAIRS,
        "request_bytes": [100, 100] * PAIRS,
        "response_bytes": [RESPONSE_BYTES, 20] * PAIRS,
        "service_us": [RESPONDED, EMPTIED] * PAIRS,
        "delay_ms": [0, 0] * PAIRS,
        "throttle_ms": [0, MUTE_MS] * PAIRS,
        "mutations": [0, 0] * PAIRS,
    }
    return pa.table({column.name: columns[column.name] for column in TABLES["ingest/requests"]})


def test_mutes_of_emptied_fetches_are_no_think_time(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(spark, str(tmp_path))
    made = rows()
    with store.writing("ingest") as writer:
        writer.table("requests", spark.createDataFrame(made))
        clock = [("p", 0, made.num_rows, 10_000, 120_000, 0, 0)]
        writer.table("processes", spark.createDataFrame(clock, ddl(TABLES["ingest/processes"])))
    demand.run(spark, store, store)
    backtest.run(spark, BacktestOptions(produce=(QUOTA,), fetch=(QUOTA,), heavy=1), store, store)
    recording = recording_of(
        connection=made["connection"].to_numpy(),
        at_us=made["at_us"].to_numpy(),
        sizes=made["response_bytes"].to_numpy(),
        service_us=made["service_us"].to_numpy(),
        throttle_us=made["throttle_ms"].to_numpy() * 1000,
        consumes=True,
    )
    assert len(recording) == PAIRS, "what was emptied is no demand"
    span = store.read("demand/span").first()
    assert span is not None
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
