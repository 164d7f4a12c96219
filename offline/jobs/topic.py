"""A Kafka topic as a capture: each record is one row as JSON.

Each pass over a Kafka source would read to the topic's new end and parse all records again. So there is one pass, which
writes the rows as Parquet for all others. The header `sluice.capture.schema` of a record is the version of its layout.
"""

from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offline.errors import InputError
from offline.jobs.problems import Problems
from offline.options import IngestOptions
from offline.schemas import CAPTURE, ddl
from offline.store import Writer
from protocol.capture import SCHEMA_KEY, SCHEMA_VERSION

__all__ = ["KEPT", "rows_of"]

KEPT: Final = "_rows"  # beside the stage's tables, for as long as it is made


def rows_of(spark: SparkSession, options: IngestOptions, problems: Problems, writer: Writer) -> DataFrame:
    """Return the topic's rows, from the first record to the current last one, with `file` and `row`."""
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
    """Convert records to captured rows; an invalid record becomes a row of nulls."""
    versions = F.filter("headers", lambda header: header["key"] == SCHEMA_KEY)
    parsed = records.select(
        F.from_json(F.col("value").cast("string"), ddl(CAPTURE)).alias("parsed"),
        F.concat(F.lit(f"kafka:{topic}-"), F.col("partition")).alias("file"),
        F.col("offset").alias("row"),
        F.try_element_at(versions, F.lit(1))["value"].cast("string").alias("layout"),
    )
    names = [column.name for column in CAPTURE if column.name != "partitions"]
    return parsed.select(*(F.col(f"parsed.{name}").alias(name) for name in names), "file", "row", "layout")
