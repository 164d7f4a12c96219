"""A capture in front of real brokers has the clients' requests, and can be replayed.

Clients count what they send and get; the rows must say the same, to the record.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer

from protocol.api import FETCH, METADATA, PRODUCE
from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support.numbered import write_all
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.waiting import until
from tests.support.workers import WORKERS

ROTATE_SECONDS = 1.0
SECONDS_MAX = 30.0
RECORDS = 500
VALUE = bytes(range(200))

Rows = list[dict[str, Any]]


def settings(kafka: Cluster, directory: Path, **quotas: float) -> SluiceSettings:
    sections = {"capture": {"directory": str(directory), "rotate_seconds": ROTATE_SECONDS}}
    return SluiceSettings(
        kafka.bootstrap(), sections=sections, client_quotas={"limited": quotas} if quotas else {}
    )


@pytest.fixture
def sluice(kafka: Cluster, tmp_path: Path) -> Iterator[SluiceProcess]:
    with SluiceProcess.configured(
        settings(kafka, tmp_path / "capture", producer_byte_rate=20_000), tmp_path
    ) as process:
        yield process


def rows(directory: Path) -> Rows:
    found: Rows = []
    for path in sorted(directory.glob("*.parquet")):
        found += pq.read_table(path).to_pylist()
    return found


def produce(bootstrap: str, topic: str, count: int) -> None:
    write_all(bootstrap, topic, [VALUE] * count, partitions=2, settings={"client.id": "writer"})


def consume(bootstrap: str, topic: str, count: int) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "reader",
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    got = 0
    until = time.monotonic() + SECONDS_MAX
    while got < count and time.monotonic() < until:
        got += sum(message.error() is None for message in consumer.consume(100, 1.0))
    consumer.close()
    return got


def test_rows_match_the_clients_requests(
    sluice: SluiceProcess, tmp_path: Path, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=2)
    before_ms = time.time() * 1000
    produce(sluice.bootstrap, topic, RECORDS)
    assert consume(sluice.bootstrap, topic, RECORDS) == RECORDS
    sluice.stop()
    after_ms = time.time() * 1000
    found = rows(tmp_path / "capture")
    produced = [row for row in found if row["api_key"] == PRODUCE and row["client_id"] == "writer"]
    parts = [part for row in produced for part in row["partitions"]]
    assert {part["topic"] for part in parts} == {topic}
    for partition in (0, 1):
        counts = [part["records"] for part in parts if part["partition"] == partition]
        assert sum(counts) == RECORDS / 2
    # A record is its value and a few bytes; a request its records and a few more.
    assert sum(part["bytes"] for part in parts) > RECORDS * len(VALUE)
    assert all(sum(part["bytes"] for part in row["partitions"]) < row["request_bytes"] for row in produced)
    fetched = [row for row in found if row["api_key"] == FETCH and row["client_id"] == "reader"]
    brought = [part for row in fetched for part in row["partitions"] if part["bytes"]]
    assert {part["topic"] for part in brought} == {topic}
    assert sum(part["bytes"] for part in brought) >= sum(part["bytes"] for part in parts)
    assert all(part["records"] in (-1, *range(1, RECORDS + 1)) for part in brought)
    assert all(row["upstream_us"] > 0 and row["response_bytes"] > 0 for row in produced + fetched)
    assert all(before_ms - 1000 <= row["wall_ms"] <= after_ms + 1000 for row in found)
    assert {row["ip"] for row in found} == {"127.0.0.1"}
    assert {row["principal"] for row in found} == {"ANONYMOUS"}
    assert any(row["api_key"] == METADATA for row in found)
    assert 1 <= len({row["process"] for row in found}) <= WORKERS
    for connection in {(row["process"], row["connection"]) for row in found}:
        seqs = [row["seq"] for row in found if (row["process"], row["connection"]) == connection]
        assert sorted(seqs) == list(range(len(seqs)))


def test_killed_process_leaves_whole_files_and_the_next_removes_the_rest(
    kafka: Cluster, tmp_path: Path, create_topic: CreateTopic
) -> None:
    directory = tmp_path / "capture"
    topic = create_topic(partitions=2)
    process = SluiceProcess.configured(settings(kafka, directory), tmp_path).wait_ready()
    produce(process.bootstrap, topic, 50)
    until(lambda: bool(list(directory.glob("*.parquet"))), "a file is finished")
    produce(process.bootstrap, topic, 50)
    until(lambda: bool(list(directory.glob("*.inprogress"))), "a file is begun")
    os.kill(process.process_id, signal.SIGKILL)
    until(lambda: not process.alive(), "the process has ended")
    assert rows(directory)
    left = {path.name for path in directory.glob("*.inprogress")}
    with SluiceProcess.configured(settings(kafka, directory), tmp_path) as again:
        assert not left & {path.name for path in directory.glob("*.inprogress")}
        produce(again.bootstrap, topic, 10)
    found = rows(directory)
    assert 2 <= len({row["process"] for row in found}) <= 2 * WORKERS
