"""Fifteen clients of known demand, what the quotas are to achieve for them, and where their pipeline has run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from offline.options import Goal
from offline.schemas import TABLES, ddl
from offline.store import Store
from tests.support.synthetic import Client

SECONDS = 40
CLIENTS = [
    *(
        Client(name=f"steady-{number}", shape="steady", rate=200_000, broker=1 + number % 2)
        for number in range(8)
    ),
    Client(name="bursty", shape="bursty", rate=150_000, broker=2),
    Client(name="hog", shape="hog", rate=6e6, connections=4, broker=1),
    *(
        Client(name=f"reader-{number}", shape="steady", rate=300_000, produces=False, request_bytes=60_000)
        for number in range(4)
    ),
    Client(
        name="rebuild",
        shape="bootstrap",
        rate=1e6,
        produces=False,
        request_bytes=300_000,
        start_s=10.0,
        stop_s=12.0,
    ),
]
GOAL = Goal(capacity_in=4e6, capacity_out=60e6, throttled_share=0.1, overrides=2)


@dataclass(frozen=True)
class Pipeline:
    """A work directory in which every stage but apply has run."""

    store: Store
    capture: Path
    requests: int


def first(frame: DataFrame) -> Row:
    """Return the first row of a table that has one."""
    found = frame.first()
    assert found is not None, "there is a row"
    return found


def write_ingested(store: Store, rows: Mapping[str, Any], clock_ms: tuple[int, int]) -> None:
    """Write the stage ingest as if one process had recorded these rows.

    Args:
        rows: the columns of `ingest/requests`; what is left out is "" or 0 in each row.
        clock_ms: the first and the last time of its clock.
    """
    spark = store.spark
    columns = TABLES["ingest/requests"]
    count = len(rows["at_us"])
    empty = {"string": ""}
    table = pa.table(
        {column.name: rows.get(column.name, [empty.get(column.type, 0)] * count) for column in columns}
    )
    with store.writing("ingest") as writer:
        writer.table("requests", spark.createDataFrame(table))
        clock = [("p", 0, count, *clock_ms, 0, 0)]
        writer.table("processes", spark.createDataFrame(clock, ddl(TABLES["ingest/processes"])))
        writer.table("problems", spark.createDataFrame([], ddl(TABLES["ingest/problems"])))
        writer.put("settings.json", json.dumps({"by": "client-id"}))
