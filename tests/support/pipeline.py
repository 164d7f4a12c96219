"""Fifteen clients of known demand, what the quotas are to achieve for them, and where their pipeline has run."""

from dataclasses import dataclass
from pathlib import Path

from offline.options import Goal
from offline.store import Store
from tests.support.synthetic import Client

SECONDS = 40
CLIENTS = [
    *(
        Client(name=f"steady-{number}", shape="steady", rate=200_000, broker=1 + number % 2)
        for number in range(8)
    ),
    Client(name="bursty", shape="bursty", rate=150_000, broker=2),
    Client(name="hog", shape="hog", rate=6e6, connections=4, broker=1),
    *(
        Client(name=f"reader-{number}", shape="steady", rate=300_000, produces=False, request_bytes=60_000)
        for number in range(4)
    ),
    Client(
        name="rebuild",
        shape="bootstrap",
        rate=1e6,
        produces=False,
        request_bytes=300_000,
        start_s=10.0,
        stop_s=12.0,
    ),
]
GOAL = Goal(capacity_in=4e6, capacity_out=60e6, throttled_share=0.1, overrides=2)


@dataclass(frozen=True)
class Pipeline:
    """A work directory in which every stage but apply has run."""

    store: Store
    capture: Path
    requests: int
