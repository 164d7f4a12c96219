"""A client that writes as fast as it is let, and the rate of several."""

import threading
import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Producer

RECORD: Final = b"x" * 1000


class Load:
    """One producer, as fast as it is let, in a thread of its own.

    Args:
        partition: where it writes; None: to all of them.

    Attributes:
        bytes: what was acknowledged.
    """

    def __init__(self, bootstrap: str, topic: str, client_id: str, partition: int | None = None) -> None:
        self.bytes = 0
        self._to = {"topic": topic} if partition is None else {"topic": topic, "partition": partition}
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "linger.ms": 5,
                "queue.buffering.max.kbytes": 2048,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.produce(**self._to, value=RECORD, on_delivery=self._delivered)
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.02)
        self._producer.purge()

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.bytes += len(RECORD)

    def stop(self) -> None:
        """End it, whatever is not sent."""
        self._stopping.set()
        self._thread.join()


def rate(loads: Sequence[Load], seconds: float) -> float:
    """Return the bytes/s that were acknowledged to all, measured over some seconds."""
    before, began = sum(load.bytes for load in loads), time.monotonic()
    time.sleep(seconds)
    return (sum(load.bytes for load in loads) - before) / (time.monotonic() - began)
