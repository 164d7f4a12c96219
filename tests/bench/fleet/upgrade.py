"""A rolling upgrade of a fleet of three under load, and back: what clients saw, beside the same time without it.

Three pods behind a Service (`tests.support.pods`) before three brokers with relays that count. Clients that want more
than their quota have one in each direction, and producers at a fixed rate show the latency. So it stays for a while;
then all pods are replaced. While they are replaced a second time, back to the code before, a producer and a consumer of
each client family write and read numbered records with their defaults.
"""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.bench.clients import CLIENTS_MAX, complaints, fill, read_notes
from tests.bench.fleet import probe
from tests.bench.fleet.bound import Life
from tests.bench.fleet.faults import RECORD_BYTES, Direction
from tests.bench.fleet.rig import counted_cluster, noted
from tests.bench.price.checkouts import checkout, verify
from tests.bench.process import Child, module_process
from tests.cluster import Cluster
from tests.interop.failover.measure import PARTITIONS, Watched, gaps
from tests.interop.families import FAMILIES, Family
from tests.interop.runs import Crowd, Run, options
from tests.support.numbered import read_all
from tests.support.pods import Pods, Replaced
from tests.support.proxy_process import ROOT
from tests.support.raw_topics import create

QUOTA: Final = 2_000_000
"""Bytes/s of each direction."""
CONNECTIONS: Final = {"produce": 12, "consume": 6}
RATE: Final = 200.0
"""Records/s that show the latency."""
PRODUCERS: Final = 6
WITHOUT: Final = "without"
UPGRADE: Final = "upgrade"
BACK: Final = "back"
_PROBED: Final = "probe"
_SETTLE_SECONDS: Final = 15.0  # the first burst is over, and all members have their shares
_FILL_RECORD_BYTES: Final = 10_000
_FILLED_SECONDS: Final = 60
_READ_SECONDS: Final = 120.0
_WATCH_MS: Final = 20  # of a family's client between two records
_FAMILY_RECORD_BYTES: Final = 100
_BEGUN_SECONDS: Final = 90.0
_END_SECONDS: Final = 60.0
_INDEX_DIGITS: Final = 10
_COMPILED: Final = ROOT / "proxy" / "compiled"


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run; times are in seconds of it.

    Attributes:
        replaced: the pods that were replaced meanwhile.
        connections: those that the Service has led to a pod.
        failed: those of them that a pod has refused.
    """

    name: str
    began: float
    ended: float
    replaced: Sequence[Replaced]
    connections: int
    failed: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of the records of one family.

    Attributes:
        written: those that were acknowledged.
        lost: of these, those that are not at the brokers.
        doubled: how many are there more than once.
        given_up: those that the producer has reported as failed.
        missed: those at the brokers that the consumer did not get.
        repeated: how often it got one again.
        gap, consumer_gap: the longest time in seconds that a partition was without a record.
    """

    family: str
    written: int
    lost: int
    doubled: int
    given_up: int
    missed: int
    repeated: int
    gap: float
    consumer_gap: float


@dataclass(slots=True)
class Upgraded:
    """A run; times are in seconds of it.

    Attributes:
        before: the revision that the pods had first.
        probed: of the records at a fixed rate: when one was due, and the seconds until it was acknowledged.
        probe_seen: what their clients complained about.
        probe_lost: of those that were acknowledged, how many are not at the brokers.
        probe_doubled: how many are there more than once.
        lives: of the pods' processes.
    """

    before: str
    phases: list[Phase] = field(default_factory=list)
    directions: dict[str, Direction] = field(default_factory=dict)
    probed: list[tuple[float, float]] = field(default_factory=list)
    probe_seen: Counter[str] = field(default_factory=Counter)
    probe_lost: int = 0
    probe_doubled: int = 0
    lives: list[Life] = field(default_factory=list)
    families: list[Seen] = field(default_factory=list)


