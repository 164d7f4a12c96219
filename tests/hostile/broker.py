"""The scripted broker as a child process, its orders, and what it has counted."""

import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.cluster import HOST, free_ports, processes
from tests.hostile.meter import Counted
from tests.support.proxy_process import ROOT

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
