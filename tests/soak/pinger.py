"""Honest clients that are measured: they ask (ApiVersions) and, where there is a topic, produce; from a process of
their own.

    python -m tests.soak.pinger --port 9092 --clients 10 --topic crowd

Open loop: a latency counts from the moment that a request was meant to leave, so a stall is not hidden by what it kept
back. A connection that ends is opened again, counted, and its time to the next response counts as latency too.
It prints `ready`, responds to `report` with one line of JSON about the time since the report before, and ends with its
standard input.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from tests.bench import wire
from tests.bench.generator import Peer, spread

_RECORD_BYTES: Final = 100
_RECONNECT_SECONDS: Final = 0.1
_CLIENT_ID: Final = "honest"
_BEHIND_MAX: Final = 10  # rounds: after a long stall not all that was missed is made up for


class Measured:
    """Latencies in ms since they were last taken, by what was asked; written by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, list[float]] = {}
        self._broken = 0

    def add(self, what: str, milliseconds: float) -> None:
        """Note one latency."""
        with self._lock:
            self._found.setdefault(what, []).append(milliseconds)

    def broken(self) -> None:
        """Note one connection that ended."""
        with self._lock:
            self._broken += 1

    def take(self) -> dict[str, object]:
        """Return the percentiles since the last call, and begin anew.

        >>> measured = Measured()
        >>> measured.add("ping", 2.0)
        >>> measured.take()
        {'broken': 0, 'ping': {'p50': 2.0, 'p99': 2.0, 'p99.9': 2.0, 'max': 2.0, 'count': 1}}
        >>> measured.take()
        {'broken': 0}
        """
        with self._lock:
            found, self._found = self._found, {}
            broken, self._broken = self._broken, 0
        taken: dict[str, object] = {"broken": broken}
        for what, times in sorted(found.items()):
            taken[what] = spread(times)
        return taken


class Caller:
    """One connection, opened again as often as it ends."""

    def __init__(self, options: argparse.Namespace, measured: Measured) -> None:
        self._options = options
        self._measured = measured
        self._peer: Peer | None = None

    def ask(self, request: bytes) -> bytearray:
        """Send a request until it gets a response."""
        while True:
            try:
                if self._peer is None:
                    self._peer = Peer(self._options.host, self._options.port, self._options.topic)
                return self._peer.exchange(request)
            except OSError:
                self._measured.broken()
                if self._peer is not None:
                    self._peer.socket.close()
                    self._peer = None
                time.sleep(_RECONNECT_SECONDS)


def client(options: argparse.Namespace, measured: Measured, number: int) -> None:
    """Ask at a fixed rate for ever; the thread ends with the process."""
    caller = Caller(options, measured)
    ping = wire.api_versions(_CLIENT_ID)
    record = wire.produce(_CLIENT_ID, options.topic, _RECORD_BYTES, int(time.time() * 1000))
    period = 1 / options.rate
    due = time.monotonic() + period * number / options.clients  # not all at once
    while True:
        due = max(due + period, time.monotonic() - _BEHIND_MAX * period)
        time.sleep(max(0.0, due - time.monotonic()))
        caller.ask(ping)
        responded = time.monotonic()
        measured.add("ping", (responded - due) * 1000)
        if options.topic:
            code = wire.produce_failed(caller.ask(record), options.topic)
            if code:
                measured.broken()
            measured.add("produce", (time.monotonic() - responded) * 1000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.pinger")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", default="")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rate", type=float, default=10.0, help="rounds a second of each client")
    options = parser.parse_args(arguments)
    measured = Measured()
    for number in range(options.clients):
        threading.Thread(target=client, args=(options, measured, number), daemon=True).start()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(measured.take()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
