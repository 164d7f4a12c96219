"""A day whose clients are known, a capacity stated in the quotas in force: what is advised, to the byte, and applied.

The day has 1440 s, so a minute is a second. All clients send once a second, so a client's peaks are all the same.
"""

from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from offline.errors import InputError
from offline.jobs import apply, backtest, capacity, compare, demand, recommend, report
from offline.options import ApplyOptions, BacktestOptions, CompareOptions, Goal
from offline.store import Store
from offline.transforms.capacity import Seen, demands
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.toml_file import parse
from quotas.options import EngineOptions
from tests.support.pipeline import write_ingested

START_S = 1_767_225_600  # 2026-01-01 00:00 UTC
DAY_S = 1440
HALF = DAY_S // 2
# Two producers with opposite peaks, and one of a group with a rate of 1 MB/s.
# A consumer that always reads, and a batch in 5 % of the day.
PRODUCED = {"day": [6.0] * HALF + [1.0] * HALF, "night": [1.0] * HALF + [6.0] * HALF, "team-1": [0.5] * DAY_S}
FETCHED = {"web": [4.0] * DAY_S, "batch": [8.0] * 72}
IN_FORCE = """
[[capacity]]
scope = "cluster"
in = "10M"
out = "10M"

[[group]]
name = "team"
client_ids = ["team-*"]

[[quota]]
group = "team"
producer_byte_rate = "1M"

[[quota]]
client_id = "web"
consumer_byte_rate = "5M"

# Slow, but it passes.
[[quota]]
client_id = "batch"
consumer_byte_rate = "2M"
consumer_byte_rate_ceiling = "2M"
"""


def measured(spark: SparkSession, directory: Path, engine: EngineOptions) -> Store:
    columns: dict[str, list[object]] = {}
    clients = [(name, 0, sizes) for name, sizes in PRODUCED.items()]
    clients += [(name, 1, sizes) for name, sizes in FETCHED.items()]
    for number, (name, api_key, sizes) in enumerate(clients):
        for second, size in enumerate(sizes):
            row = {
                "at_us": (START_S + second) * 1_000_000,
                "connection": number,
                "seq": second,
                "client_id": name,
                "broker": 1,
                "api_key": api_key,
                "request_bytes": 100 if api_key else int(size * 1e6),
                "response_bytes": int(size * 1e6) if api_key else 60,
                "service_us": 1000,
            }
            for column, value in row.items():
                columns.setdefault(column, []).append(value)
    store = Store(spark, str(directory / "work"))
    write_ingested(store, columns, (START_S * 1000, (START_S + DAY_S) * 1000 - 1))
    demand.run(spark, store, store)
    backtest.run(spark, BacktestOptions(engine=engine, day=DAY_S), store, store)
    return store


@pytest.fixture(scope="module")
def advised(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Path]:
    directory = tmp_path_factory.mktemp("capacity")
    file = directory / "quotas.toml"
    file.write_text(IN_FORCE)
    store = measured(spark, directory, EngineOptions(policy="schedule", scope="cluster"))
    goal = Goal(quotas_file=str(file), day=DAY_S)
    recommend.run(spark, goal, store, store, apply.read_file(file)[1])
    report.run(spark, store, store)
    return store, file


def classes(store: Store) -> dict[str, Row]:
    return {row["client_id"]: row for row in store.read("recommend/classes").collect()}


def lines(store: Store) -> dict[tuple[str, str, str], Row]:
    rows = store.read("recommend/recommendations").collect()
    return {(row["kind"], row["client_id"], row["key"]): row for row in rows}


def test_opposite_peaks_share_a_capacity_below_their_sum(advised: tuple[Store, Path]) -> None:
    found = classes(advised[0])
    for name in ("day", "night"):
        row = found[name]
        # 6 MB/s and a tenth each are 14.2 of 10 together with the group's 1: 4.5 each are promised. Four times the peak
        # would be more than the capacity.
        assert (row["rate"], row["ceiling"], row["weight"]) == (4.5e6, 10e6, 1.0)
        assert (row["waited_ms"], row["today_ms"]) == (0, 0)
        assert row["lent"] == HALF * 1_500_000
    said = lines(advised[0])
    assert "14.2 MB/s together" in said["capacity", "", "producer_byte_rate"]["reason"]
    # 1.5 MB more are late in each second: 1/3 + 2/3 + 718 s; then 1080 MB, of which 3.5 MB/s pass: 307.4 s more.
    assert "it would wait for 17 min 6 s" in said["override", "day", "producer_byte_rate_ceiling"]["reason"]


def test_batch_borrows_what_the_others_leave(advised: tuple[Store, Path]) -> None:
    found = classes(advised[0])
    web, batch = found["web"], found["batch"]
    assert (web["rate"], web["ceiling"], web["waited_ms"]) == (4.4e6, 10e6, 0)
    # In 95 % of the minutes it needs nothing: one request of 1 MiB in ten seconds is promised.
    assert (batch["rate"], batch["ceiling"]) == (110e3, 10e6)
    # web leaves 6 of 10 MB/s: 2 MB/s are late for 72 s, 1/3 + 2/3 + 70 s of waiting; 144 MB pass in 24 s, the last of
    # which ends the waiting. With 2 MB/s: 72 s, and 432 MB in 216 s.
    assert (batch["waited_ms"], batch["today_ms"]) == (94_000, 287_000)
    assert batch["lent"] == 576e6 - 96 * 110e3
    needs = {row["client_id"]: row for row in advised[0].read("recommend/needs").collect()}
    assert (needs["batch"]["throttled"], needs["web"]["throttled"]) == (True, False)


