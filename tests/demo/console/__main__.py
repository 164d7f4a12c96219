"""`python -m tests.demo.console`: bring the cluster up, print the page's address, stay until Ctrl-C or `--seconds`.

With `--screenshots DIR` a Chromium opens the pages after a minute and leaves pictures of them.

Of its clients five have a trouble each, and two have none; their names do not say which. They are librdkafka as
applications use it, but for one: a slow uplink, which sends the bytes of a request one by one.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from tests.bench import report
from tests.cluster import HOST, Address, Cluster, ClusterOptions
from tests.support.console_process import ConsoleProcess
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.proxy_process import sluice as command
from tests.support.raw_topics import Topic, batch, describe, produce_request
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


_PORT: Final = 9190
_SETTLE_SECONDS: Final = 75.0  # until the last minute has no beginning in it


def main(_: Console) -> bool:
    """Show it."""
    parser = argparse.ArgumentParser(prog="make console-demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=inf, help="how long it runs (default: until Ctrl-C)")
    parser.add_argument("--answers", action="store_true", help="say what is wrong with each client")
    parser.add_argument(
        "--screenshots", type=Path, metavar="DIR", help="leave pictures there, after a minute"
    )
    options = parser.parse_args()
    with cluster_with_troubles() as console:
        _say(console, answers=options.answers)
        end = time.monotonic() + options.seconds
        if options.screenshots is not None:
            time.sleep(_SETTLE_SECONDS)
            _take_screenshots(console, options.screenshots)
        while time.monotonic() < end:
            time.sleep(0.5)
    return True


@contextmanager
def cluster_with_troubles() -> Iterator[ConsoleProcess]:
    """Three brokers, Sluice, the clients, and the console."""
    print("Starting three Kafka brokers (about 15 s) …", flush=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-demo-")))
        cluster = stack.enter_context(Cluster(ClusterOptions(nodes=3)))
        _create_topics(cluster.bootstrap())
        settings = SluiceSettings(
            cluster.bootstrap(), quotas={"policy": "schedule", "scope": "cluster"}, client_quotas=QUOTAS
        )
        print("Starting sluice serve, seven clients, and sluice console …", flush=True)
        sluice = stack.enter_context(SluiceProcess.configured(settings, directory))
        _set_topic_quota(sluice)
        stores = describe(cluster, "stores")
        uplink = HOST, sluice.ports.first_broker + TOPICS["stores"]
        stack.enter_context(slow_broker(cluster.process_id(SLOW_BROKER)))
        stack.enter_context(running(Place(sluice.bootstrap, uplink, stores)))
        admins = [f"{HOST}:{sluice.ports.admin}"]
        yield stack.enter_context(ConsoleProcess(admins, directory=directory, port=_PORT))


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(name, num_partitions=1, replica_assignment=[[broker]]) for name, broker in TOPICS.items()
    ]
    for created in admin.create_topics(topics).values():
        created.result(30)


def _set_topic_quota(sluice: SluiceProcess) -> None:
    topic, limit = TOPIC_QUOTA
    words = ("--topic", topic, f"producer_byte_rate={limit}")
    command("quotas", "set", "--bootstrap-server", sluice.bootstrap, *words)


def _say(console: ConsoleProcess, *, answers: bool) -> None:
    print(f"\nThe console: {console.url}\n")
    print(f"Five clients have a trouble: {', '.join(TROUBLES)}. Which one has which? (Ctrl-C ends the demo.)")
    for name, (trouble, _) in TROUBLES.items() if answers else ():
        print(f"  {name}: {trouble}")
    sys.stdout.flush()


def _take_screenshots(console: ConsoleProcess, directory: Path) -> None:
    """Leave pictures: the first screen, light and dark and narrow, and each client."""
    from tests.support.chromium import chromium, picture

    directory.mkdir(parents=True, exist_ok=True)
    clients = {
        f"console-{name}": f"client?{urlencode({'client_id': name, 'user': 'ANONYMOUS'})}"
        for name in TROUBLES
    }
    with chromium() as light:
        for name, path in {"console": "", **clients}.items():
            picture(light, console.url + path, directory / f"{name}.png")
    with chromium(dark=True) as dark:
        picture(dark, console.url, directory / "console-dark.png")
    with chromium(width=600) as narrow:
        picture(narrow, console.url, directory / "console-narrow.png")
    print(f"pictures: {directory}", flush=True)


if __name__ == "__main__":
    sys.exit(report.run(main))
