"""The clients: librdkafka, one instance and one connection each, all with one client id, in a process of their own.

Requests of 1 MB: a producer sends one record in each, a consumer asks for no more. One request is under way on each
connection, so what a quota does to it is not hidden by a queue. It counts timeouts: in delivery reports, in errors and
in the client's log.
"""

import argparse
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

REQUEST_BYTES: Final = 1_000_000
_OVERHEAD_BYTES: Final = 200
"""Header, topic and record batch around the one value of a Produce request."""
_FILL_RECORD_BYTES: Final = 10_000
_READY_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.005
_TIMEOUTS: Final = {
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.REQUEST_TIMED_OUT,
}
_NOT_OURS: Final = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._PARTITION_EOF}


class Tally(logging.Handler):
    """What the clients complained about."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.logger = logging.getLogger("librdkafka")
        self.logger.propagate = False
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Count a line of the client's log."""
        text = record.getMessage()
        self.seen["timeouts" if "timed out" in text.lower() else "log lines"] += 1
        print(text, file=sys.stderr)

    def error(self, problem: KafkaError) -> None:
        """Count an error of a client."""
        if problem.code() in _NOT_OURS:
            return
        self.seen["timeouts" if problem.code() in _TIMEOUTS else "errors"] += 1
        print(problem, file=sys.stderr)

    def delivered(self, problem: KafkaError | None, _message: Message) -> None:
        """Count a delivery report."""
        if problem is None:
            self.seen["delivered"] += 1
        else:
            self.error(problem)


def common(options: argparse.Namespace, tally: Tally) -> dict[str, object]:
    """Return what producers and consumers have in common; everything else is librdkafka's default."""
    return {
        "bootstrap.servers": options.bootstrap,
        "client.id": options.client_id,
        "error_cb": tally.error,
        "logger": tally.logger,
    }


def producers(options: argparse.Namespace, tally: Tally) -> None:
    """Produce as fast as the quota lets through."""
    own = {
        "acks": 1,
        "max.in.flight.requests.per.connection": 1,
        "linger.ms": 0,
        "message.max.bytes": 2_000_000,
    }
    clients = [Producer(common(options, tally) | own) for _ in range(options.connections)]
    for client in clients:
        client.list_topics(options.topic, _READY_SECONDS)
    value = bytes(REQUEST_BYTES - _OVERHEAD_BYTES)
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        for client in clients:
            if len(client) < 2:  # the next one is ready when the response to this one comes
                client.produce(options.topic, value, partition=0, on_delivery=tally.delivered)
            client.poll(0)
        time.sleep(_PAUSE_SECONDS)
    for client in clients:
        client.purge()
        client.poll(0)


def consumers(options: argparse.Namespace, tally: Tally) -> None:
    """Consume as fast as the quota lets through, each client the whole partition by itself."""
    own = {
        "group.id": options.client_id,
        "enable.auto.commit": False,
        "fetch.max.bytes": REQUEST_BYTES,
        "max.partition.fetch.bytes": REQUEST_BYTES,
    }
    clients = [Consumer(common(options, tally) | own) for _ in range(options.connections)]
    for client in clients:
        client.list_topics(options.topic, _READY_SECONDS)
    end = time.monotonic() + options.seconds
    for client in clients:
        client.assign([TopicPartition(options.topic, 0, 0)])
    while time.monotonic() < end:
        for client in clients:
            for message in client.consume(1000, timeout=0):
                problem = message.error()
                if problem is not None:
                    tally.error(problem)
                else:
                    tally.seen["delivered"] += 1
        time.sleep(_PAUSE_SECONDS)


def fill(bootstrap: str, topic: str, size: int) -> None:
    """Put `size` bytes into partition 0 of a topic, directly."""
    client = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 20})
    value = bytes(_FILL_RECORD_BYTES)
    for _ in range(size // _FILL_RECORD_BYTES):
        while True:
            try:
                client.produce(topic, value, partition=0)
                break
            except BufferError:
                client.poll(0.1)
    if left := client.flush(60):
        raise ChildProcessError(f"{left} records were not delivered while filling {topic}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the clients for some seconds and print what they complained about."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.accuracy.clients")
    parser.add_argument("direction", choices=("produce", "consume"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--client-id", required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args(arguments)
    tally = Tally()
    (producers if options.direction == "produce" else consumers)(options, tally)
    print(json.dumps(dict(tally.seen)), flush=True)
    # Closing waits for requests that are still held back; their responses are not needed.
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    import os

    os._exit(main())
