"""What the demo reads while it runs: the clients' own counters, and the waits of their connections at the proxy."""

import json
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster import processes
from tests.demo.plan import DIRECTIONS, FETCH, PRODUCE, ClientPlan, Outcome
from tests.support.proxy_process import ROOT, SluiceProcess

_RECENT_REPORTS: Final = 12  # three seconds: what the live table calls "now"
_RECENT_WAITS: Final = 7  # the same
_LOG_CHARACTERS_SHOWN: Final = 2000


@dataclass(frozen=True, slots=True)
class Reading:
    """One line of a client: the monotonic time and the bytes so far, by direction."""

    monotonic: float
    bytes_by_direction: dict[str, int]
    errors: int


@dataclass(frozen=True, slots=True)
class Waited:
    """How long the connection has waited that waits longest: a sum of seconds, by direction."""

    monotonic: float
    seconds: dict[str, float]


@dataclass
class DemoClient:
    """One running client and what it has reported."""

    plan: ClientPlan
    child: "subprocess.Popen[bytes]"
    log: Path
    recent: deque[Reading] = field(default_factory=lambda: deque(maxlen=_RECENT_REPORTS))
    marked: Reading | None = None
    waits: deque[Waited] = field(default_factory=lambda: deque(maxlen=_RECENT_WAITS))
    marked_waits: Waited | None = None
    _read: int = 0

    @classmethod
    def start(cls, plan: ClientPlan, bootstrap: str, directory: Path) -> "DemoClient":
        """Start the client's process."""
        log = directory / f"{plan.client_id}.log"
        arguments = ["--bootstrap", bootstrap, "--client-id", plan.client_id, "--topic", topic_of(plan)]
        offered = [] if plan.offered is None else ["--offered", str(plan.offered)]
        command = [sys.executable, "-m", "tests.demo.client", *arguments, *offered]
        return cls(plan, processes.start(command, log=log, cwd=ROOT), log)

    def update(self, sluice: SluiceProcess) -> None:
        """Read the new lines of the client, and the proxy's counters for it."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                if line.startswith(b"{"):  # librdkafka writes its own lines, too
                    self.recent.append(_reading(json.loads(line)))
        name, client_id = "sluice_client_longest_wait_seconds_total", self.plan.client_id
        seconds = {
            direction: sluice.metric(name, client_id=client_id, type=direction) for direction in DIRECTIONS
        }
        self.waits.append(Waited(time.monotonic(), seconds))

    def mark(self) -> None:
        """Begin to measure: what came before (start, the burst that a quota allows) no longer counts."""
        self.marked = self.recent[-1] if self.recent else None
        self.marked_waits = self.waits[-1] if self.waits else None

    def rate_now(self, direction: str) -> float:
        """Return the rate of the last seconds."""
        return _rate(self.recent[0], self.recent[-1], direction) if len(self.recent) > 1 else 0.0

    def waited_now(self, direction: str) -> float:
        """Return the part of the last seconds that the connection waited which waited longest."""
        return _part(self.waits[0], self.waits[-1], direction) if self.waits else 0.0

    def outcome(self, direction: str) -> Outcome:
        """Return the rate, and the part of the time that was waited, since `mark`."""
        measured = _rate(self.marked, self.recent[-1], direction) if self.marked and self.recent else 0.0
        waited = _part(self.marked_waits, self.waits[-1], direction) if self.marked_waits else 0.0
        return Outcome(self.plan, direction, measured, waited)

    @property
    def trouble(self) -> str:
        """Return what went wrong at the client, or nothing."""
        if self.child.poll() is not None:
            return f"ended by itself: {self.log.read_text()[-_LOG_CHARACTERS_SHOWN:]}"
        errors = self.recent[-1].errors if self.recent else 0
        return f"saw {errors} errors" if errors else ""


def topic_of(plan: ClientPlan) -> str:
    """Return the name of a client's own topic."""
    return f"demo-{plan.client_id}"


def _reading(report: dict[str, float]) -> Reading:
    so_far = {PRODUCE: int(report["sent"]), FETCH: int(report["received"])}
    return Reading(report["monotonic"], so_far, int(report["errors"]))


def _rate(first: Reading, last: Reading, direction: str) -> float:
    seconds = last.monotonic - first.monotonic
    moved = last.bytes_by_direction[direction] - first.bytes_by_direction[direction]
    return moved / seconds if seconds > 0 else 0.0


def _part(first: Waited, last: Waited, direction: str) -> float:
    seconds = last.monotonic - first.monotonic
    return min(1.0, (last.seconds[direction] - first.seconds[direction]) / seconds) if seconds > 0 else 0.0
