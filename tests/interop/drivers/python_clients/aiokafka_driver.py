"""The aiokafka driver (tests/interop/drivers/README.md).

aiokafka ignores throttle_time_ms: it is the family that shows that muting alone holds a client to its quota.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
from collections.abc import Collection

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka import codec as aiokafka_codec
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, KafkaTimeoutError

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


async def produce(options: argparse.Namespace) -> None:
    tally = Tally.of(options)
    producer = AIOKafkaProducer(**python_producer(options))
    await producer.start()
    room = asyncio.Semaphore(options.outstanding)

    def settled(future: asyncio.Future[object], index: int, sent_ms: int) -> None:
        room.release()
        error = future.exception()
        if error is not None:
            tally.failed(index, repr(error))
        else:
            tally.acknowledged(index, options.size, sent_ms)

    index = 0
    while tally.wants(options, index):
        try:
            await asyncio.wait_for(room.acquire(), 0.1)
        except TimeoutError:
            continue
        value = payload(index, options.size)
        sent_ms = tally.clock.now_ms()
        try:
            future = await producer.send(options.topic, value, partition=index % options.partitions)
        except KafkaTimeoutError as error:  # no room in its buffer for request_timeout_ms
            room.release()
            tally.failed(index, repr(error))
        else:
            future.add_done_callback(functools.partial(settled, index=index, sent_ms=sent_ms))
        index += 1
        if options.watch_ms:
            await asyncio.sleep(options.watch_ms / 1000)
    await producer.flush()
    await producer.stop()
    tally.produced_line(options)


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it comes without types
    """Counts the assignments."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.tally.assigned([p.partition for p in assigned])

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Nothing to do: the next assignment is what counts."""


async def consume(options: argparse.Namespace) -> None:
    tally = Tally.of(options)
    consumer = AIOKafkaConsumer(**python_consumer(options))
    await consumer.start()
    if options.group:
        consumer.subscribe([options.topic], listener=Listener(tally))
    else:
        consumer.assign([TopicPartition(options.topic, p) for p in range(options.partitions)])
        await consumer.seek_to_beginning()
    while tally.wants(options, tally.records):
        try:
            batches = await consumer.getmany(timeout_ms=100)
        except KafkaError as error:
            tally.error(repr(error))
            continue
        for records in batches.values():
            for record in records:
                tally.consumed(record.value)
    await consumer.stop()
    tally.consumed_line()


async def transact(options: argparse.Namespace) -> None:
    producer = AIOKafkaProducer(**python_client(options), transactional_id=options.transactional_id)
    await producer.start()
    for first, commit in ((0, True), (ABORTED_BASE, False)):
        await producer.begin_transaction()
        for index in range(options.records):
            value = payload(first + index, options.size)
            await producer.send(options.topic, value, partition=index % options.partitions)
        await producer.flush()
        if commit:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
    await producer.stop()
    emit("transacted", committed=options.records, aborted=options.records, errors=0)


async def admin(options: argparse.Namespace) -> None:
    client = AIOKafkaAdminClient(**python_client(options))
    await client.start()
    # An existing topic is an error code inside the response, which aiokafka hands over as it is.
    await client.create_topics([NewTopic(options.topic, options.partitions, options.replication)])
    topic = (await client.describe_topics([options.topic]))[0]
    emit(
        "described",
        topics=sorted(await client.list_topics()),
        partitions=len(topic["partitions"]),
        brokers=sorted(
            f"{node['node_id']}@{node['host']}:{node['port']}"
            for node in (await client.describe_cluster())["brokers"]
        ),
    )
    await client.close()


if __name__ == "__main__":
    run(f"aiokafka {aiokafka.__version__}", compressions(aiokafka_codec), produce, consume, transact, admin)
