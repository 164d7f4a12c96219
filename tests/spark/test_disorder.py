"""A backtest over requests that are in no order is the one over the same requests in order."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from offline.jobs import backtest
from offline.options import BacktestOptions
from offline.store import Store
from tests.support.pipeline import Pipeline


def outcomes(store: Store) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in store.read("backtest/outcomes").collect())


def test_requests_in_random_order_are_sorted_first(
    pipeline: Pipeline, spark: SparkSession, tmp_path: Path
) -> None:
    for stage in ("ingest", "demand"):
        shutil.copytree(Path(pipeline.store.path) / stage, tmp_path / stage)
    requests = tmp_path / "ingest" / "requests"
    whole = pq.read_table(requests)
    shutil.rmtree(requests)
    requests.mkdir()
    order = np.random.default_rng(1).permutation(len(whole))
    pq.write_table(whole.take(order), requests / "part-0.parquet")
    store = Store(spark, str(tmp_path))
    backtest.run(spark, BacktestOptions(candidates=12, heavy=3), store, store)
    raw = pq.read_table(tmp_path / "backtest" / "_raw").to_pylist()
    assert any(row["kind"] == "unordered" for row in raw)
    assert outcomes(store) == outcomes(pipeline.store)
