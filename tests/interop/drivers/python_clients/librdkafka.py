"""The librdkafka driver, by way of confluent-kafka (tests/interop/drivers/README.md)."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.drivers.python_clients.common import ABORTED_BASE, CA_FILE, Tally, emit, payload, run

Settings = dict[str, str | int | float | bool]
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def base(options: argparse.Namespace) -> Settings:
    more = dict(pair.split("=", 1) for pair in options.properties.split(",") if pair)
    tls = {"security.protocol": "ssl", "ssl.ca.location": CA_FILE} if CA_FILE else {}
    return {"bootstrap.servers": options.bootstrap, "client.id": options.client_id, **tls, **more}


def semantics(options: argparse.Namespace) -> Settings:
    """Acks and idempotence, where they are not the client's defaults."""
    settings: Settings = {}
    if options.acks != "default":
        settings["acks"] = options.acks
    if options.idempotence != "default":
        settings["enable.idempotence"] = options.idempotence == "on"
    return settings


def produce(options: argparse.Namespace) -> None:
    tally = Tally.of(options)
    producer = Producer(
        {
            **base(options),
            **semantics(options),
            "compression.type": options.compression,
            "error_cb": tally.error,
        }
    )
    waiting = 0

    def delivered(index: int, sent_ms: int, error: KafkaError | None, message: Message) -> None:
        nonlocal waiting
        waiting -= 1
        if error is not None:
            tally.failed(index, error)
        else:
            tally.acknowledged(index, options.size, sent_ms)

    index = 0
    while tally.wants(options, index):
        if waiting >= options.outstanding:
            producer.poll(0.1)
            continue
        sent_ms = tally.clock.now_ms()
        producer.produce(
            options.topic,
            payload(index, options.size),
            partition=index % options.partitions,
            on_delivery=functools.partial(delivered, index, sent_ms),
        )
        waiting += 1
        index += 1
        time.sleep(options.watch_ms / 1000)
        producer.poll(0)
    producer.flush()
    tally.produced_line(options)


def consume(options: argparse.Namespace) -> None:
    tally = Tally.of(options)
    settings: dict[str, str | int | float | bool | Callable[..., None] | None] = {
        **base(options),
        "group.id": options.group or f"alone-{options.client_id}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": bool(options.group),
        "isolation.level": options.isolation,
        "group.protocol": options.group_protocol,
        "error_cb": tally.error,
    }
    if options.fetch_bytes:
        settings["fetch.message.max.bytes"] = options.fetch_bytes
        settings["fetch.max.bytes"] = max(options.fetch_bytes, 1000)
        # librdkafka refuses a fetch.max.bytes below message.max.bytes.
        settings["message.max.bytes"] = max(options.fetch_bytes, 1000)
    consumer = Consumer(settings)

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        tally.assigned([p.partition for p in partitions])

    if options.group:
        consumer.subscribe([options.topic], on_assign=on_assign)
    else:
        start = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([TopicPartition(options.topic, p, start) for p in range(options.partitions)])
    while tally.wants(options, tally.records):
        for message in consumer.consume(500, 0.1):
            error = message.error()
            if error is not None:
                tally.error(error)
            else:
                tally.consumed(message.value())
    consumer.close()
    tally.consumed_line()


def transact(options: argparse.Namespace) -> None:
    tally = Tally.of(options)
    producer = Producer(
        {**base(options), "transactional.id": options.transactional_id, "error_cb": tally.error}
    )
    producer.init_transactions()
    for first, commit in ((0, True), (ABORTED_BASE, False)):
        producer.begin_transaction()
        for index in range(options.records):
            value = payload(first + index, options.size)
            producer.produce(options.topic, value, partition=index % options.partitions)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    emit("transacted", committed=options.records, aborted=options.records, errors=tally.errors)


def admin(options: argparse.Namespace) -> None:
    client = AdminClient(base(options))
    new = NewTopic(options.topic, options.partitions, options.replication)
    try:
        client.create_topics([new])[options.topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    metadata = client.list_topics(timeout=30)
    cluster = client.describe_cluster().result()
    emit(
        "described",
        topics=sorted(metadata.topics),
        partitions=len(client.list_topics(options.topic, timeout=30).topics[options.topic].partitions),
        brokers=sorted(f"{node.id}@{node.host}:{node.port}" for node in cluster.nodes),
    )


if __name__ == "__main__":
    run(f"librdkafka {confluent_kafka.libversion()[0]}", COMPRESSIONS, produce, consume, transact, admin)
