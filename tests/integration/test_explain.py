"""`/v1/client` and `sluice explain` on the real cluster: the causes, each made and named.

What is asserted is the cause, and that its part is the largest; parts are measured by visits, so bounds are wide.
"""

import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any
from urllib.parse import urlencode

import confluent_kafka
import pytest

from protocol.api import METADATA
from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support import mutation_frames
from tests.support.frames import request as raw_request
from tests.support.gateway_fixture import gateway_fixture
from tests.support.proxy_process import SluiceProcess
from tests.support.proxy_process import sluice as command
from tests.support.raw_topics import Topic, batch, describe, produce_request
from tests.support.waiting import until
from tests.support.wire import wired
from tests.unit.protocol.kafka_frames import framed

SECONDS = 6.0
BYTES_PER_SECOND = 100_000
RECORDS = 20_000
BATCH_BYTES = 50_000


# What is free at the beginning is soon used up.
SHORT_WINDOWS = {"window_samples": 2, "window_seconds": 1}
QUOTAS = {
    "bytes": {"producer_byte_rate": BYTES_PER_SECOND},
    "asks": {"request_percentage": 1.0},
    "makes": {"controller_mutation_rate": 0.5},
}


sluice = gateway_fixture(quotas=SHORT_WINDOWS, client_quotas=QUOTAS)
# The same under the other policy: a request waits before it is passed on, and not after.
scheduled = gateway_fixture("function", policies=["schedule"], quotas=SHORT_WINDOWS, client_quotas=QUOTAS)


@pytest.fixture
def topic(kafka: Cluster, create_topic: CreateTopic) -> Topic:
    return describe(kafka, create_topic())


def explained(sluice: SluiceProcess, client_id: str, window: int = 10) -> dict[str, Any]:
    """Return the client's document, once one of its connections was visited."""
    found: list[dict[str, Any]] = []

    def is_seen() -> bool:
        document = sluice.asked("/v1/client", client_id=client_id, window=window)
        found.extend([document] if document else [])
        return document is not None and any(document["time"].values())

    until(is_seen, f"{client_id} is seen")
    document = found[-1]
    print(document["sentence"], document["time"])
    assert sum(document["time"].values()) == pytest.approx(1, abs=0.01)
    return document


def repeat(act: Callable[[], object], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        act()


def largest(document: dict[str, Any]) -> str:
    times: dict[str, float] = document["time"]
    return max(times, key=lambda part: times[part])


@pytest.mark.parametrize("gateway", ["sluice", "scheduled"])
def test_byte_quota_is_named(request: pytest.FixtureRequest, gateway: str, topic: Topic) -> None:
    sluice: SluiceProcess = request.getfixturevalue(gateway)
    sent = produce_request(topic, 0, batch([bytes(RECORDS)]))
    with wired(sluice.ports.address(topic.leaders[0]), "bytes") as wire:
        repeat(lambda: wire.ask(sent))
        found = explained(sluice, "bytes")
        of_address = sluice.document("/v1/client?client_id=bytes&address=127.0.0.1")
    assert of_address["sentence"].startswith("bytes at 127.0.0.1 waited ")
    rule = found["rule"]
    assert (rule["kind"], rule["key"], rule["value"]) == ("produce", "producer_byte_rate", BYTES_PER_SECOND)
    assert rule["entity"] == "client-id 'bytes'"
    assert rule["set_by"] == "quotas.toml"
    assert rule["enforced"]
    assert largest(found) in ("held", "muted")
    # It asks again at once, and waits nearly all of its time unless the machine is slow.
    assert found["wants"] is None or found["wants"]["rate"] > BYTES_PER_SECOND
    assert 0.1 * BYTES_PER_SECOND < found["demand"]["producer_byte_rate"]["taken"] < 10 * BYTES_PER_SECOND
    listed = sluice.document(f"/v1/clients?{urlencode({'user': found['user']})}")["clients"]
    assert "bytes" in {one["client_id"] for one in listed}
    none = sluice.document("/v1/clients?user=nobody-of-that-name")
    assert (none["clients"], none["clients_total"]) == ([], 0)
    assert [one["client_id"] for one in found["neighbours"]] == ["bytes"]
    assert found["sentence"].startswith("bytes waited ")
    assert "producer_byte_rate 100.0 kB/s of client-id 'bytes'" in found["sentence"]
    status, text = sluice.get("/v1/client?client_id=bytes&address=127.0.0.2")
    assert (status, json.loads(text)) == (
        404,
        {"error": "no client with client id 'bytes' was seen at 127.0.0.2", "missing": []},
    )


def test_muted_producer_has_its_library_batches_and_end_of_the_mute(
    sluice: SluiceProcess, topic: Topic
) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": sluice.bootstrap,
            "client.id": "bytes",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "message.timeout.ms": 300_000,
        }
    )
    seen: list[tuple[dict[str, Any], datetime]] = []

    def is_seen() -> bool:
        if len(producer) < 50:
            producer.produce(topic.name, bytes(BATCH_BYTES))
        producer.poll(0)
        now = datetime.now(UTC)
        document = sluice.asked("/v1/client", client_id="bytes", window=10)
        found = document["connections"] if document else []
        seen.extend(
            (one, now) for one in found if one["waits_until"] and one["batch_bytes"] and one["library"]
        )
        return bool(seen)

    try:
        until(is_seen, "a muted connection with batches is seen", 60.0)
    finally:
        producer.purge()
        producer.flush(10)
    found, now = seen[0]
    versions = confluent_kafka.version(), confluent_kafka.libversion()[0]
    assert found["library"] == "confluent-kafka-python {}-rdkafka-{}".format(*versions)
    assert BATCH_BYTES < found["batch_bytes"] < 1.1 * BATCH_BYTES
    assert found["in_flight"] >= 0
    wait = datetime.fromisoformat(found["waits_until"]) - now
    assert -5 < wait.total_seconds() < 60


