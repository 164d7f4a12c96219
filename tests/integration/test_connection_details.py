"""`/v1/client` on the real cluster: what is said of each connection beside its time."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import confluent_kafka
import pytest

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.waiting import until

CLIENT_ID = "bulk"
BYTES_PER_SECOND = 100_000
RECORD_BYTES = 50_000


@pytest.fixture(scope="module")
def sluice(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    settings = SluiceSettings(
        kafka.bootstrap(),
        quotas={"policy": "kip13", "window_samples": 2, "window_seconds": 1},
        client_quotas={CLIENT_ID: {"producer_byte_rate": BYTES_PER_SECOND}},
    )
    with SluiceProcess.configured(settings, tmp_path_factory.mktemp("details")) as process:
        yield process


def connections(sluice: SluiceProcess) -> list[dict[str, Any]]:
    status, text = sluice.get(f"/v1/client?client_id={CLIENT_ID}&window=10")
    found: list[dict[str, Any]] = json.loads(text)["connections"] if status == 200 else []
    return found


def test_muted_producer_has_its_library_batches_and_end_of_the_mute(
    sluice: SluiceProcess, create_topic: CreateTopic
) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": sluice.bootstrap,
            "client.id": CLIENT_ID,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "message.timeout.ms": 300_000,
        }
    )
    topic = create_topic(partitions=1)
    seen: list[tuple[dict[str, Any], datetime]] = []

    def is_seen() -> bool:
        if len(producer) < 50:
            producer.produce(topic, bytes(RECORD_BYTES))
        producer.poll(0)
        now = datetime.now(UTC)
        seen.extend((one, now) for one in connections(sluice) if one["waits_until"] and one["batch_bytes"])
        return bool(seen)

    try:
        until(is_seen, "a muted connection with batches is seen", 60.0)
    finally:
        producer.purge()
        producer.flush(10)
    found, now = seen[0]
    versions = confluent_kafka.version(), confluent_kafka.libversion()[0]
    assert found["library"] == "confluent-kafka-python {}-rdkafka-{}".format(*versions)
    assert RECORD_BYTES < found["batch_bytes"] < 1.1 * RECORD_BYTES
    assert found["in_flight"] >= 0
    wait = datetime.fromisoformat(found["waits_until"]) - now
    assert -5 < wait.total_seconds() < 60


def test_client_without_a_wait(sluice: SluiceProcess) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": sluice.bootstrap, "client.id": CLIENT_ID})
    end = time.monotonic() + 60
    free: list[dict[str, Any]] = []
    while not free and time.monotonic() < end:
        producer.poll(0.2)
        free = [one for one in connections(sluice) if not one["waits_until"] and one["library"]]
    assert free
