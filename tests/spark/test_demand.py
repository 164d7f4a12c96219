"""Demand over time that was not recorded as a whole, with the numbers counted by hand."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from offline.jobs import demand, ingest
from offline.options import IngestOptions
from offline.schemas import TABLES, ddl
from offline.store import Store
from offline.transforms import demand as transform
from tests.support.pipeline import first
from tests.support.synthetic import Client, write_capture

CLIENTS = [Client(name="a", shape="steady", rate=500_000)]
WEEK_S = 7 * 86_400


def shifted(file: Path, by_ms: int) -> None:
    table = pq.read_table(file)
    moved = pc.add(table["wall_ms"], pa.scalar(by_ms))
    index = table.schema.get_field_index("wall_ms")
    pq.write_table(table.set_column(index, table.schema.field("wall_ms"), moved), file)


def test_unrecorded_time_is_not_part_of_the_average(spark: SparkSession, tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    for process in ("one", "two"):
        write_capture(capture, CLIENTS, 20, process=process)
    (second,) = capture.glob("capture-two-*.parquet")
    shifted(second, WEEK_S * 1000)
    store = Store(spark, str(tmp_path / "work"))
    ingest.run(spark, IngestOptions(inputs=(str(capture),)), store)
    demand.run(spark, store, store)
    span = first(store.read("demand/span"))
    # Each has rows from 1.0 s to 21.0 s of its clock: seconds 1 to 20; the second one a week later.
    assert (span["recorded_seconds"], span["seconds"]) == (40, WEEK_S + 20)
    entity, broker, hour = (
        first(store.read(f"demand/{table}")) for table in ("entities", "brokers", "diurnal")
    )
    assert entity["mean"] == broker["mean"] == hour["bytes_per_second"] == entity["bytes"] / 40
    assert store.read("demand/diurnal").agg(F.count("*").alias("n")).first() == (1,)


def test_a_request_is_with_the_broker_in_all_seconds_that_it_covers(spark: SparkSession) -> None:
    # A Fetch of 2.5 s from 10.75 s on, one of 0.2 s within a second, and a Produce whose response comes after the end.
    rows = [(1, 10_750_000, 2_500_000), (1, 11_100_000, 200_000), (0, 13_500_000, 30_000_000)]
    requests = spark.createDataFrame(
        [
            (at_us, 7, number, "", "a", 1, api_key, 100, 100, service_us, 0, 0, 0)
            for number, (api_key, at_us, service_us) in enumerate(rows)
        ],
        ddl(TABLES["ingest/requests"]),
    )
    seconds = transform.per_second(transform.charged(requests), 14)
    found = seconds.orderBy("direction", "second").collect()
    assert [(row["direction"], row["second"], row["requests"], row["in_flight"]) for row in found] == [
        ("fetch", 10, 0, 0.25),
        ("fetch", 11, 1, 1.0 + 0.2),
        ("fetch", 12, 0, 1.0),
        ("fetch", 13, 1, 0.25),
        ("produce", 13, 1, 0.5),
    ]
    entity = first(transform.entities(seconds, 4).filter("direction = 'fetch'"))
    assert (entity["active_seconds"], entity["p50"], entity["in_flight_max"]) == (2, 100.0, 1.2)
