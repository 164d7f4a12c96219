"""The honest client beside an attack, as a child process: what the attack costs other clients.

    python -m tests.hostile.ping HOST PORT

It asks ApiVersions every few milliseconds. Timed from the moment a request was meant to leave, so a stall is not hidden
by the requests it kept back. At SIGTERM, or when the connection is lost, it writes one line of JSON: each request's due
time (monotonic) and latency in seconds, and why it was lost.
"""

import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster import Address, processes
from tests.hostile.wire import Client, api_versions
from tests.support.proxy_process import ROOT

_WARM_UP_SECONDS: Final = 1.0


@dataclass(slots=True)
class Latencies:
    """When each request was due and how long its response took, in seconds; known when the `with` is over.

    Attributes:
        lost: why the connection broke, "" where it did not.
    """

    latencies: list[tuple[float, float]] = field(default_factory=list)
    lost: str = ""

    def longest(self, began: float, ended: float) -> float:
        """The longest wait that fell into a time, in seconds; infinite where it had broken by then, or never began."""
        last = max((due + waited for due, waited in self.latencies), default=0.0)
        if self.lost and last < ended:
            return float("inf")
        found = [waited for due, waited in self.latencies if due <= ended and due + waited >= began]
        return max(found, default=float("inf"))


@contextlib.contextmanager
def pinged(address: Address) -> Iterator[Latencies]:
    """Have an honest client ask all the while."""
    found = Latencies()
    with tempfile.TemporaryDirectory(prefix="hostile-ping-") as directory:
        out = Path(directory) / "out"
        command = [sys.executable, "-m", "tests.hostile.ping", address[0], str(address[1])]
        child = processes.start(command, log=out, cwd=ROOT)
        time.sleep(_WARM_UP_SECONDS)
        try:
            yield found
        finally:
            processes.end(child)
        told = json.loads(out.read_text().splitlines()[-1])
        found.latencies = [(due, waited) for due, waited in told["latencies"]]
        found.lost = told["lost"]


_PAUSE_SECONDS: Final = 0.01
_SECONDS_MAX: Final = 300.0


class EndedError(Exception):
    """SIGTERM."""


def main(host: str, port: int) -> None:
    """Ask until told to stop."""

    def stop(*_: object) -> None:
        raise EndedError

    signal.signal(signal.SIGTERM, stop)
    latencies: list[tuple[float, float]] = []
    lost = ""
    due = 0.0
    try:
        client = Client((host, port))
        request = api_versions("ping")
        client.ask(request)  # the broker is connected for it
        due = began = time.monotonic()
        while due - began < _SECONDS_MAX:
            client.ask(request)
            now = time.monotonic()
            latencies.append((due, now - due))
            due += _PAUSE_SECONDS
            time.sleep(max(0.0, due - now))
    except EndedError:
        if due:
            latencies.append((due, max(0.0, time.monotonic() - due)))
    except OSError as error:
        lost = f"{type(error).__name__}: {error}"
    print(json.dumps({"latencies": latencies, "lost": lost}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