def play(before: str, seconds: float, families: Sequence[str], console: Console) -> Upgraded:
    """Run everything.

    Args:
        before: the revision of the pods at first, and at the end.
        seconds: how long it is measured without an upgrade.
        families: the client families, by name; none: pods are not replaced a second time.
    """
    chosen = [family for family in FAMILIES if family.name in families]
    with tempfile.TemporaryDirectory(prefix="sluice-upgrade-") as name:
        directory = Path(name)
        old = checkout(before, directory / "before")
        verify(old)
        if old != ROOT and _COMPILED.is_dir():  # used if it was made from the same sources
            shutil.copytree(_COMPILED, old / _COMPILED.relative_to(ROOT))
        with (
            counted_cluster(directory) as (cluster, relays),
            Pods(relays, directory, "__sluice", (old, ROOT, old)) as pods,
        ):
            _prepare(cluster, pods, chosen)
            found = Upgraded(before)
            with _clients(directory, pods.bootstrap) as children:
                began = _perform(found, cluster, pods, children, seconds, chosen, console)
                _collect(found, directory, children, began)
            found.lives = [(pod.began - began, pod.ended - began) for pod in (*pods.ended, *pods.pods)]
            _compare(found, cluster)
    return found


def _prepare(cluster: Cluster, pods: Pods, families: Sequence[Family]) -> None:
    """Create the topics, and the quotas, which all pods then have."""
    topics = dict.fromkeys(CONNECTIONS, 1) | {_PROBED: probe.PARTITIONS}
    for family in families:
        family.build()
        topics[family.name] = PARTITIONS
    for topic, partitions in topics.items():
        create(cluster, topic, partitions=partitions, replication=3, configs={})
    # In batches that are no larger than what a consumer asks for.
    batches = {"acks": 1, "batch.num.messages": RECORD_BYTES // _FILL_RECORD_BYTES - 1}
    records = _FILLED_SECONDS * QUOTA // _FILL_RECORD_BYTES
    fill(cluster.bootstrap(), "consume", records, _FILL_RECORD_BYTES, config=batches)
    pods.set_quota("produce", "producer_byte_rate", QUOTA)
    pods.set_quota("consume", "consumer_byte_rate", QUOTA)


@contextmanager
def _clients(directory: Path, bootstrap: str) -> Iterator[Mapping[str, Child]]:
    """Start the clients of both directions, and those at a fixed rate; they are connected, and wait."""
    with ExitStack() as stack:
        children = {}
        for name in (*CONNECTIONS, _PROBED):
            words: list[object] = ["--topic", name, "--bootstrap", bootstrap]
            words += ["--notes", _notes(directory, name)]
            module = "tests.bench.fleet.probe"
            if name == _PROBED:
                words += ["--rate", RATE, "--producers", PRODUCERS]
            else:
                module = "tests.bench.clients"
                words = [name, *words, "--client-id", name, "--bytes", RECORD_BYTES]
                words += ["--connections", CONNECTIONS[name]]
            log = directory / f"{name}.log"
            children[name] = stack.enter_context(module_process(module, *words, log=log))
        yield children


def _notes(directory: Path, name: str) -> Path:
    return directory / f"{name}.notes"


def _note_phase(
    found: Upgraded, pods: Pods, began: float, name: str, act: Callable[[], Sequence[Replaced]]
) -> None:
    """Play one phase, and note what the Service and the pods did meanwhile."""
    at, before = time.monotonic(), pods.connections()
    replaced = [replace(one, began=one.began - began) for one in act()]
    ended, after = time.monotonic(), pods.connections()
    opened, failed = (now - then for now, then in zip(after, before, strict=True))
    found.phases.append(Phase(name, at - began, ended - began, replaced, opened, failed))


def _perform(
    found: Upgraded,
    cluster: Cluster,
    pods: Pods,
    children: Mapping[str, Child],
    seconds: float,
    families: Sequence[Family],
    console: Console,
) -> float:
    """Let the clients go, play all phases, and return when the run began."""
    began = time.monotonic()
    for child in children.values():
        child.say("go")
    time.sleep(_SETTLE_SECONDS)

    def wait() -> Sequence[Replaced]:
        time.sleep(seconds)
        return ()

    def play(name: str, act: Callable[[], Sequence[Replaced]]) -> None:
        console.print(f"{time.monotonic() - began:6.1f} s: {name}")
        _note_phase(found, pods, began, name, act)

    play(WITHOUT, wait)
    play(UPGRADE, pods.upgrade)
    if families:
        with tempfile.TemporaryDirectory(prefix="sluice-families-") as name, Crowd(Path(name)) as crowd:
            runs = _start_families(crowd, pods.bootstrap, families, Path(name) / "stop")
            since = time.time()
            play(BACK, pods.upgrade)
            found.families = _end_families(crowd, cluster, runs, since, Path(name) / "stop")
    return began


Runs = Mapping[Family, tuple[Run, Run]]
"""A producer and a consumer of each family."""


def _start_families(crowd: Crowd, bootstrap: str, families: Sequence[Family], stop: Path) -> Runs:
    """Start a producer and a consumer in a group of each family, and wait until both have records."""
    runs = {}
    for family in families:
        words = options(
            *(bootstrap, f"{family.name}-client", family.name),
            partitions=PARTITIONS,
            size=_FAMILY_RECORD_BYTES,
            watch_ms=_WATCH_MS,
        )
        # KafkaJS sends so many in one call, and waits for its response.
        more = ["--acks", "default", "--outstanding", "1" if family.name == "kafkajs" else "500"]
        produces = crowd.start(family, "produce", *words, *more, "--stop-file", str(stop))
        consumes = crowd.start(family, "consume", *words, "--group", family.name)
        runs[family] = produces, consumes
    for pair in runs.values():
        for run in pair:
            begun = crowd.until(partial(Watched(run).served_since, 0), _BEGUN_SECONDS)
            assert begun, run.describe()
    return runs


def _end_families(crowd: Crowd, cluster: Cluster, runs: Runs, since: float, stop: Path) -> list[Seen]:
    """End the producers, let the consumers get all records, and compare with what the brokers have."""
    span_ms = int(since * 1000), int(time.time() * 1000)
    stop.touch()
    found = []
    for family, (produces, consumes) in runs.items():
        written = Watched(produces.wait(_END_SECONDS)).indexes()
        received = Watched(consumes)
        crowd.until(partial(_has, received, written), _END_SECONDS)
        found.append(_compare_family(cluster, family, produces, consumes, span_ms))
    return found


def _has(watched: Watched, wanted: Set[int]) -> bool:
    return wanted <= watched.indexes()


def _compare_family(
    cluster: Cluster, family: Family, produces: Run, consumes: Run, span_ms: tuple[int, int]
) -> Seen:
    written = Watched(produces).indexes()
    values = read_all(cluster.bootstrap(), family.name, PARTITIONS, seconds=_READ_SECONDS)
    there = Counter(int(value[:_INDEX_DIGITS]) for value in values)
    received = Counter(event.number("index") for event in consumes.events("record"))
    gap, consumer_gap = (gaps(Watched(run).times_ms(), *span_ms) for run in (produces, consumes))
    return Seen(
        family.name,
        written=len(written),
        lost=len(written - there.keys()),
        doubled=repeated(there),
        given_up=sum(len(event.items("indexes")) for event in produces.events("failed")),
        missed=len(there.keys() - received.keys()),
        repeated=repeated(received),
        gap=gap,
        consumer_gap=consumer_gap,
    )


def repeated(counted: Counter[int]) -> int:
    """Return how many there are more than one of each.

    >>> repeated(Counter([1, 2, 2, 2, 3, 3]))
    3
    """
    return sum(count - 1 for count in counted.values())


def _collect(found: Upgraded, directory: Path, children: Mapping[str, Child], began: float) -> None:
    """End the clients, and take what they and the relays noted."""
    for direction in CONNECTIONS:
        each = found.directions[direction] = Direction(seen=complaints([children[direction]]))
        for at, client, record, size in read_notes(_notes(directory, direction)):
            each.notes.append((at - began, client, record, size))
        events = noted(directory, direction)
        each.let_through = [(first - began, last - began, size) for first, last, size in events]
    found.probe_seen = complaints([children[_PROBED]])
    found.probed = [(at - began, took) for at, took in probe.read_notes(_notes(directory, _PROBED))]


def _compare(found: Upgraded, cluster: Cluster) -> None:
    """Read all records at the brokers, and compare them with what was acknowledged."""
    produced = found.directions["produce"]
    there = _numbers(cluster, "produce", 1)
    produced.lost = [note for note in produced.notes if not there[note[2] * CLIENTS_MAX + note[1]]]
    produced.repeated = repeated(there)
    probed = _numbers(cluster, _PROBED, probe.PARTITIONS)
    found.probe_lost = max(0, len(found.probed) - len(probed))
    found.probe_doubled = repeated(probed)


def _numbers(cluster: Cluster, topic: str, partitions: int) -> Counter[int]:
    values = read_all(cluster.bootstrap(), topic, partitions, seconds=_READ_SECONDS)
    return Counter(int.from_bytes(value[:8]) for value in values)
