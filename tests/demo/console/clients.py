"""The demo's clients: five with a trouble each, and two without. Their names do not say which.

They are librdkafka as applications use it, but for one: a slow uplink, which sends the bytes of a request one by one.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.cluster import Address
from tests.support.raw_topics import Topic, batch, produce_request
from tests.support.wire import wired
from tests.unit.protocol.kafka_frames import framed

SLOW_BROKER: Final = 3
TOPICS: Final = {"orders": 1, "clicks": 2, "invoices": SLOW_BROKER, "stores": 1, "search": 2, "audit": 1}
QUOTAS: Final[dict[str, dict[str, float]]] = {
    "<default>": {"producer_byte_rate": 5_000_000, "consumer_byte_rate": 5_000_000},
    "orders-etl": {"producer_byte_rate": 500_000},
    "inventory-sync": {"request_percentage": 1.0},
}
TOPIC_QUOTA: Final = ("clicks", 300_000)
_STOPPED_SECONDS: Final = 0.4
_RUNS_SECONDS: Final = 0.1
_END_SECONDS_MAX: Final = 15.0
_AGAIN_SECONDS: Final = 1.0


class Place(NamedTuple):
    """Where a client finds Kafka: through Sluice."""

    bootstrap: str
    uplink: Address
    stores: Topic


_Stop = threading.Event
_Run = Callable[[Place, str, _Stop], None]


def _busy(topic: str, linger_ms: int = 5) -> _Run:
    """Write as fast as it can."""

    def run(place: Place, client_id: str, stop: _Stop) -> None:
        producer = _producer(place, client_id, linger_ms)
        while not stop.is_set():
            try:
                producer.produce(topic, bytes(1_000))
                producer.poll(0)
            except BufferError:
                producer.poll(0.1)  # Sluice slows it down
        producer.purge()

    return run


def _steady(topic: str, records: int, record_bytes: int) -> _Run:
    """Write some records each tenth of a second."""

    def run(place: Place, client_id: str, stop: _Stop) -> None:
        producer = _producer(place, client_id, 5)
        while not stop.wait(0.1):
            for _ in range(records):
                with contextlib.suppress(BufferError):
                    producer.produce(topic, bytes(record_bytes))
            producer.poll(0)
        producer.purge()

    return run


def _one_by_one(topic: str) -> _Run:
    """Write a record a moment after the last one is acknowledged."""

    def run(place: Place, client_id: str, stop: _Stop) -> None:
        producer = _producer(place, client_id, 0)
        while not stop.wait(0.05):
            producer.produce(topic, bytes(200))
            producer.flush(10)

    return run


def _reads(topic: str) -> _Run:
    """Wait for records that seldom come."""

    def run(place: Place, client_id: str, stop: _Stop) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": place.bootstrap,
                "client.id": client_id,
                "group.id": client_id,
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        while not stop.is_set():
            consumer.poll(0.2)
        consumer.close()

    return run


def _asks(place: Place, client_id: str, stop: _Stop) -> None:
    """Ask for the cluster's metadata, again and again."""
    admin = AdminClient({"bootstrap.servers": place.bootstrap, "client.id": client_id, "log_level": 0})
    while not stop.is_set():
        with contextlib.suppress(KafkaException):
            admin.list_topics(timeout=10)


def _uplink(place: Place, client_id: str, stop: _Stop) -> None:
    """Send requests over a line that takes seconds for each."""
    frame = framed(produce_request(place.stores, 0, batch([bytes(60_000)])), 1, client_id)
    step = len(frame) // 40
    with wired(place.uplink, client_id) as wire:
        while not stop.is_set():
            for start in range(0, len(frame), step):
                wire.send_bytes(frame[start : start + step])
                if stop.wait(0.1):
                    return
            wire.receive()


TROUBLES: Final[dict[str, tuple[str, _Run]]] = {
    "orders-etl": ("a byte quota of its own", _busy("orders")),
    "clickstream": ("the quota of the topic that it writes to", _busy("clicks")),
    "inventory-sync": ("the request quota: it asks for metadata all the time", _asks),
    "billing-export": (f"a slow broker: broker {SLOW_BROKER} responds late", _one_by_one("invoices")),
    "store-uplink-17": ("itself: it sends its requests slowly", _uplink),
}
CALM: Final[dict[str, _Run]] = {"search-indexer": _steady("search", 10, 2_000), "audit-log": _reads("audit")}


@contextmanager
def running(place: Place) -> Iterator[None]:
    """All clients, for the time of a `with`."""
    stop = threading.Event()
    clients = {name: run for name, (_, run) in TROUBLES.items()} | CALM
    threads = [
        threading.Thread(target=_again, args=(run, place, name, stop), name=name, daemon=True)
        for name, run in clients.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        deadline = time.monotonic() + _END_SECONDS_MAX
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


@contextmanager
def slow_broker(process_id: int) -> Iterator[None]:
    """A broker that runs for a fifth of the time."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(_RUNS_SECONDS):
            os.kill(process_id, signal.SIGSTOP)
            time.sleep(_STOPPED_SECONDS)
            os.kill(process_id, signal.SIGCONT)

    thread = threading.Thread(target=run, name="slow broker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _again(run: _Run, place: Place, client_id: str, stop: _Stop) -> None:
    """Run a client anew when a connection of it fails."""
    while not stop.is_set():
        with contextlib.suppress(OSError, KafkaException):
            run(place, client_id, stop)
        stop.wait(_AGAIN_SECONDS)


def _producer(place: Place, client_id: str, linger_ms: int) -> Producer:
    return Producer(
        {
            "bootstrap.servers": place.bootstrap,
            "client.id": client_id,
            "linger.ms": linger_ms,
            "batch.size": 50_000,
            "queue.buffering.max.kbytes": 1_000,
            "max.in.flight.requests.per.connection": 1,
            "message.timeout.ms": 300_000,
            "log_level": 0,
        }
    )
