"""One local session and one small pipeline for all Spark tests: starting Spark is what takes the time."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from offline.jobs import backtest, demand, ingest, recommend, report
from offline.options import BacktestOptions, IngestOptions, SparkOptions
from offline.session import spark_session
from offline.store import Store
from tests.support import spark_java
from tests.support.pipeline import CLIENTS, GOAL, SECONDS, Pipeline
from tests.support.synthetic import write_capture


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark on this machine, two tasks at once; for a few thousand rows nothing is worth being compiled."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_java.ENVIRONMENT.items():
            patch.setenv(name, value)
        with spark_session(SparkOptions(master="local[2]", driver_memory="1g", partitions=2)) as session:
            session.conf.set("spark.sql.codegen.wholeStage", "false")
            yield session


@pytest.fixture(scope="session")
def pipeline(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """All stages over forty seconds of fifteen clients."""
    directory = tmp_path_factory.mktemp("offline")
    requests = write_capture(directory / "capture", CLIENTS, SECONDS)
    store = Store(spark, str(directory / "work"))
    ingest.run(spark, IngestOptions(inputs=(str(directory / "capture"),)), store)
    demand.run(spark, store, store)
    backtest.run(spark, BacktestOptions(candidates=12, heavy=3), store, store)
    recommend.run(spark, GOAL, store, store)
    report.run(spark, store, store)
    return Pipeline(store, directory / "capture", requests)
