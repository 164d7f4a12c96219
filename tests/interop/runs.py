"""Starting drivers, side by side if need be, and reading what they say."""

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

from tests.cluster import processes
from tests.interop.families import ROOT, Family

_LOG_BYTES_SHOWN: Final = 6000
Lane = TypeVar("Lane")
_REDIRECT: Final = 'log=$1; shift; exec "$@" 2>"$log"'


class DriverError(AssertionError):
    """A driver did not do what it was told; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Event:
    """One JSON line of a driver."""

    name: str
    fields: Mapping[str, object]

    def number(self, key: str) -> int:
        value = self.fields[key]
        assert isinstance(value, int), f"{key} of {self} is not a number"
        return value

    def text(self, key: str) -> str:
        return str(self.fields[key])

    def items(self, key: str) -> list[object]:
        value = self.fields[key]
        assert isinstance(value, list), f"{key} of {self} is no list"
        return value


class Run:
    """One driver process, writing its lines into a file."""

    def __init__(self, family: Family, words: Sequence[str], directory: Path) -> None:
        self.family = family
        self.words = tuple(words)
        name = f"{family.name}-{words[0]}-{time.monotonic_ns()}"
        self._lines = directory / f"{name}.jsonl"
        self._log = directory / f"{name}.log"
        command = family.build()
        self._child = processes.start(
            ["sh", "-c", _REDIRECT, "sh", str(self._log), *command.words, *words],
            log=self._lines,
            env={**os.environ, **dict(command.environment)},
            cwd=ROOT,
        )

    def events(self, name: str = "") -> list[Event]:
        """Return the lines so far, or those of one kind; a line that is still being written is left out."""
        found = []
        for line in self._lines.read_text().split("\n")[:-1]:
            fields = json.loads(line)
            if not name or fields["event"] == name:
                found.append(Event(str(fields["event"]), fields))
        return found

    def last(self, name: str) -> Event:
        """Return the last line of one kind; DriverError if there is none."""
        found = self.events(name)
        if not found:
            raise DriverError(f"no {name} line\n{self.describe()}")
        return found[-1]

    def wait(self, seconds: float) -> Self:
        """Wait for the driver's end; DriverError if it does not come in time or with an exit code."""
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            processes.kill(self._child)
            raise DriverError(f"still running after {seconds} s\n{self.describe()}") from None
        code = processes.end(self._child)
        if code != 0:
            raise DriverError(f"ended with {code}\n{self.describe()}")
        return self

    def stop(self) -> None:
        """End it at once."""
        processes.kill(self._child)

    def log(self) -> str:
        """Return what the client logged by itself."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def describe(self) -> str:
        """Return what a person wants to see of a run that failed."""
        lines = "\n".join(json.dumps(event.fields) for event in self.events()[-30:])
        return (
            f"{self.family.name} {' '.join(self.words)}\n{lines}\n--- log\n{self.log()[-_LOG_BYTES_SHOWN:]}"
        )


class Crowd:
    """Runs side by side: every one that was started is waited for, or ended with the crowd."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.runs: list[Run] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every driver."""
        for run in self.runs:
            run.stop()

    def start(self, family: Family, *words: str) -> Run:
        """Start one more driver."""
        run = Run(family, words, self.directory)
        self.runs.append(run)
        return run

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the condition holds; return whether it came to."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def options(bootstrap: str, client_id: str, topic: str, **more: str | float) -> list[str]:
    """Write a driver's options.

    >>> options("h:1", "c", "t", partitions=3, group_protocol="consumer")[6:]
    ['--partitions', '3', '--group-protocol', 'consumer']
    """
    words = ["--bootstrap", bootstrap, "--client-id", client_id, "--topic", topic]
    for name, value in more.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def side_by_side(lanes: Sequence[Lane], work: Sequence[Callable[[Lane], None]]) -> None:
    """Do pieces of work, each in a lane of its own; the first error ends all."""
    waiting: queue.SimpleQueue[Callable[[Lane], None]] = queue.SimpleQueue()
    for piece in work:
        waiting.put(piece)
    errors: list[Exception] = []

    def run(lane: Lane) -> None:
        with contextlib.suppress(queue.Empty):
            while not errors:
                piece = waiting.get_nowait()
                try:
                    piece(lane)
                except Exception as error:  # noqa: BLE001  # told by the main thread
                    errors.append(error)

    threads = [threading.Thread(target=run, args=(lane,), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
