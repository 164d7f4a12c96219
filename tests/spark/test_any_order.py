"""Rows in another order give the same numbers to the last bit: on a cluster tasks end in an order of their own."""

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from offline.schemas import TABLES, ddl
from offline.transforms import demand, requests
from offline.transforms.candidates import unthrottled
from tests.support.pipeline import first

CAPTURED = "process string, wall_ms bigint, mono_us bigint"
PEAKS = "direction string, user string, client_id string, peak_1s double, peak_10s double"


@pytest.fixture(params=[1, -1], ids=["as made", "the other way round"])
def step(request: pytest.FixtureRequest) -> int:
    """Return the step through a list of rows."""
    found: int = request.param
    return found


def frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """Rows in one partition, which are added up in this order."""
    return spark.createDataFrame(list(rows), schema).coalesce(1)


def test_requests_in_flight_at_several_brokers(spark: SparkSession, step: int) -> None:
    """As fractions, 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1."""
    rows = [("fetch", "", "a", broker, 7, 10, 1, 1, broker / 10) for broker in (1, 2, 3)][::step]
    seconds = frame(spark, rows, ddl(TABLES["demand/per_second"]))
    assert first(demand.entities(seconds, 1))["in_flight_max"] == 0.6


def test_clock_of_a_process_with_two_requests_in_one_microsecond(spark: SparkSession, step: int) -> None:
    """The wall clock has moved by a millisecond between them."""
    rows = [("p", 1_000, 500), ("p", 1_001, 500)][::step]
    found = first(requests.processes(frame(spark, rows, CAPTURED)))
    assert (found["offset_us"], found["started_us"]) == (999_500, 999_500)


def test_demand_of_a_client_that_was_throttled(spark: SparkSession, step: int) -> None:
    """Its pauses are 0.1, 0.2 and 0.3 s, of 1 s: it would have asked for 2.5 times as much."""
    pauses = [Row(direction="fetch", user="", client_id="a", throttle_ms=pause) for pause in (100, 200, 300)][
        ::step
    ]
    rows = spark.createDataFrame(pauses).coalesce(1)
    entities = spark.createDataFrame(
        [Row(direction="fetch", user="", client_id="a", active_seconds=1, connections_max=1)]
    )
    peaks = frame(spark, [("fetch", "", "a", 1e6, 1e5)], PEAKS)
    found = first(unthrottled(peaks, entities, rows))
    assert (found["peak_1s"], found["peak_10s"]) == (2.5e6, 2.5e5)
