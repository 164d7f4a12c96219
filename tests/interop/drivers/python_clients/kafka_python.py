"""The kafka-python driver (tests/interop/drivers/README.md)."""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from collections.abc import Callable, Iterable

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka import codec as kafka_codec
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.errors import KafkaError, TopicAlreadyExistsError

from tests.interop.drivers.python_clients.common import (
    ABORTED_BASE,
    Tally,
    compressions,
    emit,
    payload,
    python_client,
    python_consumer,
    python_producer,
    run,
)

# kafka-python 3.0 can lose an assignment that arrives when a poll's time is just over: with new metadata its leader
# joins again, and the next poll sees no reason to take the result. It then sends no heartbeat either, and its group
# waits until its session is over. So polls are long; they end with the first record.
POLL_MS = 2000


def produce(options: argparse.Namespace) -> None:
    tally = Tally.of(options)
    producer = KafkaProducer(**python_producer(options))
    room = threading.Semaphore(options.outstanding)

    def acknowledged(index: int, sent_ms: int) -> Callable[[object], None]:
        def done(_: object) -> None:
            tally.acknowledged(index, options.size, sent_ms)
            room.release()

        return done

    def failed(index: int) -> Callable[[BaseException], None]:
        def done(error: BaseException) -> None:
            tally.failed(index, repr(error))
            room.release()

        return done

    index = 0
    while tally.wants(options, index):
        if not room.acquire(timeout=0.1):
            continue
        value = payload(index, options.size)
        sent_ms = tally.clock.now_ms()
        future = producer.send(options.topic, value, partition=index % options.partitions)
        future.add_callback(acknowledged(index, sent_ms))
        future.add_errback(failed(index))
        index += 1
        time.sleep(options.watch_ms / 1000)
    producer.flush()
    producer.close()
    tally.produced_line(options)


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it comes without types
    """Counts the assignments."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.tally.assigned([p.partition for p in assigned])

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Nothing to do: the next assignment is what counts."""


def consume(options: argparse.Namespace) -> None:
    tally = Tally.of(options)
    consumer = KafkaConsumer(**python_consumer(options))
    if options.group:
        consumer.subscribe([options.topic], listener=Listener(tally))
    else:
        consumer.assign([TopicPartition(options.topic, p) for p in range(options.partitions)])
        consumer.seek_to_beginning()
    while tally.wants(options, tally.records):
        try:
            batches = consumer.poll(timeout_ms=POLL_MS)
        except KafkaError as error:
            tally.error(repr(error))
            continue
        for records in batches.values():
            for record in records:
                tally.consumed(record.value)
    consumer.close()
    tally.consumed_line()


def transact(options: argparse.Namespace) -> None:
    producer = KafkaProducer(**python_client(options), transactional_id=options.transactional_id)
    producer.init_transactions()
    for first, commit in ((0, True), (ABORTED_BASE, False)):
        producer.begin_transaction()
        for index in range(options.records):
            value = payload(first + index, options.size)
            producer.send(options.topic, value, partition=index % options.partitions)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    emit("transacted", committed=options.records, aborted=options.records, errors=0)


def admin(options: argparse.Namespace) -> None:
    client = KafkaAdminClient(**python_client(options))
    with contextlib.suppress(TopicAlreadyExistsError):
        client.create_topics([NewTopic(options.topic, options.partitions, options.replication)])
    client.wait_for_topics([options.topic])
    topic = client.describe_topics([options.topic])[0]
    emit(
        "described",
        topics=sorted(client.list_topics()),
        partitions=len(topic["partitions"]),
        brokers=sorted(
            f"{node['broker_id']}@{node['host']}:{node['port']}"
            for node in client.describe_cluster()["brokers"]
        ),
    )
    client.close()


if __name__ == "__main__":
    run(f"kafka-python {kafka.__version__}", compressions(kafka_codec), produce, consume, transact, admin)
