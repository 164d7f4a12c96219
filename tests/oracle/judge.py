"""Asks `Judge.java`, which responds with Kafka's own message classes, and `Names.java`, which has its SASL servers;
one Java each for a whole run.

The classes are of the release that `SLUICE_KAFKA` names. A test of a version that an older release lacks is skipped.
"""

import queue
import subprocess
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, Self

import pytest

from protocol.api import API_NAMES
from tests.cluster import jars

_SOURCES: Final = Path(__file__).resolve().parent
# The first response waits for the compiler.
_RESPONSE_SECONDS_MAX: Final = 60
KAFKA: Final = jars.release()


class Judge:
    """Kafka's classes, one question at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._responses: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True, name="judge").start()

    @classmethod
    def start(cls, source: str = "Judge.java", *arguments: str) -> Self:
        """Start it; the jars are brought first, if they are not there."""
        return cls(
            subprocess.Popen(
                [
                    *(jars.java(), "-Xmx512m", f"-Dkafka.release={KAFKA}", "-cp", jars.class_path(KAFKA)),
                    *(str(_SOURCES / source), *arguments),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, *words: str | int | bytes) -> str:
        """One response; frames are given as bytes.

        Raises:
            ValueError: Kafka's classes refused it.
        """
        question = " ".join(word.hex() if isinstance(word, bytes) else str(word) for word in words)
        assert self._process.stdin is not None
        self._process.stdin.write(question + "\n")
        result = self._responses.get(timeout=_RESPONSE_SECONDS_MAX)
        if result.startswith("!"):
            raise ValueError(f"{result} to: {question[:200]}")
        return result

    def frame(self, *words: str | int | bytes) -> bytes:
        """A response that is a frame and nothing more."""
        return bytes.fromhex(self.ask(*words))

    def response(self, api_key: int, version: int, seed: int) -> bytes:
        """An arbitrary response."""
        self.require(api_key, version)
        return bytes.fromhex(self.ask("make", "response", api_key, version, seed).split()[0])

    def request(self, api_key: int, version: int, seed: int) -> tuple[bytes, int]:
        """An arbitrary request, and where its body begins."""
        self.require(api_key, version)
        frame, body = self.ask("make", "request", api_key, version, seed).split()
        return bytes.fromhex(frame), int(body)

    def number(self, side: str, api_key: int, version: int, field: str, frame: bytes) -> int:
        """A number of a message."""
        return int(self.ask("get", side, api_key, version, field, frame))

    def apis(self) -> dict[int, tuple[str, int, Sequence[str]]]:
        """Name, newest version and the versions of each API, marked + where they are flexible and - where not."""
        rows = (row.split(":") for row in self.ask("apis").split(";"))
        return {int(key): (name, int(newest), marks.split(",")) for key, name, newest, marks in rows}

    def versions(self, api_key: int) -> list[int]:
        """The versions of an API; the test is skipped where an older release lacks the API."""
        self.require(api_key)
        return [int(mark[:-1]) for mark in self._apis[api_key][2]]

    def require(self, api_key: int, version: int = 0) -> None:
        """Skip the test where an older release lacks this version of an API."""
        if KAFKA == jars.NEWEST:
            return  # what it lacks is a failure
        name, newest, _ = self._apis.get(api_key, (API_NAMES[api_key], -1, ()))
        if newest < version:
            pytest.skip(f"{KAFKA} has no {name}" + (f" of version {version}" if newest >= 0 else ""))

    @cached_property
    def _apis(self) -> dict[int, tuple[str, int, Sequence[str]]]:
        return self.apis()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._responses.put(line.rstrip("\n"))
