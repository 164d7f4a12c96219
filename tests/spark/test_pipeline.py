"""The stages one after another, against numbers computed without Spark."""

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from offline.errors import InputError
from offline.jobs import apply, recommend, report
from offline.options import ApplyOptions
from offline.schemas import TABLES
from offline.store import Store
from quotas.backtest.outcomes import backtest
from quotas.backtest.recording import recording_of
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.toml_file import parse
from quotas.options import EngineOptions
from tests.support.pipeline import GOAL, SECONDS, Pipeline, first

# Nothing was wrong, created, or throttled, in less than two days, and no quotas in force state a capacity.
EMPTY = {
    "ingest/problems",
    "demand/mutations",
    "demand/pauses",
    "recommend/forecasts",
    "recommend/classes",
    "recommend/shared",
}


@pytest.mark.parametrize("table", sorted(table for table in TABLES if not table.startswith("evaluate/")))
def test_every_table_has_its_declared_columns(pipeline: Pipeline, table: str) -> None:
    path = Path(pipeline.store.path) / table
    written = pq.read_schema(next(path.glob("*.parquet")))
    assert written.names == [column.name for column in TABLES[table]]
    assert pipeline.store.read(table).count() >= (table not in EMPTY)


def test_no_row_is_lost(pipeline: Pipeline) -> None:
    assert pipeline.store.read("ingest/requests").count() == pipeline.requests
    seconds = first(pipeline.store.read("demand/per_second").agg(F.sum("requests").alias("n")))
    assert seconds["n"] == pipeline.requests


def test_peaks_are_those_of_a_sliding_mean(pipeline: Pipeline) -> None:
    rows = (
        pipeline.store.read("demand/per_second")
        .filter(F.col("client_id") == "bursty")
        .select("second", "bytes")
        .collect()
    )
    begin = min(row["second"] for row in rows)
    seconds = np.zeros(SECONDS + 20)
    for row in rows:
        seconds[row["second"] - begin] += row["bytes"]
    found = first(pipeline.store.read("demand/entities").filter(F.col("client_id") == "bursty"))
    for length, name in ((1, "peak_1s"), (10, "peak_10s"), (60, "peak_60s")):
        assert found[name] == pytest.approx(np.convolve(seconds, np.ones(length)).max() / length)
    assert found["bytes"] == seconds.sum()


def test_the_hog_is_ranked_first_and_has_its_connections(pipeline: Pipeline) -> None:
    produce = pipeline.store.read("demand/entities").filter(F.col("direction") == "produce")
    hog = first(produce.orderBy("rank"))
    assert (hog["client_id"], hog["connections_max"], hog["rank"]) == ("hog", 4, 1)
    assert hog["share"] == pytest.approx(6 / (6 + 8 * 0.2 + 0.15), rel=0.1)


def test_the_backtest_is_the_fast_path_over_each_limiter(pipeline: Pipeline) -> None:
    """Whatever tasks the candidates were divided among, in whatever order the rows came."""
    rows = (
        pipeline.store.read("ingest/requests")
        .filter(F.col("client_id") == "hog")
        .orderBy("connection", "seq")
        .toArrow()
    )
    recording = recording_of(
        connection=rows["connection"].to_numpy(),
        at_us=rows["at_us"].to_numpy(),
        sizes=rows["request_bytes"].to_numpy(),
        service_us=rows["service_us"].to_numpy(),
        consumes=False,
    )
    settings = json.loads(pipeline.store.text("backtest/settings.json"))
    span = first(pipeline.store.read("demand/span"))
    expected = backtest(
        recording, settings["produce"], EngineOptions(), start_s=span["start_s"], seconds=span["seconds"]
    )
    outcomes, loads = (
        {row["quota"]: row for row in pipeline.store.read(table).filter("client_id = 'hog'").collect()}
        for table in ("backtest/outcomes", "backtest/loads")
    )
    for outcome, load in zip(expected.each, expected.load, strict=True):
        row = outcomes[outcome.limit]
        assert (row["throttle_ms"], row["throttled"], row["throttle_ms_p99"], row["bytes_late"]) == (
            outcome.throttle_ms,
            outcome.throttled,
            outcome.throttle_ms_p99,
            outcome.bytes_late,
        )
        assert loads[outcome.limit]["bytes"] == load.tolist()


def test_a_heavy_clients_work_is_divided(pipeline: Pipeline) -> None:
    """The hog has two thirds of the requests; no task decides so much."""
    tasks = [row["requests"] for row in pipeline.store.read("backtest/tasks").collect()]
    assert sum(tasks) == pipeline.requests * 12
    assert max(tasks) < 0.5 * sum(tasks)


def test_loads_and_lateness_are_all_bytes(pipeline: Pipeline) -> None:
    passed = (
        pipeline.store.read("backtest/loads")
        .select(
            "direction", "quota", F.aggregate("bytes", F.lit(0).cast("bigint"), lambda a, b: a + b).alias("n")
        )
        .groupBy("direction", "quota")
        .agg(F.sum("n").alias("passed"))
    )
    asked = (
        pipeline.store.read("backtest/outcomes")
        .groupBy("direction", "quota")
        .agg(F.sum("bytes").alias("bytes"), F.sum("bytes_late").alias("late"))
    )
    rows = passed.join(asked, on=["direction", "quota"], how="inner").collect()
    assert len(rows) > 12
    assert all(row["passed"] + row["late"] == row["bytes"] for row in rows)


