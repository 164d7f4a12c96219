"""The pipeline reads captures of earlier releases (docs/compatibility.md)."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from offline.jobs import ingest
from offline.options import IngestOptions
from offline.replay.reading import capture_files, read
from offline.store import Store

SAMPLES = Path(__file__).resolve().parents[1] / "packaging" / "samples"


@pytest.mark.parametrize("version", sorted(path.name for path in SAMPLES.iterdir()))
def test_every_row_of_a_released_capture_is_ingested(
    spark: SparkSession, tmp_path: Path, version: str
) -> None:
    capture = SAMPLES / version / "capture"
    store = Store(spark, str(tmp_path))
    ingest.run(spark, IngestOptions(inputs=(str(capture),)), store)

    processes = store.read("ingest/processes").collect()
    assert sum(row["requests"] for row in processes) == len(read(capture_files([capture])))
    assert store.read("ingest/problems").count() == 0
