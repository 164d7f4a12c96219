"""A recording, and the rates that brokers would have counted of it: what the advice from rates has lost.

Both are read by all stages, with the same candidates. What a broker counts is made of the captured requests: by client,
broker and step.
"""

import json
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from offline.cli import main
from offline.jobs import backtest, demand, ingest, recommend
from offline.options import BacktestOptions, Goal, IngestOptions
from offline.store import Store
from quotas.options import EngineOptions
from tests.support.synthetic import START_WALL_MS, Client, write_capture

SECONDS = 240
START_MS = START_WALL_MS + 1000  # the first request comes a second after the clock began
# A tenth apart, from 100 kB/s to 10 MB/s.
CANDIDATES = tuple(float(round(100_000 * 1.1**step, -2)) for step in range(49))
CLIENTS = [
    *(
        Client(name=f"steady-{number}", shape="steady", rate=250_000, broker=1 + number % 2)
        for number in range(4)
    ),
    Client(name="bursty", shape="bursty", rate=200_000, broker=2),
    Client(name="hog", shape="hog", rate=4e6, request_bytes=60_000, connections=4, broker=1),
    Client(name="reader", shape="steady", rate=300_000, produces=False, request_bytes=30_000),
]


def counted(capture: Path, step_s: int) -> dict[tuple[str, str, int], list[float]]:
    """Bytes/s by client, direction and broker, in each step of a capture."""
    found: dict[tuple[str, str, int], list[float]] = defaultdict(lambda: [0.0] * (SECONDS // step_s))
    names = ["client_id", "api_key", "broker", "wall_ms", "request_bytes", "response_bytes"]
    for file in sorted(capture.glob("capture-*.parquet")):
        for row in pq.read_table(file, columns=names).to_pylist():
            produces = row["api_key"] == 0
            key = row["client_id"], "Produce" if produces else "Fetch", row["broker"]
            size = row["request_bytes" if produces else "response_bytes"]
            found[key][(row["wall_ms"] - START_MS) // 1000 // step_s] += size / step_s
    return found


def write_matrix(path: Path, rates: dict[tuple[str, str, int], list[float]], step_s: int) -> None:
    """Write a response of query_range as the JMX exporter's names make it."""
    result: list[dict[str, object]] = []
    for (client, resource, broker), values in rates.items():
        labels = {
            "__name__": "kafka_server_quota_byte_rate",
            "resource": resource,
            "clientId": client,
            "instance": f"kafka-{broker}:9404",
        }
        points = [[START_MS / 1000 + step_s * (place + 1), str(value)] for place, value in enumerate(values)]
        result.append({"metric": labels, "values": points})
        nothing = [[at, "NaN"] for at, _ in points]
        result.append(
            {"metric": {**labels, "__name__": "kafka_server_quota_throttle_time"}, "values": nothing}
        )
    document = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    path.write_text(json.dumps(document), encoding="utf-8")


def advised(spark: SparkSession, capture: Path, work: Path) -> Store:
    """Run all stages up to the recommendation."""
    store = Store(spark, str(work))
    ingest.run(spark, IngestOptions(inputs=(str(capture),)), store)
    demand.run(spark, store, store)
    engine = EngineOptions(policy="schedule", scope="cluster")
    options = BacktestOptions(engine=engine, produce=CANDIDATES, fetch=CANDIDATES, heavy=3)
    backtest.run(spark, options, store, store)
    recommend.run(spark, Goal(), store, store)
    return store


def needs(store: Store) -> dict[str, float]:
    return {row["client_id"]: row["need"] for row in store.read("recommend/needs").collect()}


def sizes(store: Store) -> dict[str, int]:
    return {row["client_id"]: row["bytes"] for row in store.read("demand/entities").collect()}


def confidences(store: Store) -> list[str]:
    return [row["confidence"] for row in store.read("recommend/recommendations").collect()]


@pytest.mark.timeout(300)
def test_advice_from_rates_misses_bursts_within_a_step_and_nothing_else(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_capture(tmp_path / "capture", CLIENTS, SECONDS)
    seen = advised(spark, tmp_path / "capture", tmp_path / "seen")
    found = {}
    for step_s in (15, 60):
        write_matrix(tmp_path / f"{step_s}.json", counted(tmp_path / "capture", step_s), step_s)
        output = tmp_path / f"rates-{step_s}"
        assert main(["import", "prometheus", str(tmp_path / f"{step_s}.json"), "--output", str(output)]) == 0
        found[step_s] = advised(spark, output, tmp_path / f"work-{step_s}")
    assert "broker 2 is kafka-2:9404" in capsys.readouterr().out
    truth = needs(seen)
    assert not any("bursts" in text for text in confidences(seen))
    for step_s, store in found.items():
        loss = f"rates by steps of {step_s} s, so bursts within a step are not known"
        assert all(loss in text for text in confidences(store))
        # Every byte is there: half a byte a step is rounded.
        wrong = [abs(size - sizes(seen)[name]) for name, size in sizes(store).items()]
        assert max(wrong) <= SECONDS / step_s
        assert len(wrong) == len(CLIENTS)
        span = store.read("demand/span").collect()[0]
        assert span["recorded_seconds"] == SECONDS
        for name, need in needs(store).items():
            # Requests that came at uneven times need up to two candidates (a fifth) more than their mean.
            low = 1.1**-2.01 if name != "bursty" else 0
            assert low <= need / truth[name] <= 1.001, (name, step_s)
    # One second of each ten at 2 MB/s: by the step it is 200 kB/s, and 400 where two such seconds are in one step.
    assert truth["bursty"] > 1e6
    assert needs(found[15])["bursty"] <= 300_000
    assert needs(found[60])["bursty"] <= 250_000
