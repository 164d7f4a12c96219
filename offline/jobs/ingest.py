"""Captures -> `ingest/requests`: the files are judged, clocks made one, rows put into the shape that all stages read.

Bad input is an error that names the file, or the file and the row; with `lenient` it is left out, and named in
`ingest/problems`. A step of the wall clock is named and does no harm: intervals are the monotonic clock's, and its
offset is that of the longer stretch. A process whose clock is wrong to its end is refused where it lies too far away.
"""

import json
import re
from collections.abc import Sequence
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offline.capture_files import files_of, look
from offline.errors import InputError
from offline.options import IngestOptions
from offline.schemas import CAPTURE, TABLES, columns_of, ddl
from offline.store import Store, Writer
from offline.transforms import requests as transform
from offline.transforms.clocks import Clock, too_far_apart

__all__ = ["run"]

# A wall clock that is slewed by NTP moves by half a millisecond a second at most; a step is what jumps further.
STEP_MS: Final = 1000
NAMED_MAX: Final = 20  # problems in one message
_FILE_COLUMNS: Final = ("file", "row")
Problem = tuple[str, int, str]


def run(spark: SparkSession, options: IngestOptions, store: Store) -> list[str]:
    """Ingest; what an operator should know, line by line.

    Raises:
        InputError: nothing can be read, or something can not and `lenient` was not asked for.
    """
    problems: list[Problem] = []
    try:
        captured = _kafka(spark, options) if options.kafka else _files(spark, options, problems)
        with store.writing("ingest") as writer:
            return _write(spark, captured, options, problems, writer)
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(_unreadable(error)) from error


def _files(spark: SparkSession, options: IngestOptions, problems: list[Problem]) -> DataFrame:
    looked = list(look(files_of(options.inputs)))
    bad = [(found.path, -1, found.problem) for found in looked if found.problem]
    _judge(bad, options, problems)
    good = [found for found in looked if not found.problem]
    if not sum(found.rows for found in good):
        raise InputError(f"no requests in {', '.join(options.inputs)}: {len(good)} whole files, all empty")
    frame = spark.read.schema(ddl(CAPTURE)).parquet(*(found.path for found in good))
    return frame.select(
        *(column.name for column in CAPTURE if column.name != "partitions"),
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.row_index").alias("row"),
    )


def _kafka(spark: SparkSession, options: IngestOptions) -> DataFrame:
    source = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", options.kafka)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
    )
    place = F.concat(F.lit(f"kafka:{options.topic}-"), F.col("partition"))
    value = F.from_json(F.col("value").cast("string"), ddl(CAPTURE))
    try:
        frame = source.load().select(value.alias("row_"), place.alias("file"), F.col("offset").alias("row"))
    except PySparkException as error:
        if "kafka" in str(error) and "find" in str(error).lower():
            raise InputError(
                "Spark's Kafka source is not there: `make spark-jars`, then --jars build/spark-jars"
            ) from error
        raise
    names = [column.name for column in CAPTURE if column.name != "partitions"]
    return frame.select(*(F.col(f"row_.{name}").alias(name) for name in names), "file", "row")


def _sound_rows(captured: DataFrame, options: IngestOptions, problems: list[Problem]) -> DataFrame:
    """Without rows that cannot be; they are named."""
    problem = transform.impossible()
    found = captured.filter(problem.isNotNull()).select(*_FILE_COLUMNS, problem.alias("problem"))
    bad = [(row["file"], row["row"], row["problem"]) for row in found.limit(NAMED_MAX).collect()]
    _judge(bad, options, problems)
    return captured.filter(problem.isNull()) if bad else captured