def asks(number: int) -> bytes:
    return raw_request(METADATA, 9, b"\0\0\0\0\0", correlation_id=number, client_id="asks")


def makes(number: int) -> bytes:
    topics = {f"e-{secrets.token_hex(4)}": 2}
    return mutation_frames.create(5, topics, correlation_id=number, client_id="makes")


@pytest.mark.parametrize(("frame", "kind", "value"), [(asks, "request", 1.0), (makes, "mutation", 0.5)])
def test_quota_of_requests_is_named(
    sluice: SluiceProcess, frame: Callable[[int], bytes], kind: str, value: float
) -> None:
    client_id, numbers = frame.__name__, count()
    with wired(sluice.ports.address(1), client_id) as wire:

        def ask() -> None:
            wire.send_bytes(frame(next(numbers)))
            wire.receive()

        repeat(ask)
        found = explained(sluice, client_id)
    rule = found["rule"]
    assert (rule["kind"], rule["value"], rule["entity"]) == (kind, value, f"client-id '{client_id}'")
    assert largest(found) == "muted"


@contextmanager
def often_stopped(process_id: int) -> Iterator[None]:
    """A broker that runs for a fifth of the time."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.1):
            os.kill(process_id, signal.SIGSTOP)
            time.sleep(0.4)
            os.kill(process_id, signal.SIGCONT)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_slow_broker_is_named(sluice: SluiceProcess, kafka: Cluster, topic: Topic) -> None:
    client_id = f"waits-{secrets.token_hex(4)}"
    broker = topic.leaders[0]
    sent = produce_request(topic, 0, batch([bytes(100)]))
    with wired(sluice.ports.address(broker), client_id) as wire, often_stopped(kafka.process_id(broker)):
        repeat(lambda: wire.ask(sent), 3 * SECONDS)  # requests are timed in an eighth of the time
        found = explained(sluice, client_id)
    assert found["rule"] is None
    assert largest(found) == "broker"
    assert found["broker"]["broker"] == broker
    assert found["broker"]["timed"]
    assert found["broker"]["median_by_time_ms"] > 100  # whatever its p99 is: most requests pass while it runs
    assert f"broker {broker}" in found["sentence"]  # slow for all, or at times only
    assert [one["broker"] for one in found["brokers"] if one["connections"]] == [broker]
    assert found["sluice"]["busy"] < 1


def test_of_two_causes_the_quota_is_first_and_the_slow_client_second(
    sluice: SluiceProcess, topic: Topic
) -> None:
    limit = ("--topic", topic.name, f"producer_byte_rate={BYTES_PER_SECOND}")
    command("quotas", "set", "--bootstrap-server", sluice.bootstrap, *limit)
    client_id = f"both-{secrets.token_hex(4)}"
    # 400 kB in a second or more, and some seconds until they are paid for; what is sent meanwhile counts as muted.
    frame = framed(produce_request(topic, 0, batch([bytes(4 * BYTES_PER_SECOND)])), 1, client_id)
    with wired(sluice.ports.address(topic.leaders[0])) as wire:

        def send_slowly() -> None:
            for start in range(0, len(frame), len(frame) // 20):
                wire.send_bytes(frame[start : start + len(frame) // 20])
                time.sleep(0.05)
            wire.receive()
            time.sleep(3.5)

        repeat(send_slowly, 2 * SECONDS)
        # With two workers a mute may outlast the pause; only the first request is sure to come without one.
        found = explained(sluice, client_id, window=60)
    assert found["rule"]["kind"] == "topic"
    assert found["time"]["muted"] + found["time"]["held"] > 0.05
    assert found["time"]["client"] > 0.02
    assert f"topic '{topic.name}'" in found["sentence"]
