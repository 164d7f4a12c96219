"""The honest client beside an attack, as a child process: what the attack costs other clients."""

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster import Address, processes
from tests.support.proxy_process import ROOT

_WARM_UP_SECONDS: Final = 1.0


@dataclass(slots=True)
class Latencies:
    """When each request was due and how long its answer took, in seconds; known when the `with` is over.

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
        command = [sys.executable, "-m", "tests.hostile.ping_program", address[0], str(address[1])]
        child = processes.start(command, log=out, cwd=ROOT)
        time.sleep(_WARM_UP_SECONDS)
        try:
            yield found
        finally:
            processes.end(child)
        told = json.loads(out.read_text().splitlines()[-1])
        found.latencies = [(due, waited) for due, waited in told["latencies"]]
        found.lost = told["lost"]
