"""`python -m tests.bench.goodput`: the part of a consumer's quota that arrives as records; writes docs/benchmarks.md.

A response is cut at max_bytes, and consumers drop the batch that is cut. So a part of what a quota lets through is of
no use. Records are counted at the consumers (librdkafka), as the bytes that their batches take in the broker's log;
what passed is counted by the relay of `accuracy`, right before the broker.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer
from rich.console import Console

from tests.bench import machine, report
from tests.bench.accuracy.judge import KAFKA, KIP13, SCHEDULE
from tests.bench.accuracy.relay import Counted, read_events, relayed
from tests.bench.clients import complaints, read_notes
from tests.bench.figures import largest_second, steady_rate
from tests.bench.lanes import NODE
from tests.bench.process import module_process
from tests.bench.report import Bar, Outcome, tabulate
from tests.cluster import HOST, Cluster, ClusterOptions, Listener, free_port, tools
from tests.support.proxy_process import SluiceProcess, SluiceSettings

CONNECTIONS: Final = (1, 5, 20)
QUOTA: Final = 2_000_000
_SECONDS: Final = 25
_STEADY_AFTER: Final = 8.0
_LISTENER: Final = "COUNTED"
_FETCH_BYTES: Final = 1_048_576  # of max.partition.fetch.bytes, the default
_RECORD_BYTES: Final = (500, 1_500)
_WITHOUT_RECORDS_BYTES: Final = 400
_GOODPUT_MIN: Final = 0.98
_LARGEST_SECOND_MAX: Final = 2.5


class Kind(NamedTuple):
    """The batches of a topic: their least and largest size in bytes; equal sizes: batch.size, full batches."""

    least: int
    largest: int


KINDS: Final = {
    "16 KiB": Kind(16_384, 16_384),
    "256 KiB": Kind(262_144, 262_144),
    "1 to 31 KiB": Kind(1_024, 31_744),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The amounts of a run."""

    policies: Sequence[str]
    kinds: Sequence[str]
    connections: Sequence[int]
    seconds: int
    quota: int
    write: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """What one policy made of one kind of batches and count of connections; rates as multiples of the quota."""

    policy: str
    kind: str
    connections: int
    goodput: float
    passed: float
    largest: float
    fetches: float  # with records, per second
    errors: int


def judge(
    run: tuple[str, str, int],
    notes: Sequence[tuple[float, int]],
    noted: Sequence[tuple[int, Counted]],
    options: Options,
    errors: int,
) -> Figures:
    """Return the figures of one run (policy, kind, connections).

    Args:
        notes: the records' bytes in the log, with the times at which they reached a consumer.
        noted: what passed the relay: connection, and bytes.
    """
    responses = [each for _, each in noted if each.size >= _WITHOUT_RECORDS_BYTES]
    if not responses:
        raise ValueError(f"{run}: no byte passed")
    began = min(each.began for each in responses)
    events = [(each.ended - began, each.size) for each in responses]
    useful = [(at - began, size) for at, size in notes]
    span = _STEADY_AFTER, float(options.seconds)
    count = sum(1 for at, _ in events if span[0] <= at < span[1])
    return Figures(
        *run,
        goodput=steady_rate(useful, *span) / options.quota,
        passed=steady_rate(events, *span) / options.quota,
        largest=largest_second(events) / options.quota,
        fetches=count / (span[1] - span[0]),
        errors=errors,
    )


