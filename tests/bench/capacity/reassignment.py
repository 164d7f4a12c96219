"""A reassignment beside producers whose load follows a day: what it may use of a capacity, against fixed rates.

Three brokers with a network card each (`network`), so that what a reassignment brings delays what producers send. All
bytes pass one Sluice, which is a gateway of clients and stands between the brokers. Each lane is a day of 60 s (`day`);
a reassignment begins at its midnight, and moves each broker's partitions of a topic to the next broker.

A fixed rate keeps the producers' p99 if it is not above 1.1 times that of the day without a reassignment, or not above
that of the class. The best one is searched from 1.75 MB/s downwards, in steps of 0.25 MB/s.
"""

import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from rich.console import Console

from tests.bench.capacity.day import DAY_SECONDS, OTHERS, SURGE, WEB, rate
from tests.bench.capacity.network import HUB, network, shape
from tests.bench.clients import fill
from tests.bench.figures import percentile
from tests.bench.picture import Panel, draw_panels
from tests.bench.process import module_process
from tests.bench.report import MISSING, Bar, Outcome, ratio, tabulate
from tests.cluster import Cluster, ClusterOptions, Host, Listener, free_ports
from tests.support.growth import Growth, watch
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings
from tests.support.waiting import until

MB: Final = 1_000_000
BROKERS: Final = (1, 2, 3)
# So little that two cores have time to spare in the surge: records are to wait for a card, not for a core.
CARD: Final = 5 * MB  # bytes/s, in and out
CAPACITY: Final = 4 * MB
FLOOR: Final = MB // 2
MOVED: Final = 120 * MB  # to each broker
PARTITIONS: Final = 4  # of each broker
BATCH_BYTES: Final = 20_000
# More than each sends in the surge. Twice as much, since replicas in sync receive it as well, and the floor are 0.95 of
# the capacity: what is promised can be kept, also in seconds in which more records are due than on average.
PROMISED: Final = {WEB.name: 1_200_000, **{client.name: 225_000 for client in OTHERS}}

P99_MAX: Final = 1.1
TIME_MAX: Final = 0.7
FALL_SECONDS_MAX: Final = 2.0
FALLEN: Final = (SURGE[0] + FALL_SECONDS_MAX, SURGE[1])  # seconds of the day
INTAKE_MAX: Final = 1.02
BUSY_MAX: Final = 0.8

