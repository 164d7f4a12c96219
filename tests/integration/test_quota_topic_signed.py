"""A quota topic whose records are signed, and a client that writes to it directly at a broker."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quotas.definitions.entities import Entity
from quotas.definitions.records import Author, key_of, value_of
from tests.cluster import Cluster
from tests.support import record_flood
from tests.support.proxy_process import SluiceProcess, fleet_secret
from tests.support.quota_client import describe, set_rates
from tests.support.topic_quotas import Topic, rate_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

RATE = "producer_byte_rate"
FORGED = value_of(record_flood.FORGED_RATE, Author("admin", "10.0.0.4:1", "2026-01-31T12:00:00.000Z"))


@pytest.fixture
def topic(kafka: Cluster, tmp_path: Path) -> Iterator[Topic]:
    with Topic(kafka.bootstrap(), tmp_path) as found:
        yield found


def start(topic: Topic, name: str) -> SluiceProcess:
    return topic.start(name, sections={"fleet": {"secret_file": fleet_secret(topic.directory)}})


def key(name: str) -> bytes:
    return key_of(Entity(client_id=name), RATE)


def counted(process: SluiceProcess, result: str) -> float:
    return process.metric("sluice_quota_topic_records_total", result=result)


def records(topic: Topic, count: int) -> list[Any]:
    """The first records of the topic, with their headers."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": topic.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic.name, 0, 0)])
    try:
        found = consumer.consume(count, timeout=30)
    finally:
        consumer.close()
    assert len(found) == count
    return found


def again(topic: Topic, record: Any) -> None:
    """Append a record that is there once more, with its headers."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": topic.bootstrap})
    producer.produce(topic.name, key=record.key(), value=record.value(), headers=record.headers())
    assert producer.flush(30) == 0


def test_forged_and_repeated_records_change_nothing_at_any_member(topic: Topic) -> None:
    first = start(topic, "first")
    assert set_rates(first.bootstrap, a=9.0) == [(0, "")]
    assert set_rates(first.bootstrap, a=5.0) == [(0, "")]
    since, _, genuine, *_ = records(topic, 6)
    assert (since.key(), genuine.key()) == (b'{"signed":"since"}', key("a"))
    assert [name for name, _ in genuine.headers()] == ["sluice-signature"]
    again(topic, genuine)
    topic.produce([(key("a"), FORGED), (key("mallory"), FORGED), (key("a"), None)])
    until(lambda: counted(first, "unsigned") == 3, "they are counted")
    assert counted(first, "replayed") == 1
    second = start(topic, "second")
    for process in (first, second):
        assert rate_of(process, "a") == 5.0
        assert len(describe(process.bootstrap)) == 1
    assert "records of the topic skipped" in first.log()
    # What is in force is written again, so that compaction does not leave the forged removal.

    def restored() -> bool:
        return any(process.metric("sluice_quota_topic_restored_total") for process in (first, second))

    until(restored, "it is written again")
    assert rate_of(first, "a") == 5.0


def test_unsigned_topic_is_taken_over_once_and_a_new_one_of_its_name_is_not(
    topic: Topic, admin: "KafkaAdminClient"
) -> None:
    old = topic.start("old")
    assert set_rates(old.bootstrap, a=5.0) == [(0, "")]
    topic.kill(old)
    first = start(topic, "first")
    until(lambda: "unsigned quotas taken over" in first.log(), "it is taken over")
    topic.produce([(key("a"), FORGED)])
    until(lambda: counted(first, "unsigned") == 1, "it is counted")
    until(lambda: first.metric("sluice_quota_snapshot_writes_total", result="ok"), "a snapshot", 60)
    topic.kill(first)
    admin.delete_topics([topic.name])
    until(lambda: topic.name not in admin.list_topics(), "it is gone")
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # theirs

    wanted = NewTopic(topic.name, 1, 3, config={"cleanup.policy": "compact"})
    client = AdminClient({"bootstrap.servers": topic.bootstrap})
    for done in client.create_topics([wanted]).values():
        done.result(30)
    topic.produce([(key("a"), FORGED)])
    again = start(topic, "first")
    assert rate_of(again, "a") == 5.0
    assert "the topic has lost its signed records" in again.log()
    until(lambda: "unsigned quotas taken over" in again.log(), "they are written to the new topic")
    assert rate_of(start(topic, "second"), "a") == 5.0
