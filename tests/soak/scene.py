"""What stands on the soak's stage: the proxy's configuration and its changes, the brokers' restarts, the clients.

Everything that is started here is a child of this process and ends with it. It does not judge: `__main__` does.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGHUP
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from tests.bench.process import Child, module_process
from tests.cluster import Cluster
from tests.soak import hostile as attacks
from tests.soak.honest import FREE, LIMITED
from tests.soak.judge import Tally
from tests.support.proxy_process import SluiceProcess, SluiceSettings

TOPIC: Final = "soak"
PARTITIONS: Final = 6
HOSTILE: Final = {
    "half frame": 20,
    "half header": 10,
    "storm": 5,
    "oversized": 5,
    "slow reader": 10,
    "garbage": 10,
    "announced and silent": 10,
}
_HOSTILE_OPENS_PER_SECOND: Final = 50
_HOSTILE_SOURCE: Final = "127.0.0.2"
_POLICIES: Final = ("schedule", "schedule", "kip13", "kip13")
_RATES: Final = (20_000, 40_000, 30_000)
"""Bytes/s of the limited clients by reload; each wants 50,000, so it is always held back, and never for long."""
_READ_SECONDS_MAX: Final = 600.0


class Configuration:
    """The files of the proxy; each call of `change` writes other quotas, and now and then another policy."""

    def __init__(self, settings: SluiceSettings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._turn = 0

    def settings(self) -> SluiceSettings:
        """Return what holds at this turn."""
        rate = _RATES[self._turn % len(_RATES)]
        limited = {f"{LIMITED}-{n}": {"producer_byte_rate": rate} for n in range(2)}
        limited[f"{LIMITED}-reader"] = {"consumer_byte_rate": 4 * rate}
        # Names that come and go, as in a fleet whose quotas are managed.
        passing = {f"passing-{self._turn}-{n}": {"producer_byte_rate": 1000 + n} for n in range(20)}
        hostile = {f"hostile-{n}": {"producer_byte_rate": 100_000} for n in range(attacks.LIMITED)}
        return replace(
            self._settings,
            quotas={
                "policy": _POLICIES[self._turn % len(_POLICIES)],
                "file": str(self._directory / "quotas.toml"),
            },
            client_quotas={**limited, **hostile, **passing},
        )

    def write(self) -> Path:
        """Put the files of this turn in place, each whole."""
        fresh = self._directory / "next"
        fresh.mkdir(exist_ok=True)
        self.settings().write(fresh)
        for name in ("quotas.toml", "sluice.toml"):
            os.replace(fresh / name, self._directory / name)  # noqa: PTH105 - over what is there, at once
        return self._directory / "sluice.toml"

    def change(self, sluice: SluiceProcess) -> None:
        """Write the next turn's files, and have the proxy read them."""
        self._turn += 1
        self.write()
        sluice.signal(SIGHUP)


@dataclass(slots=True)
class Rolling:
    """Restarts one broker after the other; every fourth is killed."""

    cluster: Cluster
    turn: int = 0

    def next(self) -> str:
        """Restart the next one, wait until all are there, and say what was done."""
        nodes = self.cluster.nodes
        node = nodes[self.turn % len(nodes)]
        self.turn += 1
        if self.turn % 4 == 0:
            self.cluster.kill_broker(node)
            how = "killed"
        else:
            self.cluster.stop_broker(node)
            how = "stopped"
        time.sleep(1.0)
        self.cluster.start_broker(node)
        return f"broker {node} {how} and started again"


@dataclass(frozen=True, slots=True)
class Clients:
    """The children that speak to the proxy."""

    honest: Child
    pinger: Child
    hostile: Child


@contextmanager
def clients(sluice: SluiceProcess, bootstrap: str, directory: Path, stack: ExitStack) -> Iterator[Clients]:
    """Start them; `stack` keeps the hostile ones, so that they can be ended before the others.

    Producers and consumers begin at `bootstrap`; all others go to the proxy.
    """

    def started(module: str, words: Sequence[str], on: ExitStack) -> Child:
        log = directory / f"{module}.log"
        return on.enter_context(module_process(f"tests.soak.{module}", *words, log=log))

    with ExitStack() as own:
        words = ["--bootstrap", bootstrap, "--topic", TOPIC, "--partitions", str(PARTITIONS)]
        honest = started("honest", words, own)
        port = str(sluice.ports.bootstrap)
        pinger = started("pinger", ["--port", port, "--clients", "2"], own)
        kinds = ",".join(f"{kind}={count}" for kind, count in HOSTILE.items())
        words = ["--port", port, "--kinds", kinds, "--source", _HOSTILE_SOURCE]
        words += ["--opens-per-second", str(_HOSTILE_OPENS_PER_SECOND)]
        yield Clients(honest, pinger, started("hostile", words, stack))


def read_all(cluster: Cluster) -> Tally:
    """Read the whole topic from the brokers themselves, in the order of each log."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap(),
            "group.id": "verifier",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "client.id": FREE,
            "log_level": 0,
        }
    )
    tally = Tally()
    ends = {}
    for partition in range(PARTITIONS):
        _, ends[partition] = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), 30)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    left = {partition for partition, end in ends.items() if end > 0}
    deadline = time.monotonic() + _READ_SECONDS_MAX
    while left and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            if message.error() is not None:
                continue
            partition = message.partition() or 0
            tally.see(partition, message.value() or b"")
            if (message.offset() or 0) >= ends[partition] - 1:
                left.discard(partition)
    consumer.close()
    if left:
        raise TimeoutError(f"partitions {sorted(left)} of {TOPIC} are not read to their ends")
    return tally
