"""Captures -> `ingest/requests`: checks the files, relates the clocks, and converts rows to the stages' format.

Invalid input is an error that names the file, or the file and the row; with `lenient` it is left out, listed in
`ingest/problems`, and counted. The first rows are listed one by one; the others with the same problem in the same file
are one line with their number. A step of the wall clock is reported and harmless: times are the monotonic clock's, with
the wall clock's offset of the longer part. A process whose clock is never corrected is refused if it is too far off.

A Kafka topic is a capture as well: each record is one row as JSON, whose header `sluice.capture.schema` is the version
of its layout. Each pass over a Kafka source would read to the topic's new end and parse all records again. So there is
one pass, which writes the rows as Parquet for all others.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from offline.errors import InputError, reason
from offline.inputs import files_of, read_footers
from offline.options import IngestOptions, IngestSettings, settings_text
from offline.schemas import CAPTURE, TABLES, columns_of, ddl
from offline.store import Store, Writer
from offline.transforms import order
from offline.transforms import requests as transform
from offline.transforms.order import Clock, too_far_apart
from protocol.capture import SCHEMA_KEY, SCHEMA_VERSION

KEPT: Final = "_rows"  # beside the stage's tables, for as long as it is made
NAMED_MAX: Final = 20  # rows in one message
Problem = tuple[str, int, str]  # file; row, or -1 where it is about the file; what is wrong
_GONE: Final = re.compile("FILE_NOT_EXIST|FileNotFoundException|PATH_NOT_FOUND|does not exist")
# A wall clock that is slewed by NTP moves by half a millisecond a second at most; a step is what jumps further.
STEP_MS: Final = 1000
_NOTHING_LEFT: Final = "no requests: every row was left out"


class Problems:
    """Collects the problems of files and rows, for the table `ingest/problems`; refuses them unless `lenient`."""

    def __init__(self, *, lenient: bool) -> None:
        self.noted: list[Problem] = []
        self._lenient = lenient
        self._rows = 0
        self._files = 0

    def files(self, bad: Sequence[Problem]) -> None:
        """Add problems of whole files, which are left out.

        Raises:
            InputError: there are any, and `lenient` is off.
        """
        self._files += len(bad)
        self._refuse_or_note(bad[:NAMED_MAX], len(bad) - NAMED_MAX, bad)

    def rows(self, bad: DataFrame) -> bool:
        """Add problems of rows (`file`, `row`, `problem`), which are left out; return whether there are any.

        Raises:
            InputError: there are any, and `lenient` is off.
        """
        counts = bad.groupBy("file", "problem").count().collect()
        left: Counter[tuple[str, str]] = Counter(
            {(row["file"], row["problem"]): row["count"] for row in counts}
        )
        total = left.total()
        if not total:
            return False
        first = bad.select("file", "row", "problem").orderBy("file", "row").limit(NAMED_MAX).collect()
        named: list[Problem] = [(row["file"], row["row"], row["problem"]) for row in first]
        left.subtract((file, problem) for file, _, problem in named)
        rest = [
            (file, -1, f"has {count:,} more: {text}") for (file, text), count in sorted(left.items()) if count
        ]
        self._rows += total
        self._refuse_or_note(named, total - len(named), [*named, *rest])
        return True

    def summary_lines(self) -> list[str]:
        """Return lines for the operator: the numbers of rows and files left out, and the first problems."""
        lines = [format_problem(*problem) for problem in self.noted[:NAMED_MAX]]
        if self._rows or self._files:
            lines.insert(0, f"left out: {self._rows:,} rows and {self._files:,} files; see ingest/problems")
        return lines

    def _refuse_or_note(self, named: Sequence[Problem], more: int, noted: Sequence[Problem]) -> None:
        if named and not self._lenient:
            lines = "\n  ".join(format_problem(*problem) for problem in named)
            rest = f"\n  and {more:,} more" if more > 0 else ""
            raise InputError(
                f"the capture cannot be used (--lenient leaves bad files and rows out):\n  {lines}{rest}"
            )
        self.noted += noted


def format_problem(file: str, row: int, text: str) -> str:
    """Format a problem as a line; a `row` below 0 stands for the whole file.

    >>> format_problem("a.parquet", 7, "seq is below 0"), format_problem("a.parquet", -1, "is damaged")
    ('a.parquet, row 7: seq is below 0', 'a.parquet is damaged')
    """
    return f"{file} {text}" if row < 0 else f"{file}, row {row}: {text}"


def unreadable(error: Exception) -> str:
    """Return a message for the operator about an error of Spark while reading, which names the file at fault."""
    text = str(error)
    file = re.search(r"(?:file:|hdfs:|s3a?:)[^\s'\",;]+\.parquet", text)
    if file and _GONE.search(text):
        return (
            f"{file[0]} was there when ingest began, and is gone: a proxy that still captures there deletes its "
            "oldest files; read a copy of the capture, or raise `capture.max_bytes`"
        )
    if file:
        return f"{file[0]} cannot be read to its end: it is damaged"
    return f"the input cannot be read: {reason(error)}"


def run(spark: SparkSession, options: IngestOptions, store: Store) -> list[str]:
    """Check the captured requests and store them as tables; return lines to print for the operator.

    Raises:
        InputError: nothing can be read; or, without `lenient`, a part cannot be read.
    """
    problems = Problems(lenient=options.lenient)
    try:
        files, sources = (None, ()) if options.kafka else _files(spark, options, problems)
        with store.writing("ingest") as writer:
            captured = rows_of(spark, options, problems, writer) if files is None else files
            said = _write(spark, captured, options, problems, writer, sources)
            writer.drop(KEPT)
            return said
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(unreadable(error)) from error


def _files(
    spark: SparkSession, options: IngestOptions, problems: Problems
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return the rows of all files, and what these say of their sources, each once."""
    checked = list(read_footers(files_of(options.inputs)))
    problems.files([(found.path, -1, found.problem) for found in checked if found.problem])
    good = [found for found in checked if not found.problem]
    if not sum(found.rows for found in good):
        raise InputError(f"no requests in {', '.join(options.inputs)}: {len(good)} whole files, all empty")
    frame = spark.read.schema(ddl(CAPTURE)).parquet(*(found.path for found in good))
    rows = frame.select(
        *(column.name for column in CAPTURE if column.name != "partitions"),
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.row_index").alias("row"),
    )
    return rows, tuple(sorted({found.source for found in good if found.source}))


