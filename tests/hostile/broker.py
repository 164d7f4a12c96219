"""The scripted broker as a child process, its orders, and what it has counted, in buckets of 10 ms."""

import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.cluster import HOST, free_ports, processes
from tests.support.proxy_process import ROOT

BUCKETS_A_SECOND: Final = 100
WINDOWS: Final = 11  # of a second each: Kafka's default


@dataclass(frozen=True, slots=True)
class Counted:
    """Bytes by the number of their bucket."""

    buckets: Mapping[int, int]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.buckets.values())

    def fullest(self, seconds: float = 1.0) -> int:
        """The most bytes within any `seconds`.

        >>> Counted({0: 5, 99: 5, 100: 7}).fullest()
        12
        """
        length = round(seconds * BUCKETS_A_SECOND)
        most = held = 0
        first = 0
        order = sorted(self.buckets)
        for bucket in order:
            held += self.buckets[bucket]
            while order[first] <= bucket - length:
                held -= self.buckets[order[first]]
                first += 1
            most = max(most, held)
        return most


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a quota lets pass, in bytes: `in_second` in any second, `in_run` in all."""

    in_second: float
    in_run: float


def scheduled(rate: float, request_bytes: int, seconds: float, burst_seconds: float = 1.0) -> Allowance:
    """Under `schedule`: burst + 1 s + one request in any second; burst + 1.02 × the rate and one request in all.

    >>> scheduled(2_000_000, 1_000_000, 10)
    Allowance(in_second=5000000.0, in_run=23400000.0)
    """
    burst = rate * burst_seconds
    return Allowance(burst + rate + request_bytes, burst + 1.02 * rate * seconds + request_bytes)


def as_kafka(
    rate: float, request_bytes: int, seconds: float, connections: int, mute_seconds_max: float
) -> Allowance:
    """Under `kip13`: all windows' worth at once, and of each connection one request each longest mute.

    That is Kafka's own arithmetic for connections that stay; one that is made anew has no more.

    >>> as_kafka(2_000_000, 1_000_000, 10, connections=4, mute_seconds_max=20)
    Allowance(in_second=26000000, in_run=46400000.0)
    """
    windows = rate * WINDOWS
    each = request_bytes * connections
    return Allowance(
        windows + each, windows + 1.02 * rate * seconds + each * (1 + seconds // mute_seconds_max)
    )


_START_SECONDS_MAX: Final = 20.0
_ORDER_SECONDS_MAX: Final = 30.0


class ScriptedBroker:
    """One running `broker_program`."""

    def __init__(self) -> None:
        self.port, control = free_ports(2)
        self.bootstrap = f"{HOST}:{self.port}"
        self._log = Path(tempfile.mkstemp(prefix="hostile-broker-")[1])
        command = [sys.executable, "-m", "tests.hostile.broker_program", str(self.port), str(control)]
        self._child = processes.start(command, log=self._log, cwd=ROOT)
        self._control = self._connect(control)
        self._lock = threading.Lock()

    def _connect(self, port: int) -> socket.socket:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while True:
            try:
                return socket.create_connection((HOST, port), timeout=_ORDER_SECONDS_MAX)
            except OSError:
                if time.monotonic() > deadline or self._child.poll() is not None:
                    raise RuntimeError(f"the scripted broker: {self._log.read_text()}") from None
                time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._control.close()
        processes.kill(self._child)
        text = self._log.read_text()
        self._log.unlink()
        if text:
            print(f"--- scripted broker\n{text}", file=sys.stderr)

    def order(self, **words: object) -> Mapping[str, object]:
        """Give an order; see `broker_program.Script`."""
        line = b""
        with self._lock:
            self._control.sendall(json.dumps(words).encode() + b"\n")
            while not line.endswith(b"\n"):
                piece = self._control.recv(1 << 20)
                if not piece:
                    raise RuntimeError(f"the scripted broker: {self._log.read_text()}")
                line += piece
        found: Mapping[str, object] = json.loads(line)
        return found

    def release(self, client_id: str) -> None:
        """Have records for a client whose Fetches are parked, for a moment."""
        self.order(release=client_id)

    def reset(self) -> None:
        """Forget what was counted."""
        self.order(reset=True)

    def counted(self, direction: str, client_id: str = "") -> Counted:
        """What was counted of one client, and of those whose id is its own and `/…`; of all for ""."""
        report = self.order(report=True)[direction]
        assert isinstance(report, dict), "the program answers so"
        total: dict[int, int] = {}
        for name, buckets in report.items():
            if not client_id or name == client_id or name.startswith(f"{client_id}/"):
                for bucket, count in buckets.items():
                    total[int(bucket)] = total.get(int(bucket), 0) + count
        return Counted(total)

    def requests(self, api: str) -> int:
        """How many requests of one API came."""
        found = self.order(report=True)["requests"]
        assert isinstance(found, dict), "the program answers so"
        return int(found.get(api, 0))
