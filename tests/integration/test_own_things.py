"""Sluice's own topics, group and transactional id through a port of clients: real brokers, unmodified clients.

The brokers have no authorizer: only Sluice refuses. Each API and version is in tests/unit/proxy/channel/test_guard.py.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]  # theirs
from confluent_kafka.cimpl import NewPartitions, NewTopic

from quotas.definitions.entities import Entity
from quotas.definitions.records import Author, key_of, value_of
from tests.cluster import Cluster, free_port
from tests.support.proxy_process import SluiceProcess, fleet_secret
from tests.support.quota_client import set_rates
from tests.support.topic_quotas import Topic, rate_of

SECONDS = 30
FORGED = (
    key_of(Entity(client_id="mallory"), "producer_byte_rate"),
    value_of(1e12, Author("User:admin", "10.0.0.1:1", "2026-11-24T00:00:00.000Z")),
)
TOPIC_REFUSED, GROUP_REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def topic(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topic]:
    with Topic(kafka.bootstrap(), tmp_path_factory.mktemp("own")) as found:
        yield found


@pytest.fixture(scope="module")
def group(topic: Topic) -> str:
    return f"{topic.name}-fleet"


@pytest.fixture(scope="module")
def journal(topic: Topic) -> str:
    return f"{topic.name}-journal"


@pytest.fixture(scope="module")
def process(topic: Topic, group: str, journal: str) -> SluiceProcess:
    """One member of a fleet that keeps everything in Kafka, with a quota of its own."""
    secret = fleet_secret(topic.directory)
    bind = f"127.0.0.1:{free_port()}"
    found = topic.start(
        "member",
        sections={
            "fleet": {"bind": bind, "group": group, "members_max": 2, "secret_file": secret},
            "reassignment": {"mode": "batch", "journal": "topic", "journal_topic": journal},
        },
    )
    assert set_rates(found.bootstrap, mallory=100_000.0) == [(0, "")]
    return found


def refusals(process: SluiceProcess) -> float:
    return process.metric("sluice_own_refusals_total")


def code(wait: Callable[[], object]) -> int:
    """Return the error code that a call ends with; 0 for none."""
    try:
        wait()
    except KafkaException as error:
        found: int = error.args[0].code()
        return found
    return 0


def codes(futures: Mapping[str, "Future[Any]"]) -> dict[str, int]:
    return {name: code(partial(future.result, SECONDS)) for name, future in futures.items()}


def produced(bootstrap: str, *topics: str) -> dict[str, int]:
    """Produce one record into each topic with one request, if the client wants; return the error codes."""
    found: dict[str, int] = {}
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "mallory", "linger.ms": 200})

    def said(error: KafkaError | None, message: object) -> None:
        found[message.topic()] = 0 if error is None else error.code()  # type: ignore[attr-defined]  # untyped there

    for name in topics:
        producer.produce(name, key=FORGED[0], value=FORGED[1], on_delivery=said)
    assert producer.flush(SECONDS) == 0
    return found


def test_records_are_refused_and_those_of_other_topics_are_written(
    topic: Topic, process: SluiceProcess, create_topic: Callable[..., str]
) -> None:
    other = create_topic()
    before = refusals(process)
    assert produced(process.bootstrap, topic.name) == {topic.name: TOPIC_REFUSED}
    assert produced(process.bootstrap, other, topic.name) == {other: 0, topic.name: TOPIC_REFUSED}
    assert refusals(process) > before
    assert produced(topic.bootstrap, topic.name) == {topic.name: 0}, "nothing else keeps it out"
    assert rate_of(process, "mallory") == 100_000


def test_topics_cannot_be_deleted_grown_emptied_or_described(
    topic: Topic, process: SluiceProcess, journal: str, create_topic: Callable[..., str]
) -> None:
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    other = create_topic()
    assert codes(admin.create_partitions([NewPartitions(topic.name, 5), NewPartitions(other, 5)])) == {
        topic.name: TOPIC_REFUSED,
        other: 0,
    }
    assert codes(admin.delete_topics([topic.name, other, topic.audit, journal])) == {
        topic.name: TOPIC_REFUSED,
        other: 0,
        topic.audit: TOPIC_REFUSED,
        journal: TOPIC_REFUSED,
    }
    assert codes(admin.create_topics([NewTopic(topic.name, 1, 1)])) == {topic.name: TOPIC_REFUSED}
    (emptied,) = admin.delete_records([TopicPartition(topic.name, 0, 1)]).values()
    assert code(lambda: emptied.result(SECONDS)) == TOPIC_REFUSED
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    altered = ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=[entry])
    (altering,) = admin.incremental_alter_configs([altered]).values()
    assert code(lambda: altering.result(SECONDS)) == TOPIC_REFUSED
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic.name)]).values()
    assert code(lambda: described.result(SECONDS)) == TOPIC_REFUSED
    there = AdminClient({"bootstrap.servers": topic.bootstrap}).list_topics(timeout=SECONDS).topics
    assert len(there[topic.name].partitions) == 1
    assert {topic.audit, journal} <= there.keys()


def test_group_cannot_be_joined_committed_to_described_or_deleted(
    group: str, topic: Topic, process: SluiceProcess
) -> None:
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    consumer = Consumer({"bootstrap.servers": process.bootstrap, "group.id": group})
    try:
        consumer.subscribe([topic.name])
        joined = consumer.poll(SECONDS)
        assert joined is not None
        error = joined.error()
        assert error is not None
        assert error.code() == GROUP_REFUSED
        offset = TopicPartition(group, 0, 0, "leases_ms=0")
        assert code(lambda: consumer.commit(offsets=[offset], asynchronous=False)) == GROUP_REFUSED
    finally:
        consumer.close()
    assert codes(admin.delete_consumer_groups([group])) == {group: GROUP_REFUSED}
    assert codes(admin.describe_consumer_groups([group])) == {group: GROUP_REFUSED}
    (altering,) = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, [TopicPartition(group, 0, 5)])]
    ).values()
    (refused,) = altering.result(SECONDS).topic_partitions
    assert refused.error.code() == GROUP_REFUSED