def rows_of(spark: SparkSession, options: IngestOptions, problems: Problems, writer: Writer) -> DataFrame:
    """Return the captured rows of all records that a Kafka topic has now.

    The columns `file` and `row` name the partition and the offset of a row's record.

    Raises:
        InputError: the topic has no records, or Spark's Kafka source is missing.
    """
    source = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", options.kafka)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("includeHeaders", "true")
    )
    try:
        records = source.load()
    except PySparkException as error:
        if "kafka" in str(error) and "find" in str(error).lower():
            raise InputError(
                "Spark's Kafka source is missing: run `make spark-jars`, and use --jars build/spark-jars"
            ) from error
        raise
    kept = f"{writer.path}/{KEPT}"
    parsed = parse(records, options.topic)
    parsed.write.parquet(kept)
    rows = spark.read.schema(parsed.schema).parquet(kept)
    if rows.isEmpty():
        raise InputError(f"the topic {options.topic} has no records")
    other = F.col("layout") != str(SCHEMA_VERSION)
    text = F.format_string(
        f"was written by another version of the layout (%s; this is {SCHEMA_VERSION})", "layout"
    )
    if problems.rows(rows.filter(other).withColumn("problem", text)):
        rows = rows.filter(~F.coalesce(other, F.lit(False)))
    return rows.drop("layout")


