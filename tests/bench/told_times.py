"""How many lines a throttled Java client logs: with Kafka's own quota, with `kip13`, with `schedule`.

    python -m tests.bench.told_times [--seconds 15] [--shapes console,small,large,consume]

Kafka 4.4's client writes one WARN line for each response with a throttle time. One broker, one client at a time, a
quota of 1 MB/s; the lines of the first seconds, in which the JVM starts and the burst is used up, are not counted. What
a client has produced or consumed in that time is not measured here: `tests.bench.accuracy` does.
"""

import argparse
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import IO, Final, NamedTuple

from tests.cluster import Cluster, ClusterOptions, tools
from tests.support.proxy_process import SluiceProcess, SluiceSettings

BYTES_PER_SECOND: Final = 1_000_000
LIMITS: Final = {"producer_byte_rate": BYTES_PER_SECOND, "consumer_byte_rate": BYTES_PER_SECOND}
RECORD_BYTES: Final = 1000
STOCK_RECORDS: Final = 120_000  # consumed at the quota, two minutes
SETTLE_SECONDS: Final = 6.0
SHAPES: Final = {
    "console": "console producer, its defaults (batches of 16 KB)",
    "small": "performance producer, batches of 16 KB",
    "large": "performance producer, batches of 1 MB",
    "consume": "console consumer, its defaults",
}
_TOLD: Final = re.compile(rb"is throttled for (\d+) ms")


class Counted(NamedTuple):
    """What one client has logged.

    Args:
        per_second: lines a second.
        told_ms: the throttle times in them.
    """

    per_second: float
    told_ms: list[int]


class Front(NamedTuple):
    """Where clients connect, and the client id that has a quota there."""

    name: str
    bootstrap: str
    client_id: str


def command(shape: str, front: Front) -> list[str]:
    """Return the command line of a client."""
    to = ("--bootstrap-server", front.bootstrap)
    own = ("--command-property", f"client.id={front.client_id}")
    if shape == "console":
        return tools.command(tools.CONSOLE_PRODUCER, *to, "--topic", "sink", *own)
    if shape == "consume":
        return tools.command(tools.CONSOLE_CONSUMER, *to, "--topic", "stock", "--from-beginning", *own)
    batch = 16_384 if shape == "small" else 1_000_000
    return tools.command(
        tools.PRODUCER_PERFORMANCE,
        *("--topic", "sink", "--num-records", "100000000", "--throughput", "-1"),
        *("--record-size", str(RECORD_BYTES), "--producer-props", f"bootstrap.servers={front.bootstrap}"),
        *(f"client.id={front.client_id}", f"batch.size={batch}", "linger.ms=5", "max.request.size=2000000"),
    )


def count(shape: str, front: Front, log: Path, seconds: float) -> Counted:
    """Run one client, and count its lines."""
    with log.open("wb") as out, _running(command(shape, front), out):
        time.sleep(SETTLE_SECONDS)
        before = len(_TOLD.findall(log.read_bytes()))
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        told = [int(ms) for ms in _TOLD.findall(log.read_bytes())][before:]
    return Counted(len(told) / took, told)


@contextmanager
def _running(words: list[str], out: IO[bytes]) -> Iterator[None]:
    """Run a client, with endless lines on its standard input."""
    client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT)
    assert client.stdin is not None, "it is a pipe"
    feeding = threading.Thread(target=_feed, args=(client.stdin,), daemon=True)
    feeding.start()
    try:
        yield
    finally:
        client.kill()
        client.wait()
        feeding.join(5)


def _feed(lines: IO[bytes]) -> None:
    some = (b"x" * (RECORD_BYTES - 1) + b"\n") * 100
    try:
        while True:
            lines.write(some)
    except OSError:
        return  # the client has ended


def fronts(stack: ExitStack, brokers: str, directory: Path) -> Iterator[Front]:
    """Yield the brokers themselves, with a quota of theirs, and a Sluice for each policy."""
    tools.set_client_quota(brokers, "direct", **LIMITS)
    yield Front("Kafka", brokers, "direct")
    for policy in ("kip13", "schedule"):
        home = directory / policy
        home.mkdir()
        settings = SluiceSettings(brokers, quotas={"policy": policy}, client_quotas={policy: LIMITS})
        sluice = stack.enter_context(SluiceProcess.configured(settings, home))
        yield Front(f"`{policy}`", sluice.bootstrap, policy)


def row(shape: str, front: Front, counted: Counted) -> str:
    """Return a row of the table."""
    told = counted.told_ms
    times = f"{min(told)} | {median(told):.0f} | {max(told)}" if told else "– | – | –"
    return f"| {SHAPES[shape]} | {front.name} | {counted.per_second:.2f} | {times} |"


def measure(shapes: list[str], seconds: float) -> Iterator[str]:
    """Yield the table."""
    yield "| client | quota enforced by | lines/s | told ms: least | median | most |"
    yield "|---|---|--:|--:|--:|--:|"
    with ExitStack() as stack:
        kafka = stack.enter_context(Cluster(ClusterOptions(nodes=1)))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for topic in ("sink", "stock"):
            tools.create_topic(kafka.bootstrap(), topic, configs=_KEPT)
        if "consume" in shapes:
            tools.run(
                tools.PRODUCER_PERFORMANCE,
                *("--topic", "stock", "--num-records", str(STOCK_RECORDS), "--throughput", "-1"),
                *("--record-size", str(RECORD_BYTES)),
                *("--producer-props", f"bootstrap.servers={kafka.bootstrap()}"),
            )
        found = list(fronts(stack, kafka.bootstrap(), directory))
        for shape in shapes:
            for front in found:
                yield row(shape, front, count(shape, front, directory / "log", seconds))


_KEPT: Final[Mapping[str, str]] = {"retention.bytes": "500000000"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each client is counted")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="which clients")
    chosen = parser.parse_args()
    for line in measure(chosen.shapes.split(","), chosen.seconds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