def test_the_hog_is_held_and_the_others_are_not_throttled(pipeline: Pipeline) -> None:
    needs = pipeline.store.read("recommend/needs").filter("direction = 'produce'").collect()
    assert [row["client_id"] for row in needs if row["throttled"]] == ["hog"]
    default = first(pipeline.store.read("recommend/recommendations").filter("kind = 'default'"))
    assert default["key"] == "producer_byte_rate"
    assert default["peak_before"] > 6e6
    assert default["peak_after"] <= 4e6  # the capacity
    assert default["confidence"].startswith("low")


def test_quotas_file_holds_the_recommendation(pipeline: Pipeline) -> None:
    text = pipeline.store.text("recommend/quotas.toml")
    assert text.startswith(
        '# Recommended for policy "kip13" and scope "broker": each quota holds at each broker'
    )
    found = dict(parse(text).entries())
    default = found[Entity(client_id=DEFAULT)]
    assert set(default) == {"producer_byte_rate", "consumer_byte_rate"}
    assert 200_000 <= default["producer_byte_rate"] < 1e6
    assert all(entity.client_id in (DEFAULT, "hog", "rebuild") for entity in found)


def test_the_report_needs_nothing_else(pipeline: Pipeline) -> None:
    text = pipeline.store.text("report/report.html")
    assert text.count("<svg") == 8  # four each way: forty seconds are no day
    assert "hog" in text
    for outside in ("<script", "<link", "src=", "@import", "url(http"):
        assert outside not in text


def test_apply_sets_the_recommended_quotas(pipeline: Pipeline, tmp_path: Path) -> None:
    file = tmp_path / "quotas.toml"
    assert "changed" in apply.run(ApplyOptions(quotas_file=str(file)), pipeline.store.path)[1]
    recommended = dict(parse(pipeline.store.text("recommend/quotas.toml")).entries())
    assert dict(parse(file.read_text()).entries()) == recommended
    steps = ApplyOptions(quotas_file=str(tmp_path / "steps.toml"), step=1, steps=3)
    apply.run(steps, pipeline.store.path)
    found = dict(parse((tmp_path / "steps.toml").read_text()).entries())
    assert found[Entity(client_id=DEFAULT)]["producer_byte_rate"] > 1e6  # on its way down from the hog's six


def test_workers_are_the_running_interpreter(spark: SparkSession) -> None:
    """What `python3` is on the PATH does not matter: it may have other packages."""

    def who(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (pa.RecordBatch.from_pydict({"executable": [sys.executable]}) for _ in batches)

    found = spark.range(1).mapInArrow(who, "executable string").collect()
    assert {row["executable"] for row in found} == {sys.executable}


def test_output_of_a_killed_run_is_ignored_and_removed(spark: SparkSession, tmp_path: Path) -> None:
    left = tmp_path / ".demand.partial" / "span"
    left.mkdir(parents=True)
    (left / "half.parquet").write_bytes(b"PAR1")
    store = Store(spark, str(tmp_path))
    with pytest.raises(InputError, match="no finished stage demand"):
        store.read("demand/span")
    with store.writing("demand") as writer:
        writer.put("note.txt", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demand"]
    assert store.text("demand/note.txt") == "whole"


def test_failed_stage_keeps_the_previous_output(pipeline: Pipeline) -> None:
    before = sorted(Path(pipeline.store.path).iterdir())
    with pytest.raises(ZeroDivisionError), pipeline.store.writing("demand") as writer:
        writer.put("half.txt", str(1 // 0))
    assert sorted(Path(pipeline.store.path).iterdir()) == before
    assert pipeline.store.finished("demand")


def test_output_of_another_run_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def finish(stage: str, *sources: Store) -> None:
        with Store(spark, str(tmp_path)).writing(stage, *sources) as writer:
            writer.put("note.txt", stage)

    def read(stage: str) -> Store:
        store = Store(spark, str(tmp_path))
        assert store.text(f"{stage}/note.txt") == stage
        return store

    finish("ingest")
    finish("demand", read("ingest"))
    finish("backtest", read("demand"))
    assert read("backtest").stages_read.keys() == {"backtest"}
    finish("ingest")
    with pytest.raises(InputError, match="demand was made from an earlier run of ingest"):
        read("backtest")
    finish("demand", read("ingest"))
    with pytest.raises(InputError, match="backtest was made from an earlier run of demand"):
        read("backtest")


def test_a_sample_has_loads_and_no_limits(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    """A tenth of the connections is not a tenth of each client."""
    work = Path(shutil.copytree(pipeline.store.path, tmp_path / "work"))
    store = Store(spark, str(work))
    recommend.run(spark, replace(GOAL, sample=0.1, network=100e6), store, store)
    rows = store.read("recommend/recommendations").collect()
    assert {(row["kind"], row["key"]) for row in rows if row["value"] < 0} == {
        ("default", "producer_byte_rate"),
        ("default", "consumer_byte_rate"),
    }
    assert {row["kind"] for row in rows if row["value"] >= 0} == {"replication"}
    assert all(row["confidence"].startswith("low") for row in rows)
    assert all("0.1 of the connections" in row["reason"] for row in rows if row["value"] < 0)
    whole, scaled = (
        first(one.read("recommend/before_after").agg(F.max("before").alias("peak")))["peak"]
        for one in (pipeline.store, store)
    )
    assert scaled == pytest.approx(10 * whole)
    assert store.text("recommend/quotas.toml") == ""
    report.run(spark, store, store)
    text = store.text("report/report.html")
    assert text.count("<svg") == 6  # no curve either way
    assert "recommended quota" not in text