def fill(bootstrap: str, topic: str, kind: Kind, total: int, seed: int = 1) -> int:
    """Put batches of this kind into the topic until its values have `total` bytes; return the bytes of all values."""
    chance = random.Random(seed)
    settings = {"batch.size": kind.largest, "batch.num.messages": 1_000_000, "linger.ms": 200, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    sent = 0
    while sent < total:
        room = chance.randint(kind.least, kind.largest) if kind.least < kind.largest else total
        while room > 0 and sent < total:
            size = min(chance.randint(*_RECORD_BYTES), room)
            try:
                producer.produce(topic, chance.randbytes(size), partition=0)
            except BufferError:
                producer.poll(0.1)
                continue
            room -= size
            sent += size
        if producer.flush(60):
            raise ChildProcessError(f"not all records were delivered while filling {topic}")
    return sent


class Bench:
    """A broker behind the counting relay, with a topic for each kind of batches, and the runs against it."""

    def __init__(self, options: Options, cluster: Cluster, bootstrap: str, directory: Path) -> None:
        self.options = options
        self.cluster = cluster
        self.bootstrap = bootstrap
        self.directory = directory
        self._log_per_value: dict[str, float] = {}

    def fill(self, name: str) -> None:
        """Make a topic of batches of this kind: enough for one connection that has the whole quota for itself."""
        topic = topic_name(name)
        tools.create_topic(self.cluster.bootstrap(), topic)
        values = fill(
            self.cluster.bootstrap(), topic, KINDS[name], self.options.quota * (self.options.seconds + 10)
        )
        log = sum(path.stat().st_size for path in self.cluster.directory.rglob(f"{topic}-0/*.log"))
        self._log_per_value[name] = log / values

    @contextmanager
    def sluice(self, policy: str) -> Iterator[str]:
        """Start a proxy before the relay, and give its bootstrap server."""
        directory = self.directory / policy
        directory.mkdir()
        settings = SluiceSettings(
            self.bootstrap,
            quotas={"policy": policy, "scope": None},
            client_quotas={"<default>": {"consumer_byte_rate": self.options.quota}},
        )
        with SluiceProcess.configured(settings, directory) as sluice:
            yield sluice.bootstrap

    def run(self, policy: str, kind: str, connections: int, bootstrap: str) -> Figures:
        """Let the consumers of one client id run, and judge what reached them."""
        client_id = f"{policy}-{topic_name(kind)}-{connections}"
        if policy == KAFKA:
            tools.set_client_quota(self.cluster.bootstrap(), client_id, consumer_byte_rate=self.options.quota)
        path = self.directory / f"{client_id}.notes"
        words = ["consume", "--topic", topic_name(kind), "--client-id", client_id, "--bytes", _FETCH_BYTES]
        words += ["--connections", connections, "--bootstrap", bootstrap, "--notes", path]
        with module_process("tests.bench.clients", *words, log=path.with_suffix(".log")) as child:
            child.say("go")
            time.sleep(self.options.seconds + 1)
            tally = complaints([child])
        notes = [(at, round(size * self._log_per_value[kind])) for at, _, _, size in read_notes(path)]
        noted = read_events(self.directory / "events.txt", client_id)
        return judge((policy, kind, connections), notes, noted, self.options, tally.total())


def topic_name(kind: str) -> str:
    """Return the topic of a kind of batches.

    >>> topic_name("1 to 31 KiB")
    'batches-1-to-31-KiB'
    """
    return "batches-" + kind.replace(" ", "-")


@contextmanager
def counted(options: Options) -> Iterator[Bench]:
    """Start a broker whose listener is advertised as the relay, and the relay; fill the topics."""
    port = free_port()
    wanted = ClusterOptions(nodes=1, listeners=(Listener(_LISTENER, advertised=((HOST, port),)),))
    with tempfile.TemporaryDirectory(prefix="sluice-goodput-") as name, Cluster(wanted) as cluster:
        bench = Bench(options, cluster, f"{HOST}:{port}", Path(name))
        for kind in options.kinds:
            bench.fill(kind)
        with relayed(port, cluster.address(NODE, _LISTENER)[1], Path(name) / "events.txt"):
            yield bench


def outcome(found: Sequence[Figures], options: Options) -> Outcome:
    """Return the table and the bars."""
    columns = {
        "batches": lambda each: each.kind,
        "connections": lambda each: each.connections,
        "policy": lambda each: each.policy,
        "records / quota": lambda each: f"{each.goodput:.3f}",
        "passed / quota": lambda each: f"{each.passed:.3f}",
        "largest second": lambda each: f"{each.largest:.2f}",
        "Fetches with records/s": lambda each: f"{each.fetches:.0f}",
        "errors": lambda each: each.errors,
    }
    found = sorted(found, key=lambda each: (list(KINDS).index(each.kind), each.connections))
    title = f"Goodput of throttled consumers: quota {options.quota / 1e6:g} MB/s, {options.seconds} s"
    bars = []
    full = [
        each
        for each in found
        if each.policy == SCHEDULE and KINDS[each.kind].least == KINDS[each.kind].largest
    ]
    if full:
        least = min(each.goodput for each in full)
        name = "schedule, full batches, worst run"
        bars.append(Bar(f"{name}: records / quota", least, _GOODPUT_MIN, at_least=True))
        bars.append(Bar(f"{name}: largest second", max(each.largest for each in full), _LARGEST_SECOND_MAX))
    return Outcome([tabulate(title, found, columns)], bars)


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Return the options of a command line."""
    policies = (KAFKA, KIP13, SCHEDULE)
    parser = argparse.ArgumentParser(prog="python -m tests.bench.goodput", description=__doc__)
    parser.add_argument("--policies", nargs="+", choices=policies, default=policies)
    parser.add_argument("--batches", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--connections", nargs="+", type=int, default=CONNECTIONS)
    parser.add_argument("--seconds", type=int, default=_SECONDS, help=f"of each run, default {_SECONDS}")
    parser.add_argument("--quota", type=int, default=QUOTA, help=f"in bytes/s, default {QUOTA}")
    parser.add_argument("--write", action="store_true", help="write the table into the document")
    given = parser.parse_args(arguments)
    return Options(
        policies=given.policies,
        kinds=given.batches,
        connections=given.connections,
        seconds=given.seconds,
        quota=given.quota,
        write=given.write,
    )


def main(console: Console) -> bool:
    """Measure, print, write."""
    options = parse_options()
    found: list[Figures] = []
    with counted(options) as bench:
        for policy in options.policies:
            if policy == KAFKA:
                found += _runs(bench, policy, bench.bootstrap, console)
            else:
                with bench.sluice(policy) as bootstrap:
                    found += _runs(bench, policy, bootstrap, console)
    report.publish(console, machine.describe(), outcome(found, options), "goodput" if options.write else "")
    return True


def _runs(bench: Bench, policy: str, bootstrap: str, console: Console) -> list[Figures]:
    found = []
    for kind in bench.options.kinds:
        for connections in bench.options.connections:
            found.append(bench.run(policy, kind, connections, bootstrap))
            console.print(f"[dim]·[/dim] {found[-1]}", highlight=False, soft_wrap=True)
    return found


if __name__ == "__main__":
    sys.exit(report.run(main))
