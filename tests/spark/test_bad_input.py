"""Captures that cannot be used: what is said, and that nothing half-written is left."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from offline.errors import InputError
from offline.jobs import ingest
from offline.options import IngestOptions
from offline.store import Store
from offline.transforms.order import Clock, too_far_apart
from tests.support.pipeline import first
from tests.support.synthetic import START_WALL_MS, Client, write_capture

CLIENTS = [Client(name="a", shape="steady", rate=500_000), Client(name="b", shape="steady", rate=300_000)]
Change = Callable[[pa.Table], pa.Table]


def capture(directory: Path, change: Change) -> Path:
    """A capture whose only file was changed."""
    write_capture(directory, CLIENTS, 3)
    (file,) = directory.glob("*.parquet")
    pq.write_table(change(pq.read_table(file)), file)
    return file


def replaced(table: pa.Table, column: str, values: pa.Array) -> pa.Table:
    field = table.schema.field(column).with_nullable(nullable=True)
    return table.set_column(table.schema.get_field_index(column), field, values)


def spoilt(column: str, row: int, change: Callable[[Any], Any]) -> Change:
    """Change one value."""

    def spoil(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row] = change(values[row])
        return replaced(table, column, pa.array(values, table[column].type))

    return spoil


def whole(table: pa.Table) -> pa.Table:
    return table


def ingested(spark: SparkSession, directory: Path, *, lenient: bool = False) -> tuple[Store, list[str]]:
    store = Store(spark, str(directory.parent / "work"))
    said = ingest.run(spark, IngestOptions(inputs=(str(directory),), lenient=lenient), store)
    return store, said


def test_bad_files_are_all_named_and_nothing_is_written(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "capture"
    write_capture(directory, CLIENTS, 2)
    (directory / "capture-x-1.parquet").write_bytes(b"PAR1 and no more")
    pq.write_table(pa.table({"a": [1]}), directory / "capture-x-2.parquet")
    with pytest.raises(InputError) as caught:
        ingested(spark, directory)
    assert "capture-x-1.parquet is no whole Parquet file" in str(caught.value)
    assert "capture-x-2.parquet is Parquet, and no capture" in str(caught.value)
    assert not (tmp_path / "work" / "ingest").exists()
    store, said = ingested(spark, directory, lenient=True)
    assert store.read("ingest/problems").count() == 2
    assert any("capture-x-1.parquet" in line for line in said)


def test_a_file_that_is_damaged_inside_is_named(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "capture"
    file = capture(directory, whole)
    data = bytearray(file.read_bytes())
    data[100 : len(data) // 2] = bytes(len(data) // 2 - 100)
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"capture-.*\.parquet cannot be read to its end"):
        ingested(spark, directory)
    assert not (tmp_path / "work").exists() or not list((tmp_path / "work").glob("*"))


def test_an_empty_capture_is_said(spark: SparkSession, tmp_path: Path) -> None:
    capture(tmp_path / "capture", lambda table: table.slice(0, 0))
    with pytest.raises(InputError, match=r"no requests in .*: 1 whole files, all empty"):
        ingested(spark, tmp_path / "capture")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (spoilt("request_bytes", 5, lambda _: -7), r"\.parquet, row 5: request_bytes is below 0"),
        (spoilt("mono_us", 10, lambda at_us: at_us - 500_000), "row 10: is out of order"),
        (spoilt("client_id", 7, lambda _: None), "row 7: a column is null or missing: client_id"),
    ],
    ids=["impossible", "clock goes backwards", "null"],
)
def test_a_wrong_row_is_named_and_can_be_left_out(
    spark: SparkSession, tmp_path: Path, change: Change, problem: str
) -> None:
    rows = pq.read_metadata(capture(tmp_path / "capture", change)).num_rows
    with pytest.raises(InputError, match=problem):
        ingested(spark, tmp_path / "capture")
    store, _ = ingested(spark, tmp_path / "capture", lenient=True)
    assert store.read("ingest/requests").count() == rows - 1
    assert store.read("ingest/requests").filter("request_bytes < 0").count() == 0


def test_a_copy_of_a_file_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    file = capture(tmp_path / "capture", whole)
    table = pq.read_table(file)
    pq.write_table(table, file.with_name("capture-copy-1.parquet"))
    with pytest.raises(InputError, match=rf"(?s)row 0: is there twice: .* and {len(table) - 20} more"):
        ingested(spark, tmp_path / "capture")
    store, said = ingested(spark, tmp_path / "capture", lenient=True)
    kept = store.read("ingest/requests").select("connection", "seq")
    assert kept.count() == kept.distinct().count() == len(table)
    assert f"left out: {len(table)} rows and 0 files" in said[1]
    # The first twenty by name, the others as a number.
    noted = [row["problem"] for row in store.read("ingest/problems").collect()]
    assert len(noted) == 21
    assert any(problem.startswith(f"has {len(table) - 20} more: is there twice") for problem in noted)


def test_a_clock_that_goes_backwards_in_another_file_is_found(spark: SparkSession, tmp_path: Path) -> None:
    file = capture(tmp_path / "capture", lambda table: table.sort_by("seq"))
    table = pq.read_table(file)
    early = pc.subtract(table["mono_us"], 700_000).combine_chunks()
    pq.write_table(table.slice(0, 100), file)
    late = replaced(table, "mono_us", early).slice(100)
    pq.write_table(late, file.with_name("capture-late-1.parquet"))
    with pytest.raises(InputError, match="is out of order"):
        ingested(spark, tmp_path / "capture")
    store, _ = ingested(spark, tmp_path / "capture", lenient=True)
    before = Window.partitionBy("connection").orderBy("seq")
    went = store.read("ingest/requests").select((F.col("at_us") - F.lag("at_us").over(before)).alias("us"))
    assert went.filter("us < 0").count() == 0
    assert went.count() > 100


def test_a_file_that_is_taken_away_while_it_is_read_is_said(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = capture(tmp_path / "capture", whole)

    def rotate(clocks: Sequence[Clock]) -> str:
        file.unlink(missing_ok=True)
        return too_far_apart(clocks)

    monkeypatch.setattr(ingest, "too_far_apart", rotate)  # called after the first of two readings
    with pytest.raises(InputError, match=r"capture-.*\.parquet was there when ingest began, and is gone"):
        ingested(spark, tmp_path / "capture")


def test_records_of_a_topic_are_rows_or_nothing(spark: SparkSession) -> None:
    schema = "value binary, partition int, offset bigint, headers array<struct<key:string,value:binary>>"
    records = spark.createDataFrame(
        [(b'{"seq": 3, "client_id": "a"}', 1, 7, None), (b"no row", 0, 8, [("sluice.capture.schema", b"2")])],
        schema,
    )
    found = ingest.parse(records, "t").orderBy("row").collect()
    assert [(row["file"], row["row"], row["seq"], row["layout"]) for row in found] == [
        ("kafka:t-1", 7, 3, None),
        ("kafka:t-0", 8, None, "2"),
    ]


def test_rows_in_any_order_are_the_same_capture(spark: SparkSession, tmp_path: Path) -> None:
    capture(tmp_path / "a" / "capture", whole)
    capture(tmp_path / "b" / "capture", lambda table: table.sort_by([("seq", "descending")]))
    found = [
        ingested(spark, tmp_path / name / "capture")[0]
        .read("ingest/requests")
        .orderBy("connection", "seq")
        .select("connection", "seq", "at_us", "request_bytes")
        .toArrow()
        for name in ("a", "b")
    ]
    assert found[0].equals(found[1])


def test_a_step_of_the_wall_clock_is_named_and_changes_no_interval(
    spark: SparkSession, tmp_path: Path
) -> None:
    def step(table: pa.Table) -> pa.Table:
        late = pc.greater(table["mono_us"], 2_500_000)
        moved = pc.if_else(late, pc.add(table["wall_ms"], 3_600_000), table["wall_ms"])
        return replaced(table, "wall_ms", moved.combine_chunks())

    capture(tmp_path / "capture", step)
    store, said = ingested(spark, tmp_path / "capture")
    steps = ("the wall clock has stepped by 36000", "the wall clock has stepped by 3599")
    assert any(step in line for step in steps for line in said)
    span = first(store.read("ingest/requests").agg((F.max("at_us") - F.min("at_us")).alias("us")))
    assert span["us"] < 3_100_000


def test_a_clock_that_is_set_late_is_believed_from_then_on(spark: SparkSession, tmp_path: Path) -> None:
    def late(table: pa.Table) -> pa.Table:
        early = pc.less(table["mono_us"], 2_000_000)  # a third of the time: it starts in 1970
        moved = pc.if_else(early, pc.divide(table["mono_us"], 1000), table["wall_ms"])
        return replaced(table, "wall_ms", moved.combine_chunks())

    file = capture(tmp_path / "a" / "capture", late)
    table = pq.read_table(file)
    store, said = ingested(spark, tmp_path / "a" / "capture")
    steps = {f"the wall clock has stepped by {START_WALL_MS + rest} ms here" for rest in (-1, 0, 1)}
    assert any(line.endswith(tuple(steps)) for line in said)
    (process,) = store.read("ingest/processes").collect()
    first_us, last_us = (min(table["mono_us"].to_pylist()), max(table["mono_us"].to_pylist()))
    # The wall clock says whole ms, so the offset is up to one below the true one.
    assert START_WALL_MS * 1000 - 1000 <= process["offset_us"] <= START_WALL_MS * 1000
    assert process["first_wall_ms"] == (first_us + process["offset_us"]) // 1000
    assert process["last_wall_ms"] == (last_us + process["offset_us"]) // 1000


def test_a_clock_that_stays_wrong_is_named(spark: SparkSession, tmp_path: Path) -> None:
    def wrong(table: pa.Table) -> pa.Table:
        return replaced(table, "wall_ms", pc.divide(table["mono_us"], 1000).combine_chunks())

    capture(tmp_path / "capture", wrong)
    write_capture(tmp_path / "capture", CLIENTS, 6, process="good")
    with pytest.raises(InputError, match=r"20,454 days .*: look at process 2026.*-synthetic, which says"):
        ingested(spark, tmp_path / "capture")
    assert not (tmp_path / "work" / "ingest").exists()


def test_two_processes_keep_their_connections_apart(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "capture"
    for process in ("one", "two"):
        write_capture(directory, CLIENTS, 2, process=process)
    store, said = ingested(spark, directory)
    assert store.read("ingest/requests").select("connection").distinct().count() == 4
    assert "of 2 processes" in said[0]


def test_brokers_own_fetchers_are_no_clients(spark: SparkSession, tmp_path: Path) -> None:
    fetcher = Client(name="broker-2-fetcher-0", shape="steady", rate=1e5)
    write_capture(tmp_path / "capture", [*CLIENTS, fetcher], 2)
    store, _ = ingested(spark, tmp_path / "capture")
    names = store.read("ingest/requests").select("client_id").distinct().collect()
    assert {row["client_id"] for row in names} == {"a", "b"}
