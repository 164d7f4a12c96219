"""Loads of two brokers, two heavy clients and all others, against numbers that can be added up by hand."""

import pytest
from pyspark.sql import DataFrame, SparkSession

from offline.jobs.measured import MeasuredLoads, effects
from offline.schemas import TABLES, ddl
from offline.transforms.loads import before_after, blocks_of, peaks, recorded_blocks

START_S = 1005
CANDIDATES = [1000.0, 2000.0]


@pytest.fixture(scope="module")
def loads(spark: SparkSession) -> DataFrame:
    """Bytes by second: ten seconds, and five more an hour later."""
    rows = []
    for name, broker, each in (("", 1, 10), ("", 2, 3), ("a", 1, 100), ("a", 2, 7), ("b", 1, 50)):
        for rate, quota in enumerate(CANDIDATES, 1):
            key = ("produce", broker, quota, "", name, bool(name))
            rows.append((*key, START_S, [each * rate] * 10))
            rows.append((*key, START_S + 3600, [each * rate] * 5))
    rows.append(("produce", 1, 1000.0, "", "", True, START_S, [1] * 20))  # a heavy client without a client id
    return spark.createDataFrame(rows, ddl(TABLES["backtest/loads"]))


def measured(loads: DataFrame) -> MeasuredLoads:
    blocks = blocks_of(loads, START_S)
    return MeasuredLoads(loads, blocks, peaks(blocks, "quota"), CANDIDATES)


def test_blocks_are_sums_of_ten_seconds_from_the_recordings_first(loads: DataFrame) -> None:
    rows = blocks_of(loads, START_S).filter("client_id = 'a' and broker = 1 and quota = 2000").collect()
    assert sorted((row["block"], row["bytes"]) for row in rows) == [(0, 2000), (360, 1000)]


def test_each_level_has_its_own_overrides_and_all_others_the_default(loads: DataFrame) -> None:
    found = measured(loads)
    assert set(found.heavy) == {("", ""), ("", "a"), ("", "b")}
    assert found.alone() == [161.0, 320.0]
    levels = [{("", "a"): 1, ("", "b"): 1}, {("", "a"): 0, ("", "b"): 1}, {("", "a"): 0, ("", "b"): 0}]
    assert found.peaks(0, levels) == [10 + 200 + 100 + 1, 10 + 100 + 100 + 1, 161]
    passed = found.passed(0, levels).filter("broker = 2 and block = 0").orderBy("level").collect()
    assert [row["bytes"] for row in passed] == [170, 100, 100]


def test_no_client_needs_an_override(loads: DataFrame) -> None:
    found = measured(loads)
    assert found.peaks(1, [{}]) == [320.0]


def test_before_and_after_have_every_block_of_every_broker(spark: SparkSession) -> None:
    rows = [
        ("produce", "", "a", broker, START_S + second, 100, 1, 1, 0.1)
        for broker in (1, 2)
        for second in (0, 9, 25)
    ]
    seconds = spark.createDataFrame(rows, ddl(TABLES["demand/per_second"]))
    before = recorded_blocks(seconds, START_S, gateway=False)
    after = before.filter("block = 0 and broker = 1")
    found = before_after(before, after, START_S, 3, 0.5).orderBy("broker", "start_s").collect()
    assert [(row["broker"], row["start_s"] - START_S, row["before"], row["after"]) for row in found] == [
        (1, 0, 40.0, 40.0),  # 200 bytes in ten seconds, of half of the connections
        (1, 10, 0.0, 0.0),
        (1, 20, 20.0, 0.0),
        (2, 0, 40.0, 0.0),
        (2, 10, 0.0, 0.0),
        (2, 20, 20.0, 0.0),
    ]
    together = recorded_blocks(seconds, START_S, gateway=True)
    assert [(row["direction"], row["peak_10s"]) for row in peaks(together, "direction").collect()] == [
        ("produce", 40.0)
    ]


def test_effects_are_in_the_order_of_candidates(spark: SparkSession) -> None:
    outcome = dict.fromkeys((column.name for column in TABLES["backtest/outcomes"]), 0)
    rows = [
        {**outcome, "direction": "fetch", "user": "", "client_id": name, "broker": broker, "quota": quota}
        | {"throttle_ms": int(quota) + broker}
        for quota in (2000.0, 1000.0)
        for name in ("b", "a")
        for broker in (1, 2)
    ]
    table = spark.createDataFrame(rows, ddl(TABLES["backtest/outcomes"]))
    found = effects(table, "fetch", 2)
    assert (found.clients, found.throttle_ms.tolist()) == (
        [("", "a"), ("", "b")],
        [[2003, 4003], [2003, 4003]],
    )
    assert effects(table, "produce", 2).throttle_ms.shape == (0, 2)
