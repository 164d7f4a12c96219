"""What Kafka has no quotas for: topics, over all clients, and users' connections. In front of real brokers.

Set with `sluice quotas set`. The schedule's arithmetic: in t seconds at most T · (t + 1 s of burst) and one request a
connection pass; the bounds here are wide, since only the rate is to be shown, and that it is one for both clients.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster
from tests.cluster.sasl import SASL, SLUICE_LOGIN, password
from tests.conftest import CreateTopic
from tests.support.gateway_fixture import gateway_fixture
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.proxy_process import sluice as command
from tests.support.raw_topics import (
    PRODUCE,
    Topic,
    batch,
    describe,
    fetch,
    fetch_request,
    produce_request,
    write,
)
from tests.support.wire import part, request, response, wired
from tests.support.workers import ALIKE, WORKERS

SECONDS = 8.0
BYTES_PER_SECOND = 100_000
RECORDS = 10_000
METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE = 3, 17, 36
BROKER = 1


sluice = gateway_fixture(policies=["schedule"])


def limit(sluice: SluiceProcess, *words: str) -> None:
    """`sluice quotas set`."""
    command("quotas", "set", "--bootstrap-server", sluice.bootstrap, *words)


def made(kafka: Cluster, create_topic: CreateTopic) -> tuple[Topic, int]:
    """A topic, and its one partition's leader."""
    topic = describe(kafka, create_topic())
    return topic, topic.leaders[0]


def both(work: Callable[[int], int]) -> float:
    """What two clients move together, in bytes/s."""
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(work, (0, 1))) / SECONDS


def charged(sluice: SluiceProcess, kind: str, topic: str) -> float:
    return sluice.metric("sluice_topic_bytes_total", type=kind, topic=topic)


@pytest.mark.parametrize("versions", [pytest.param((9, 9), marks=ALIKE), (13, 13)], ids=["names", "ids"])
def test_producers_share_a_topics_rate(
    kafka: Cluster, sluice: SluiceProcess, create_topic: CreateTopic, versions: tuple[int, int]
) -> None:
    (topic, leader), (other, _) = made(kafka, create_topic), made(kafka, create_topic)
    limit(sluice, "--topic", topic.name, f"producer_byte_rate={BYTES_PER_SECOND}")
    until = time.monotonic() + SECONDS
    records = batch([bytes(RECORDS)])

    def produce(client: int) -> int:
        moved = 0
        with wired(sluice.ports.address(leader), f"client-{client}") as wire:
            while time.monotonic() < until:
                sent = produce_request(topic, 0, records, version=versions[client])
                (responded,) = response(PRODUCE, versions[client], wire.ask(sent).frame).responses
                assert responded.partition_responses[0].error_code == 0
                moved += len(records)
        return moved

    rate = both(produce)
    # Of the steady rate: two requests and the burst more, less what the last mutes cut off.
    assert 0.6 * BYTES_PER_SECOND < rate < 1.6 * BYTES_PER_SECOND
    assert charged(sluice, "Produce", topic.name) > 0.6 * BYTES_PER_SECOND * SECONDS
    assert charged(sluice, "Produce", other.name) == 0


def test_consumers_share_a_topics_rate(
    kafka: Cluster, sluice: SluiceProcess, create_topic: CreateTopic
) -> None:
    topic, leader = made(kafka, create_topic)
    batches = 60
    for _ in range(batches):
        write(kafka.address(leader), topic, 0, batch([bytes(RECORDS)]))
    limit(sluice, "--topic", topic.name, f"consumer_byte_rate={BYTES_PER_SECOND}")
    until = time.monotonic() + SECONDS

    def consume(client: int) -> int:
        moved, version = 0, (12, 16)[client]
        with wired(sluice.ports.address(leader), f"client-{client}") as wire:
            while time.monotonic() < until:
                asked = fetch_request(
                    topic, {0: moved % batches}, version=version, partition_max_bytes=RECORDS
                )
                received, _ = fetch(wire, asked, version)
                assert received.responses[0].partitions[0].error_code == 0
                moved += 1
        return moved * RECORDS

    assert 0.6 * BYTES_PER_SECOND < both(consume) < 1.6 * BYTES_PER_SECOND
    assert charged(sluice, "Fetch", topic.name) > 0.6 * BYTES_PER_SECOND * SECONDS


def test_unmodified_producer_is_held_to_it(
    kafka: Cluster, sluice: SluiceProcess, create_topic: CreateTopic
) -> None:
    from confluent_kafka import Producer

    topic, _ = made(kafka, create_topic)
    limit(sluice, "--topic", topic.name, f"producer_byte_rate={BYTES_PER_SECOND}")
    config: dict[str, Any] = {"bootstrap.servers": sluice.bootstrap, "linger.ms": 0, "batch.size": 20_000}
    producer = Producer({**config, "max.in.flight": 1})
    began = time.monotonic()
    for _ in range(50):
        producer.produce(topic.name, bytes(RECORDS))
    assert producer.flush(30) == 0
    # 500,000 bytes are five seconds less the burst's, and less the last request's mute.
    assert time.monotonic() - began > 3.0


def test_users_connections_wait_for_their_tokens(kafka: Cluster, tmp_path: Path) -> None:
    settings = SluiceSettings(
        kafka.bootstrap(SASL),
        cluster=SLUICE_LOGIN,
        # Two at once: the rate times two windows of a second.
        quotas={"window_samples": 2, "window_seconds": 1},
        user_quotas={"alice": {"connection_creation_rate": 1}},
    )

    def first_response_seconds(user: str) -> float:
        with wired(settings.ports.address(BROKER), user) as wire:
            wire.ask(request(SASL_HANDSHAKE, 1, mechanism="PLAIN"), 5)
            token = f"\0{user}\0{password(user)}".encode()
            received = wire.ask(request(SASL_AUTHENTICATE, 2, auth_bytes=token), 6)
            assert response(SASL_AUTHENTICATE, 2, received.frame).error_code == 0
            topics = [part(METADATA, 9, "MetadataRequestTopic", name="none")]
            asked = request(METADATA, 9, topics=topics, allow_auto_topic_creation=False)
            return wire.ask(asked).seconds

    with SluiceProcess.configured(settings, tmp_path) as sluice:
        with ThreadPoolExecutor(5) as pool:
            waited = sorted(pool.map(first_response_seconds, ["alice"] * 5))
            free = sorted(pool.map(first_response_seconds, ["bob"] * 5))
        # No, no, 1, 2 and 3 seconds, less the time between their arrivals, a second on a busy machine. Workers begin
        # without a burst.
        assert waited[-1] > 1.0
        assert waited[-2] > 0.5
        assert 2 <= sluice.metric("sluice_connections_throttled_total") <= (3 if WORKERS == 1 else 5)
        assert free[-1] < 1.0
