"""A directory of recordings, one with the demand of clients whose days are known and one of captures, scored."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from offline.advice.evaluation import TERMS_RECOMMENDERS
from offline.inputs import recordings
from offline.jobs import evaluate, recommend
from offline.jobs.evaluate import ALL
from offline.options import ENGINE_DEFAULTS, EvaluateOptions, Goal
from offline.schemas import TABLES
from offline.store import Store
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from tests.spark.test_recordings import measured
from tests.support.families import Client, write
from tests.support.pipeline import first
from tests.support.recordings import PAIRS
from tests.support.synthetic import Client as Captured
from tests.support.synthetic import write_capture

DAY_S = 120
DAYS = 10


# Of all brokers, for what is produced.
CAPACITY = Definitions({Entity(capacity="cluster"): {"producer_byte_rate": 5e6}})


def sizes(rates: list[float]) -> np.ndarray:
    """Bytes by second of a client with an even rate on each day."""
    return np.repeat(np.array(rates), DAY_S)


@pytest.fixture(scope="module")
def scored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Store:
    directory = tmp_path_factory.mktemp("evaluate")
    growth = [1e6 * 1.05**day for day in range(DAYS)]
    clients = [
        Client("steady", sizes([2e6] * DAYS)),
        Client("growing", sizes(growth)),
        Client("hog", sizes([1e6] * 6 + [2e7] * 4), hog_from_s=6 * DAY_S),
    ]
    write(directory / "in" / "known", clients, DAY_S)
    write_capture(directory / "in" / "captured", [Captured(name="a", shape="steady", rate=500_000)], 40)
    (directory / "in" / "captured" / "truth.toml").write_text("day_seconds = 10\n")
    store = Store(spark, str(directory / "out"))
    found = recordings(str(directory / "in"))
    assert [(each.name, each.measured) for each in found] == [("captured", False), ("known", True)]
    lines = evaluate.run(spark, EvaluateOptions(engine=ENGINE_DEFAULTS), found, store, CAPACITY)
    assert any(line.startswith("the advice is on or inside the front of a baseline in") for line in lines)
    assert any(line.startswith("terms of the capacity, the next day: 4 clients") for line in lines)
    return store


@pytest.mark.parametrize("table", sorted(table for table in TABLES if table.startswith("evaluate/")))
def test_every_table_has_its_declared_columns(scored: Store, table: str) -> None:
    written = pq.read_schema(next((Path(scored.path) / table).glob("*.parquet")))
    assert written.names == [column.name for column in TABLES[table]]
    assert scored.read(table).count() > 0


def test_every_day_is_scored_by_the_days_before_it(scored: Store) -> None:
    rows = scored.read("evaluate/scores").filter(
        "recording = 'known' and client_id = 'growing' and horizon = 1 and factor = 1"
    )
    quotas = {(row["recommender"], row["origin"]): row for row in rows.collect()}
    assert {origin for _, origin in quotas} == set(range(1, DAYS))
    for origin in range(1, DAYS):
        # Of 120 s 0.12 are tolerated, and a second of burst is free: a need is 1 % below the rate.
        need = quotas["oracle", origin]["need"]
        assert need == pytest.approx(1e6 * 1.05**origin, rel=0.02)
        assert quotas["maximum x 1.1", origin]["quota"] == pytest.approx(1.1 * need / 1.05, rel=0.001)
        assert quotas["oracle", origin]["slack"] == quotas["oracle", origin]["hurt"] == 0
        assert quotas["sluice", origin]["quota"] > need
        assert quotas["last week's", origin]["hurt"] == 1


def test_hog_is_held_back_and_no_part_of_the_others_waits(scored: Store) -> None:
    rows = scored.read("evaluate/scores").filter("client_id = 'hog' and factor = 1 and horizon = 1").collect()
    assert {row["origin"] for row in rows if not row["behaves"]} == {6, 7, 8, 9}
    summary = {
        row["recommender"]: row
        for row in scored.read("evaluate/summary").filter("recording = 'known' and horizon = 1").collect()
    }
    # The maximum follows the hog after its first day; the advice waits for a week.
    assert summary["maximum x 1.1"]["caught"] == 0.25
    assert summary["sluice"]["caught"] == 1
    assert summary["sluice"]["passed"] < 0.1
    assert summary["sluice"]["spared"] == 1


def terms_of(scored: Store, origin: int) -> dict[tuple[str, str], Row]:
    """Return the scores of terms on the next day, by recommender and client."""
    rows = scored.read("evaluate/terms").filter(f"recording = 'known' and horizon = 1 and origin = {origin}")
    return {(row["recommender"], row["client_id"]): row for row in rows.collect()}


def test_clients_share_a_capacity_that_is_large_enough(scored: Store) -> None:
    # On the fifth day 2 + 1.22 + 1 MB/s of 5 MB/s: there is room for all of it.
    found = terms_of(scored, 4)
    for name in ("sluice", "equal shares", "recommended quotas", "oracle"):
        for client in ("steady", "growing", "hog"):
            row = found[name, client]
            assert (row["waited"], row["kept"], row["passed"], row["behaves"]) == (0, 1, 1, True), (
                name,
                client,
            )
    # What grows by 5 % a day was promised 1.2 of 1.2155 MB/s by its days before, and borrows the rest.
    row = found["last week's", "growing"]
    assert (row["waited"], row["kept"], row["passed"]) == (0, 1, 1)
    carried = scored.read("evaluate/carried").filter("recording = 'known' and horizon = 1 and origin = 4")
    shares = {row["recommender"]: row["carried"] / row["possible"] for row in carried.collect()}
    assert shares == dict.fromkeys(TERMS_RECOMMENDERS, 1)


def test_rates_protect_from_a_hog_and_equal_shares_do_not(scored: Store) -> None:
    # From the seventh day on the hog asks for 20 MB/s; steady needs 2, growing 1.34 MB/s.
    found = terms_of(scored, 6)
    for name in ("sluice", "recommended quotas", "oracle"):
        assert [found[name, client]["waited"] for client in ("steady", "growing")] == [0, 0], name
        hog = found[name, "hog"]
        assert (hog["behaves"], hog["hurt"]) == (False, 1)
        assert hog["passed"] < 0.1
    # 5/3 MB/s each; what growing leaves, 327 kB/s, is for the other two: steady has 1.83 of 2 MB/s.
    assert found["equal shares", "growing"]["waited"] == 0
    assert found["equal shares", "steady"]["passed"] == pytest.approx(1.83 / 2, abs=0.002)
    assert found["equal shares", "steady"]["hurt"] == found["equal shares", "steady"]["kept"] == 1
    assert found["equal shares", "hog"]["passed"] == pytest.approx(1.83 / 20, abs=0.002)
    summary = {
        row["recommender"]: row
        for row in scored.read("evaluate/terms_summary")
        .filter("recording = 'known' and horizon = 1")
        .collect()
    }
    assert summary["sluice"]["caught"] == 1
    # On the tenth day the rates without margins, 2.02 and 1.51 MB/s, and the 1.5 MB/s of the hog's forecast exceed
    # the capacity: both neighbours have less than they need, on one day of four.
    assert summary["sluice"]["spared"] == 0.75
    assert summary["equal shares"]["spared"] == 0.5
    # The days with a hog are no part of it.
    assert summary["sluice"]["carried"] == pytest.approx(1, abs=1e-3)
    assert summary["oracle"]["regret"] == 0


def test_tables_agree_with_each_other(scored: Store) -> None:
    summary = scored.read("evaluate/summary").filter(F.col("recording") == ALL).collect()
    # Two that behave, one that does so for six days, and one of the other recording, which is too short for weeks.
    assert {(row["horizon"], row["clients"]) for row in summary} == {(1, 4), (7, 3)}
    for row in summary:
        assert row["slack_low"] <= row["slack"] <= row["slack_high"]
        assert row["regret"] >= 0 or row["recommender"] != "oracle"
        front = first(
            scored.read("evaluate/fronts").filter(
                (F.col("recording") == ALL)
                & (F.col("horizon") == row["horizon"])
                & (F.col("recommender") == row["recommender"])
                & (F.col("factor") == 1)
            )
        )
        assert front["slack"] == pytest.approx(row["slack"])
    held = scored.read("evaluate/calibration").filter(F.col("recording") == ALL)
    next_days = scored.read("evaluate/scores").filter(
        "behaves and recommender = 'sluice' and factor = 1 and horizon = 1"
    )
    assert first(held.agg(F.sum("scores")))[0] == next_days.count()
    text = scored.text("evaluate/evaluation.html")
    assert "<svg" in text
    assert "captured" in text


def test_same_input_gives_the_same_scores(scored: Store, spark: SparkSession, tmp_path: Path) -> None:
    again = Store(spark, str(tmp_path / "out"))
    # Rows come in another order.
    partitions = str(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    evaluate.run(
        spark,
        EvaluateOptions(engine=ENGINE_DEFAULTS),
        recordings(str(Path(scored.path).parent / "in" / "known")),
        again,
        CAPACITY,
    )
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    for table in ("scores", "terms", "carried"):
        one, two = (
            sorted(map(tuple, store.read(f"evaluate/{table}").filter("recording = 'known'").collect()))
            for store in (scored, again)
        )
        assert one == two


def test_recommendation_of_several_days_has_the_forecasts_margin(spark: SparkSession, tmp_path: Path) -> None:
    # Two minutes of twelve clients that write 500 kB/s each.
    store = measured(spark, tmp_path, PAIRS[1], day=20)
    recommend.run(spark, Goal(), store, store)
    assert store.read("recommend/forecasts").count() == 0
    recommend.run(spark, Goal(day=20), store, store)
    rows = store.read("recommend/forecasts").filter("direction = 'produce'").collect()
    assert len(rows) == 12
    # Six days without any difference: the margin for what comes without a sign is 1.28.
    assert all(1.28 < row["quota"] / row["highest"] < 1.6 for row in rows)
    default = first(store.read("recommend/recommendations").filter("key = 'producer_byte_rate'"))
    assert 1.28 * 500e3 <= default["value"] <= 2 * 500e3
    assert "12 clients have a forecast" in default["confidence"]