def _write(
    spark: SparkSession,
    rows: DataFrame,
    options: IngestOptions,
    problems: list[Problem],
    writer: Writer,
) -> list[str]:
    rows = _sound_rows(rows, options, problems)
    found = transform.processes(rows).collect()
    if not found:
        raise InputError("no requests: every row was left out")
    apart = too_far_apart(
        [Clock(row["process"], row["requests"], row["first_wall_ms"], row["last_wall_ms"]) for row in found]
    )
    if apart:
        raise InputError(apart)
    schema = ddl(TABLES["ingest/processes"])
    names = columns_of("ingest/processes")
    clocks = spark.createDataFrame([tuple(row[name] for name in names) for row in found], schema)
    writer.table("processes", clocks, files=1)
    stepped = [(row["process"], row["started_us"]) for row in found if row["wall_step_ms"] > STEP_MS]
    if stepped:
        problems += _steps(rows, stepped)
    kept = _without_disorder(rows, clocks, options, problems)
    written = writer.table("requests", transform.requests(kept, clocks, options.by, options.exclude))
    count = written.count()
    if not count:
        raise InputError("no requests: every row was left out")
    frame = spark.createDataFrame(problems, ddl(TABLES["ingest/problems"]))
    writer.table("problems", frame, files=1)
    writer.put("settings.json", json.dumps({"by": options.by}) + "\n")
    said = [f"{count:,} requests of {len(found)} processes"]
    return said + [_named(problem) for problem in problems[:NAMED_MAX]]


def _without_disorder(
    rows: DataFrame, clocks: DataFrame, options: IngestOptions, problems: list[Problem]
) -> DataFrame:
    wrong = transform.disordered(rows, clocks).limit(NAMED_MAX * 50).collect()
    if not wrong:
        return rows
    index = F.broadcast(clocks.select("process", "process_index"))
    bad = F.broadcast(rows.sparkSession.createDataFrame(wrong, transform.BAD_ROW).distinct())
    on = ["process_index", "connection", "seq"]
    indexed = rows.join(index, on="process", how="inner")
    named = indexed.join(bad, on=on, how="inner").select(*_FILE_COLUMNS).limit(NAMED_MAX).collect()
    text = "is out of order: its clock is behind that of the request before it, or its number is there twice"
    _judge([(row["file"], row["row"], text) for row in named], options, problems)
    return indexed.join(bad, on=on, how="left_anti").drop("process_index")


def _steps(rows: DataFrame, stepped: Sequence[tuple[str, int]]) -> list[Problem]:
    """Where each of these processes' wall clocks has stepped for the first time."""
    clocks = rows.sparkSession.createDataFrame(stepped, "process string, started_us bigint")
    drift_ms = (F.col("wall_ms") * 1000 - F.col("mono_us") - F.col("started_us")) / 1000
    off = rows.join(F.broadcast(clocks), on="process", how="inner").filter(F.abs(drift_ms) > STEP_MS / 2)
    first = off.groupBy("process").agg(
        F.min_by(F.struct("file", "row", drift_ms.cast("bigint").alias("by_ms")), F.col("mono_us")).alias(
            "at"
        )
    )
    return [
        (row["at"]["file"], row["at"]["row"], f"the wall clock has stepped by {row['at']['by_ms']} ms here")
        for row in first.limit(NAMED_MAX).collect()
    ]


def _judge(bad: Sequence[Problem], options: IngestOptions, problems: list[Problem]) -> None:
    """Refuse, or note what is left out."""
    if bad and not options.lenient:
        lines = "\n  ".join(map(_named, bad[:NAMED_MAX]))
        more = f"\n  and {len(bad) - NAMED_MAX} more" if len(bad) > NAMED_MAX else ""
        raise InputError(f"the capture cannot be used (--lenient leaves out what is bad):\n  {lines}{more}")
    problems += bad


def _named(problem: Problem) -> str:
    file, row, text = problem
    return f"{file} {text}" if row < 0 else f"{file}, row {row}: {text}"


def _unreadable(error: Exception) -> str:
    """Spark's failure while it reads: the file's name is somewhere in it."""
    text = str(error)
    file = re.search(r"(?:file:|hdfs:|s3a?:)[^\s'\",;]+\.parquet", text)
    line = text.strip().splitlines()[0][:300]
    return (
        f"{file[0]} cannot be read to its end: it is damaged" if file else f"the input cannot be read: {line}"
    )
