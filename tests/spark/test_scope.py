"""Peaks of one budget at each broker, and of one over all brokers."""

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession

from offline.schemas import TABLES, ddl
from offline.transforms import demand
from offline.transforms.candidates import peaks_of_scope

# Second, broker, bytes: `spread` asks both brokers for as much at once, `turns` one after the other.
SPREAD = [(second, broker, 1000) for second in range(100, 110) for broker in (1, 2)]
TURNS = [(second, 1, 1000) for second in range(100, 110)] + [(second, 2, 1000) for second in range(200, 210)]
ALONE = [(100, 1, 7000), (105, 1, 2000), (110, 1, 4000)]


@pytest.fixture(scope="module")
def seconds(spark: SparkSession) -> DataFrame:
    """The table `demand/per_second` of three clients."""

    def rows(name: str, asked: Sequence[tuple[int, int, int]]) -> list[tuple[object, ...]]:
        return [("produce", "", name, broker, second, size, 1, 1, 0.5) for second, broker, size in asked]

    found = rows("spread", SPREAD) + rows("turns", TURNS) + rows("alone", ALONE)
    return spark.createDataFrame(found, ddl(TABLES["demand/per_second"]))


def peaks(seconds: DataFrame, scope: str) -> dict[str, float]:
    rows = peaks_of_scope(demand.entities(seconds, 110), seconds, scope).collect()
    assert all((row["direction"], row["user"]) == ("produce", "") for row in rows)
    return {row["client_id"]: row["peak_10s"] for row in rows}


def test_at_each_broker_it_is_the_busiest_brokers(seconds: DataFrame) -> None:
    assert peaks(seconds, "broker") == {"spread": 1000.0, "turns": 1000.0, "alone": 900.0}


def test_over_all_brokers_seconds_are_added_up_before_the_peak_is_taken(seconds: DataFrame) -> None:
    assert peaks(seconds, "cluster") == {"spread": 2000.0, "turns": 1000.0, "alone": 900.0}
