"""A Sluice with low quotas behind a tap, and what the tap saw between two moments."""

import contextlib
import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import HOST, Cluster, free_ports
from tests.interop.families import FAMILIES
from tests.interop.runs import Crowd, Run, options
from tests.support.proxy_process import BROKER_ID_MAX, SluiceProcess, SluiceSettings
from tests.support.tap import Seen, Tap


@dataclass(slots=True)
class Front:
    """Where throttled clients connect (`bootstrap` is the tap's), and who watches."""

    policy: str
    bootstrap: str
    sluice: SluiceProcess
    tap: Tap


@contextlib.contextmanager
def behind(brokers: str, directory: Path, **fields: Any) -> Iterator[tuple[SluiceProcess, dict[int, int]]]:
    """Start a Sluice that advertises other ports than its own; yield it, and its ports by the advertised ones.

    Args:
        fields: those of its `SluiceSettings`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    first = free_ports(BROKER_ID_MAX + 2)[0]
    advertised = {"advertised_bootstrap_port": first, "advertised_first_broker_port": first + 1}
    settings = SluiceSettings(brokers, listener=advertised, **fields)
    routes = {first + offset: settings.ports.bootstrap + offset for offset in range(BROKER_ID_MAX + 2)}
    with SluiceProcess.configured(settings, directory) as sluice:
        yield sluice, routes


@contextlib.contextmanager
def front(brokers: str, directory: Path, policy: str, **fields: Any) -> Iterator[Front]:
    """Start a Sluice that advertises a tap's ports, and the tap."""
    with behind(brokers, directory / policy, **fields) as (sluice, routes), Tap(routes) as tap:
        yield Front(policy, f"{HOST}:{min(routes)}", sluice, tap)


Snapshot = dict[tuple[str, int], Seen]


@dataclass(slots=True)
class Measured:
    """The taps' counts, by policy, when the measuring began and ended."""

    fronts: Sequence[Front] = ()
    before: dict[str, Snapshot] = field(default_factory=dict)
    after: dict[str, Snapshot] = field(default_factory=dict)
    seconds: float = 0.0

    def snapshots(self) -> dict[str, Snapshot]:
        """Return what the taps have seen so far."""
        return {front.policy: copy.deepcopy(front.tap.seen) for front in self.fronts}

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure while the block runs."""
        started = time.monotonic()
        self.before = self.snapshots()
        yield
        self.after = self.snapshots()
        self.seconds = time.monotonic() - started

    def rate(self, policy: str, key: tuple[str, int]) -> float:
        """Return the bytes/s of one client id and API: requests and responses together."""
        then, now = self.before[policy].get(key, Seen()), self.after[policy].get(key, Seen())
        # A produce's responses and a fetch's requests are small beside what is counted.
        sent = now.request_bytes - then.request_bytes
        received = now.response_bytes - then.response_bytes
        return max(sent, received) / self.seconds


def fill(
    kafka: Cluster, crowd: Crowd, topic: str, partitions: int, records: int, size: int, outstanding: int
) -> Run:
    """Fill a topic directly at the brokers; few outstanding make small batches."""
    librdkafka = next(family for family in FAMILIES if family.name == "librdkafka")
    words = options(kafka.bootstrap(), "fill", topic, partitions=partitions, records=records, size=size)
    return crowd.start(librdkafka, "produce", *words, "--outstanding", str(outstanding))