def test_what_more_could_have_been_carried(advised: tuple[Store, Path]) -> None:
    effect = lines(advised[0])["capacity", "", "consumer_byte_rate"]["effect"]
    # (4 x 1440 + 576) MB in 1440 s are 4.4 MB/s of 10. All of it is used for 96 s, more than 5 % of the time.
    assert effect.startswith("5.6 MB/s more could have been carried on average, and 0 B/s more in 95%")
    shared = advised[0].read("recommend/shared").filter("direction = 'fetch'").orderBy("start_s").collect()
    assert shared[0]["promised"] + shared[0]["lent"] == pytest.approx(10e6)
    assert shared[-1]["promised"] + shared[-1]["lent"] == pytest.approx(4e6)


def test_file_has_the_capacity_and_is_applied(advised: tuple[Store, Path], tmp_path: Path) -> None:
    store, in_force = advised
    recommended = dict(parse(store.text("recommend/quotas.toml")).entries())
    assert recommended[Entity(capacity="cluster")] == {"producer_byte_rate": 10e6, "consumer_byte_rate": 10e6}
    file = tmp_path / "quotas.toml"
    file.write_text(in_force.read_text())
    apply.run(ApplyOptions(quotas_file=str(file)), store.path)
    found = dict(parse(file.read_text()).entries())
    assert found[Entity(client_id="batch")] == {
        "consumer_byte_rate": 110e3,
        "consumer_byte_rate_ceiling": 10e6,
    }
    assert found[Entity(client_id="day")] == {"producer_byte_rate": 4.5e6, "producer_byte_rate_ceiling": 10e6}
    assert found[Entity(group="team")] == {"producer_byte_rate": 1e6}  # stays
    assert found[Entity(client_id=DEFAULT)] == {"producer_byte_rate": 110e3, "consumer_byte_rate": 110e3}
    assert "# Slow, but it passes." in file.read_text()
    Definitions(found)


def test_every_step_of_a_rollout_is_valid(advised: tuple[Store, Path], tmp_path: Path) -> None:
    file = tmp_path / "quotas.toml"
    file.write_text(advised[1].read_text())
    for step in (1, 2, 3):
        apply.run(ApplyOptions(quotas_file=str(file), step=step, steps=3), advised[0].path)
    assert dict(parse(file.read_text()).entries())[Entity(client_id="day")]["producer_byte_rate"] == 4.5e6


def test_report_shows_waits_beside_those_of_today(advised: tuple[Store, Path]) -> None:
    text = advised[0].text("report/report.html")
    assert "1 min 34 s" in text
    assert "4 min 47 s" in text
    assert "What is promised and lent" in text


def test_compare_refuses_a_shared_capacity(advised: tuple[Store, Path]) -> None:
    with pytest.raises(InputError, match="shares a capacity"):
        compare.run(CompareOptions(quotas_file=str(advised[1])), advised[0].path)


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        (EngineOptions(policy="kip13", scope="cluster"), 'the policy "kip13"'),
        (EngineOptions(policy="schedule", scope="broker"), "--scope cluster"),
    ],
)
def test_capacity_that_the_backtest_was_not_made_for_is_refused(engine: EngineOptions, text: str) -> None:
    with pytest.raises(InputError, match=text):
        capacity.stated(dict(parse(IN_FORCE).entries()), Goal(quotas_file="q"), engine)


def test_each_advice_sees_its_own_days(spark: SparkSession) -> None:
    # 1 MB/s for 100 s of the first day, at one broker; 3 MB in one second of the second day, at another.
    rows = [("produce", "", "a", 1, START_S + second, 1_000_000) for second in range(100)]
    rows.append(("produce", "", "a", 2, START_S + DAY_S + 50, 3_000_000))
    schema = "direction string, user string, client_id string, broker int, second bigint, bytes bigint"
    seen = [
        Seen(range(1), DAY_S),
        Seen(range(1, 2), DAY_S),
        Seen(range(2), 2 * DAY_S),
        Seen(range(2, 3), DAY_S),
    ]
    seconds = spark.createDataFrame(rows, schema).repartition(3, "second")
    found = {
        row["seen"]: (row["steady"], row["peak_60s"], row["peak_10s"], row["peak_1s"])
        for row in demands(seconds, seen, START_S, DAY_S, 0.95).collect()
    }
    # 5 % of a day's minutes, of a second each, are 72; of both days' 144.
    assert found == {0: (1e6, 1e6, 1e6, 1e6), 1: (0.0, 3e6 / 60, 3e5, 3e6), 2: (0.0, 1e6, 1e6, 3e6)}