def parse(records: DataFrame, topic: str) -> DataFrame:
    """Convert Kafka records to captured rows; a record that is not valid JSON becomes a row of nulls.

    The columns `file` and `row` name its partition and offset, `layout` the version of the layout in its header.
    """
    versions = F.filter("headers", lambda header: header["key"] == SCHEMA_KEY)
    parsed = records.select(
        F.from_json(F.col("value").cast("string"), ddl(CAPTURE)).alias("parsed"),
        F.concat(F.lit(f"kafka:{topic}-"), F.col("partition")).alias("file"),
        F.col("offset").alias("row"),
        F.try_element_at(versions, F.lit(1))["value"].cast("string").alias("layout"),
    )
    names = [column.name for column in CAPTURE if column.name != "partitions"]
    return parsed.select(*(F.col(f"parsed.{name}").alias(name) for name in names), "file", "row", "layout")


def _write(
    spark: SparkSession,
    captured: DataFrame,
    options: IngestOptions,
    problems: Problems,
    writer: Writer,
    sources: tuple[str, ...],
) -> list[str]:
    rows = _valid_rows(captured, problems)
    found = transform.processes(rows).collect()
    _check_clocks(found)
    names = columns_of("ingest/processes")
    values = [tuple(row[name] for name in names) for row in found]
    clocks = spark.createDataFrame(values, ddl(TABLES["ingest/processes"]))
    writer.table("processes", clocks, files=1)
    stepped = [(row["process"], row["started_us"]) for row in found if row["wall_step_ms"] > STEP_MS]
    if stepped:
        problems.noted += _steps(rows, stepped)
    kept = _in_order(rows, clocks, problems)
    written = writer.table("requests", transform.requests(kept, clocks, options.by, options.exclude))
    count = written.count()
    if not count:
        raise InputError(_NOTHING_LEFT)
    frame = spark.createDataFrame(problems.noted, ddl(TABLES["ingest/problems"]))
    writer.table("problems", frame, files=1)
    writer.put("settings.json", settings_text(IngestSettings(options.by, sources)))
    return [f"{count:,} requests of {len(found)} processes", *sources, *problems.summary_lines()]


def _valid_rows(captured: DataFrame, problems: Problems) -> DataFrame:
    """Return the rows without invalid ones, which are refused or listed."""
    bad = captured.filter(transform.is_invalid()).withColumn("problem", transform.invalid_reason())
    return captured.filter(~transform.is_invalid()) if problems.rows(bad) else captured


def _check_clocks(found: Sequence[Row]) -> None:
    if not found:
        raise InputError(_NOTHING_LEFT)
    apart = too_far_apart(
        [Clock(row["process"], row["requests"], row["first_wall_ms"], row["last_wall_ms"]) for row in found]
    )
    if apart:
        raise InputError(apart)


def _in_order(rows: DataFrame, clocks: DataFrame, problems: Problems) -> DataFrame:
    """Return the rows without duplicates and rows out of order, which are refused or listed."""
    numbered = transform.numbered(rows, clocks)
    possibly_disordered = order.possibly_disordered(numbered).persist(StorageLevel.DISK_ONLY)
    if possibly_disordered.isEmpty():
        return rows
    doubted = numbered.join(possibly_disordered, on="connection", how="left_semi")
    bad = order.disordered(doubted).persist(StorageLevel.DISK_ONLY)
    return rows.join(bad, on=list(order.FILE_AND_ROW), how="left_anti") if problems.rows(bad) else rows


def _steps(rows: DataFrame, stepped: Sequence[tuple[str, int]]) -> list[Problem]:
    """Return the first step of each of these processes' wall clocks, as problems."""
    clocks = rows.sparkSession.createDataFrame(stepped, "process string, started_us bigint")
    drift_ms = (F.col("wall_ms") * 1000 - F.col("mono_us") - F.col("started_us")) / 1000
    off = rows.join(F.broadcast(clocks), on="process", how="inner").filter(F.abs(drift_ms) > STEP_MS / 2)
    by_ms = drift_ms.cast("bigint").alias("by_ms")
    first = off.groupBy("process").agg(F.min(F.struct("mono_us", "file", "row", by_ms)).alias("at"))
    return [
        (row["at"]["file"], row["at"]["row"], f"the wall clock has stepped by {row['at']['by_ms']} ms here")
        for row in first.orderBy("process").limit(NAMED_MAX).collect()
    ]