_FIXED: Final = tuple(quarter * MB // 4 for quarter in range(7, 1, -1))
# What an in-sync replica has in a response comes with what others have in it, through one fetcher of each leader by
# default. So there are several, and the bytes of a replica are as much fewer as the cards are slower than 1 Gbit/s.
_FETCHES: Final = {"num.replica.fetchers": "4", "replica.fetch.max.bytes": "40000"}
_LIVE, _PAST = "live", "past"
# Of the topic that producers write to, for each pair of leader and replica: a replica in sync has at most
# `replica.fetch.max.bytes` of each in a response, and the surge is more than that of one.
_LIVE_PARTITIONS: Final = 4
_ended: Final = attrgetter("ended")
_RECORD_BYTES: Final = 10_000
_START_SECONDS: Final = 4.0
_MOVE_SECONDS_MAX: Final = 270.0
_WINDOW_SECONDS: Final = 1.0
_STEP_SECONDS: Final = 0.1
# The broker of each partition in the beginning.
_HOMES: Final = tuple(broker for broker in BROKERS for _ in range(PARTITIONS))


class Lane(NamedTuple):
    """What is measured once.

    Args:
        keys: of `[replication]`.
        moves: whether there is a reassignment.
        lends: whether the capacity and its classes are stated.
    """

    name: str
    keys: Mapping[str, object]
    moves: bool = True
    lends: bool = False


ALONE: Final = Lane("no reassignment", {}, moves=False)
CLASS: Final = Lane(
    "a class of the capacity", {"follower_rate": FLOOR, "follower_rate_ceiling": CAPACITY}, lends=True
)


def fixed(limit: int) -> Lane:
    """Return the lane of a fixed rate, in bytes/s of each broker."""
    return Lane(f"{limit / MB:g} MB/s", {"follower_rate": limit})


class Surge(NamedTuple):
    """What was measured in the surge, from the time on at which replication must have fallen.

    Args:
        produced: by broker, the bytes that it received from producers and as a replica in sync.
        busy: the part of all cores that was in use.
    """

    produced: Mapping[int, int]
    busy: float


@dataclass(frozen=True, slots=True)
class Day:
    """What was measured in one lane; times are in seconds of the day.

    Args:
        taken: of each record when it was due, and the seconds until it was acknowledged.
        missing: records that were not acknowledged.
        began: when the day began, on the clock of `growths`.
        surge: what producers had in the surge.
        growths: by broker, what it has of the partitions that move to it.
    """

    lane: Lane
    taken: Sequence[tuple[float, float]]
    missing: int
    began: float
    surge: Surge
    growths: Mapping[int, Growth] = field(default_factory=dict)

    def latency(self, percent: float) -> float:
        """Return a percentile of the seconds that the records of the first day took."""
        return percentile(sorted(seconds for at, seconds in self.taken if 0 <= at < DAY_SECONDS), percent)

    @property
    def seconds(self) -> float:
        """How long the reassignment took; infinite without one."""
        if not self.growths:
            return inf
        first = min(growth.samples[0].ended for growth in self.growths.values())
        return max(growth.samples[-1].ended for growth in self.growths.values()) - first

    def copied(self, broker: int, began: float, ended: float) -> int:
        """Return the bytes that a broker received of the reassignment between two times."""
        samples = self.growths[broker].samples
        first, last = (
            samples[max(0, bisect_right(samples, self.began + at, key=_ended) - 1)].size
            for at in (began, ended)
        )
        return last - first

    def span(self, broker: int) -> tuple[float, float]:
        """Return when the first byte and the last one came to a broker."""
        samples = self.growths[broker].samples
        return samples[0].ended - self.began, samples[-1].ended - self.began

    def windows(self, broker: int, began: float, ended: float) -> Iterator[tuple[float, int]]:
        """Yield the beginning of each second between two times, and what came in it; a tenth of a second apart."""
        for step in range(int((ended - began - _WINDOW_SECONDS) / _STEP_SECONDS) + 1):
            at = began + step * _STEP_SECONDS
            yield at, self.copied(broker, at, at + _WINDOW_SECONDS)


class Rig:
    """Brokers, the Sluice that all their bytes pass, and a topic that moves from broker to broker.

    Attributes:
        turns: how often the topic has moved.
    """

    sluice: SluiceProcess
    admin: KafkaAdminClient

    def __init__(self, directory: Path, hosts: Sequence[Host]) -> None:
        self.directory = directory
        self._ports = SluicePorts.free()
        ports, front = free_ports(len(hosts)), free_ports(len(hosts) + 1)[0]
        own = Listener(
            "INTERNAL", ports=tuple(ports), advertised=tuple((HUB, front + broker) for broker in BROKERS)
        )
        self._upstreams = {
            str(broker): f"{host.address}:{port}"
            for broker, host, port in zip(BROKERS, hosts, ports, strict=True)
        }
        self._listener = {"name": "brokers", "kind": "replication", "bind": HUB, "first_broker_port": front}
        properties = {
            "inter.broker.listener.name": "INTERNAL",
            "log.segment.delete.delay.ms": "1000",
            **_FETCHES,
        }
        self.cluster = Cluster(
            ClusterOptions(nodes=len(hosts), hosts=tuple(hosts), listeners=(own,), properties=properties)
        )
        self.turns = 0

    def settings(self, lane: Lane) -> SluiceSettings:
        """Return Sluice's configuration for a lane."""
        terms = {
            name: {"producer_byte_rate": promised, "producer_byte_rate_ceiling": CAPACITY}
            for name, promised in PROMISED.items()
        }
        return SluiceSettings(
            self.cluster.bootstrap(),
            self._ports,
            quotas={"policy": "schedule", "scope": "broker"},
            client_quotas=terms if lane.lends else {},
            quotas_text=f'[[capacity]]\nscope = "broker"\nin = {CAPACITY}\n' if lane.lends else "",
            sections={
                "[listeners]": self._listener,
                "listeners.upstreams": self._upstreams,
                "replication": {"throttled": "reassignments", **lane.keys},
            },
        )

    def place(self, number: int) -> int:
        """Return where a partition of the topic is, or moves to."""
        return BROKERS[(_HOMES[number] - 1 + self.turns) % len(BROKERS)]

    def size(self, broker: int) -> int:
        """Return the bytes that a broker has of the partitions that are there, or move there."""
        data = self.cluster.directory / str(broker) / "data"
        return sum(
            _bytes(data / f"{_PAST}-{number}")
            for number in range(len(_HOMES))
            if self.place(number) == broker
        )

    def produced(self, broker: int) -> int:
        """Return the bytes that a broker has of the partitions that producers write to."""
        data = self.cluster.directory / str(broker) / "data"
        return sum(_bytes(directory) for directory in data.glob(f"{_LIVE}-*"))

    def fill(self) -> None:
        """Create both topics, and fill the one that moves."""
        pairs = _LIVE_PARTITIONS * [[one, other] for one in BROKERS for other in BROKERS if one != other]
        homes = [[broker] for broker in _HOMES]
        self.admin.create_topics([_topic(_LIVE, pairs), _topic(_PAST, homes)])
        records = MOVED // PARTITIONS // _RECORD_BYTES
        config = {"batch.size": BATCH_BYTES, "acks": "1"}
        fill(self.cluster.bootstrap(), _PAST, records, _RECORD_BYTES, range(len(_HOMES)), config)

    def move(self) -> None:
        """Begin the reassignment of all partitions to the next broker each."""
        self.turns += 1
        targets = {TopicPartition(_PAST, number): [self.place(number)] for number in range(len(_HOMES))}
        refused = [
            problem for problem in self.admin.alter_partition_reassignments(targets).values() if problem
        ]
        if refused:
            raise ChildProcessError(f"the reassignment was refused: {refused}")

    def settle(self) -> None:
        """Wait until no reassignment is under way."""
        until(lambda: not self.admin.list_partition_reassignments(), "nothing is reassigned", 60.0, pause=0.5)


def _topic(name: str, assignment: Sequence[Sequence[int]]) -> NewTopic:
    return NewTopic(name, replica_assignments={number: list(one) for number, one in enumerate(assignment)})


def _bytes(directory: Path) -> int:
    total = 0
    for path in directory.glob("*.log"):
        with suppress(FileNotFoundError):  # deleted meanwhile
            total += path.stat().st_size
    return total


@contextmanager
def running(directory: Path) -> Iterator[Rig]:
    """Start everything; the cards are bounded when the topic is full."""
    with network(len(BROKERS)) as hosts, ExitStack() as stack:
        rig = Rig(directory, hosts)
        sluice = SluiceProcess.configured(rig.settings(ALONE), directory)
        stack.callback(sluice.stop)
        stack.enter_context(rig.cluster)
        rig.sluice = sluice.wait_ready()
        rig.admin = stack.enter_context(closing(KafkaAdminClient(bootstrap_servers=rig.cluster.bootstrap())))
        rig.fill()
        shape(len(BROKERS), CARD)
        yield rig


def measure(rig: Rig, lane: Lane) -> Day:
    """Measure one lane: a day, or more until the reassignment has ended."""
    rig.settings(lane).write(rig.directory)
    rig.sluice.reload()
    words: tuple[object, ...] = ("--bootstrap", rig.sluice.bootstrap, "--topic", _LIVE)
    partitions = _LIVE_PARTITIONS * len(BROKERS) * (len(BROKERS) - 1)
    words += ("--partitions", partitions, "--brokers", len(BROKERS))
    log = rig.directory / "day.log"
    growths = {}
    with module_process("tests.bench.capacity.day", *words, log=log) as day, ThreadPoolExecutor() as pool:
        began = time.monotonic() + _START_SECONDS
        day.say(str(began))
        surge = pool.submit(_surge, rig, began)
        time.sleep(_START_SECONDS)
        if lane.moves:
            rig.move()
            watching = {broker: pool.submit(_watch, rig, broker) for broker in BROKERS}
            growths = {broker: watched.result() for broker, watched in watching.items()}
        time.sleep(max(0.0, began + DAY_SECONDS - time.monotonic()))
        found = day.ask("end")
    rig.settle()
    taken = [(at, seconds) for at, seconds in found["taken"]]
    return Day(lane, taken, found["missing"], began, surge.result(), growths)


def _surge(rig: Rig, began: float) -> Surge:
    sizes, ticks = [], []
    for at in FALLEN:
        time.sleep(max(0.0, began + at - time.monotonic()))
        sizes.append({broker: rig.produced(broker) for broker in BROKERS})
        ticks.append(_ticks())
    produced = {broker: sizes[1][broker] - size for broker, size in sizes[0].items()}
    idle, total = (last - first for first, last in zip(*ticks, strict=True))
    return Surge(produced, 1 - idle / total)


def _ticks() -> tuple[int, int]:
    """Return the time that all cores were idle, and all their time, in ticks since the machine started."""
    own = [int(number) for number in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return own[3] + own[4], sum(own)  # idle, and waiting for a disk


def _watch(rig: Rig, broker: int) -> Growth:
    return watch(lambda: rig.size(broker), lambda size: size >= MOVED, _MOVE_SECONDS_MAX)


@dataclass(slots=True)
class Found:
    """All lanes."""

    alone: Day
    lent: Day
    fixed: list[Day] = field(default_factory=list)

    def days(self) -> list[Day]:
        """Return all days."""
        return [self.alone, *self.fixed, self.lent]

    def slowdown(self, day: Day) -> float:
        """Return the p99 of a lane, in that of the day without a reassignment."""
        return day.latency(99) / self.alone.latency(99)

    def keeps(self, day: Day) -> bool:
        """Return whether a lane keeps the producers' p99."""
        return self.slowdown(day) <= max(P99_MAX, self.slowdown(self.lent))

    def best(self) -> Day | None:
        """Return the lane of the best fixed rate, if there is one."""
        return next((day for day in self.fixed if self.keeps(day)), None)


def play(console: Console) -> Found:
    """Measure all lanes."""
    with tempfile.TemporaryDirectory(prefix="sluice-reassigned-") as name, running(Path(name)) as rig:
        found = Found(measure(rig, ALONE), measure(rig, CLASS))
        for limit in _FIXED:
            found.fixed.append(measure(rig, fixed(limit)))
            console.print("; ".join(_ROW[name](found, found.fixed[-1]) for name in _ROW))
            if found.best():
                break
    return found


def left() -> float:
    """Return the bytes/s of a broker's capacity that producers and replicas in sync leave during the surge."""
    return CAPACITY - 2 * rate(SURGE[0])


def fall(day: Day) -> float:
    """Return the seconds from the surge to the end of the first second in which each broker has received no more of
    the reassignment than is left, and one batch; infinite if one never has.
    """
    most = left() * _WINDOW_SECONDS + BATCH_BYTES
    return max(
        next(
            (at + _WINDOW_SECONDS - SURGE[0] for at, size in day.windows(broker, *SURGE) if size <= most), inf
        )
        for broker in BROKERS
    )


def intake(day: Day) -> float:
    """Return the part of the capacity that a broker takes in when replication must have fallen; the busiest broker."""
    began, ended = FALLEN
    most = max(day.surge.produced[broker] + day.copied(broker, began, ended) for broker in BROKERS)
    return most / (CAPACITY * (ended - began))


def least(day: Day) -> int:
    """Return the least that any broker received in a second, from one second after its first byte to its last one."""
    return min(
        size
        for broker in BROKERS
        for began, ended in (day.span(broker),)
        for _, size in day.windows(broker, began + _WINDOW_SECONDS, ended)
    )


_ROW: Final[Mapping[str, Callable[[Found, Day], str]]] = {
    "reassignment": lambda _, day: day.lane.name,
    "producers' p50, ms": lambda _, day: f"{day.latency(50) * 1000:.1f}",
    "p99, ms": lambda _, day: f"{day.latency(99) * 1000:.1f}",
    "p99 / without": lambda found, day: f"{found.slowdown(day):.2f}",
    "keeps it": lambda found, day: "yes" if found.keeps(day) else "no",
    "seconds": lambda _, day: f"{day.seconds:.1f}" if day.growths else MISSING,
    "MB/s to a broker": lambda _, day: f"{MOVED / day.seconds / MB:.2f}" if day.growths else MISSING,
    "in the surge: taken / capacity": lambda _, day: f"{intake(day):.2f}" if day.growths else MISSING,
    "cores busy": lambda _, day: f"{day.surge.busy:.0%}",
    "least second, MB": lambda _, day: f"{least(day) / MB:.2f}" if day.growths else MISSING,
}


def report(found: Found) -> Outcome:
    """Return the table and the bars."""
    columns = {name: partial(cell, found) for name, cell in _ROW.items()}
    title = f"A reassignment of {MOVED // MB} MB to each of three brokers, cards of {CARD // MB} MB/s"
    note = (
        f"A capacity of {CAPACITY / MB:g} MB/s of what each broker takes in, a floor of {FLOOR / MB:g} MB/s. In the "
        f"surge producers and replicas in sync leave {left() / MB:.1f} MB/s of it."
    )
    table = tabulate(title, found.days(), columns, note)
    best, lent = found.best(), found.lent
    bars = [
        Bar("class: p99, against no reassignment", found.slowdown(lent), P99_MAX),
        Bar(
            "class: time, against the best fixed rate",
            ratio(lent.seconds, best.seconds if best else None),
            TIME_MAX,
        ),
        Bar("class: from the surge until it has fallen", fall(lent), FALL_SECONDS_MAX, "s"),
        Bar("class: taken in by a broker from then on, against the capacity", intake(lent), INTAKE_MAX),
        Bar(
            "class: least second and one batch, against the floor",
            (least(lent) + BATCH_BYTES) / FLOOR,
            1.0,
            at_least=True,
        ),
        Bar("cores busy in the surge", max(day.surge.busy for day in found.days()), BUSY_MAX, ""),
        Bar("records that were not acknowledged", sum(day.missing for day in found.days()), 0, ""),
    ]
    return Outcome([table], bars)


def draw(found: Found, path: Path) -> None:
    """Draw what the class and the best fixed rate have in each second beside the producers."""
    days = [found.lent, found.best() or found.fixed[-1]]
    draw_panels(path, [[_panel(day)] for day in days], "s", (10, 7))


def _panel(day: Day) -> Panel:
    seconds = range(int(DAY_SECONDS))
    lines = {
        "reassignment": [
            (at + 0.5, sum(day.copied(broker, at, at + 1) for broker in BROKERS) / len(BROKERS) / MB)
            for at in seconds
        ],
        "producers, and replicas in sync": [(at + 0.5, 2 * rate(at + 0.5) / MB) for at in seconds],
    }
    marks = [(SURGE[0], "surge"), (SURGE[1], "")]
    if (ended := max(day.span(broker)[1] for broker in BROKERS)) < DAY_SECONDS:
        marks.append((ended, "moved"))
    floors = {"reassignment": FLOOR / MB} if day.lane.lends else {}
    return Panel(f"{day.lane.name}: MB/s into a broker", lines, marks, CARD / MB, floors)
