"""The kafka-python driver (tests/interop/drivers/README.md)."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
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
    Clock,
    Tally,
    emit,
    parse_arguments,
    payload,
)


def capabilities(options: argparse.Namespace) -> None:
    present = {
        "gzip": kafka_codec.has_gzip(),
        "snappy": kafka_codec.has_snappy(),
        "lz4": kafka_codec.has_lz4(),
        "zstd": kafka_codec.has_zstd(),
    }
    emit(
        "capabilities",
        client=f"kafka-python {kafka.__version__}",
        compressions=["none", *(name for name, has in present.items() if has)],
        transactions=True,
    )


def semantics(options: argparse.Namespace) -> dict[str, object]:
    """Acks and idempotence, where they are not the client's defaults (idempotence goes with acks=all only)."""
    settings: dict[str, object] = {}
    if options.acks != "default":
        settings["acks"] = "all" if options.acks == "all" else int(options.acks)
    if options.idempotence != "default":
        settings["enable_idempotence"] = options.idempotence == "on"
    elif options.acks in {"0", "1"}:
        settings["enable_idempotence"] = False
    return settings


def produce(options: argparse.Namespace) -> None:
    for compression in options.compression.split(","):
        produce_with(options, compression)


def produce_with(options: argparse.Namespace, compression: str) -> None:
    tally = Tally(Clock(options.seconds, options.stop_file), options.watch_ms > 0)
    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap,
        client_id=options.client_id,
        compression_type=None if compression == "none" else compression,
        **semantics(options),
    )
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
    while not tally.clock.over() and (options.records == 0 or index < options.records):
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
    tally.produced_line(compression)


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it comes without types
    """Counts the assignments."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.tally.assigned([p.partition for p in assigned])

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Nothing to do: the next assignment is what counts."""


def consume(options: argparse.Namespace) -> None:
    tally = Tally(Clock(options.seconds, options.stop_file), options.watch_ms > 0)
    limits = {}
    if options.fetch_bytes:
        limits = {"fetch_max_bytes": options.fetch_bytes, "max_partition_fetch_bytes": options.fetch_bytes}
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        client_id=options.client_id,
        group_id=options.group or None,
        auto_offset_reset="earliest",
        enable_auto_commit=bool(options.group),
        isolation_level=options.isolation,
        **limits,
    )
    if options.group:
        consumer.subscribe([options.topic], listener=Listener(tally))
    else:
        consumer.assign([TopicPartition(options.topic, p) for p in range(options.partitions)])
        consumer.seek_to_beginning()
    while not tally.clock.over() and (options.records == 0 or tally.records < options.records):
        try:
            batches = consumer.poll(timeout_ms=100)
        except KafkaError as error:
            tally.error(repr(error))
            continue
        for records in batches.values():
            for record in records:
                tally.consumed(record.value)
    consumer.close()
    tally.consumed_line()


def transact(options: argparse.Namespace) -> None:
    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap,
        client_id=options.client_id,
        transactional_id=options.transactional_id,
    )
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
    client = KafkaAdminClient(bootstrap_servers=options.bootstrap, client_id=options.client_id)
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


def main() -> None:
    """Run one command of the contract."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    options = parse_arguments(sys.argv[1:])
    commands = {
        "capabilities": capabilities,
        "produce": produce,
        "consume": consume,
        "transact": transact,
        "admin": admin,
    }
    commands[options.command](options)


if __name__ == "__main__":
    main()
