"""One run: a client of two gateways loses the one that it uses; how long each partition is without records.

The gateway is killed (its ports refuse connections at once) or suspended (it responds to nothing, as a lost machine).
Which one the client uses is what the gateways have counted, since clients choose one of `bootstrap.servers` by chance.
What was acknowledged is compared with what the brokers themselves have.
"""

import enum
import itertools
import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.cluster import Cluster
from tests.interop.families import Command, Family
from tests.interop.runs import Crowd, DriverError, Run, options
from tests.support.gateways import ADDRESSES, Gateways, Way
from tests.support.numbered import read_all
from tests.support.raw_topics import create

LIMIT_SECONDS: Final = 90.0
PARTITIONS: Final = 3
_WATCH_MS: Final = 20
_RECORD_BYTES: Final = 100
# Before the fault, each partition has so many.
_STEADY_RECORDS: Final = 50
_STEADY_SECONDS_MAX: Final = 60.0
# It has moved when no partition was without a record for longer than this during so many seconds.
_QUIET_SECONDS_MAX: Final = 2.0
_MOVED_SECONDS: Final = 8.0
BACK_SECONDS_MAX: Final = 60.0
_INDEX_DIGITS: Final = 10


class Role(enum.StrEnum):
    """What the client does."""

    PRODUCER = "produce"
    CONSUMER = "consume"


class Fault(enum.StrEnum):
    """What becomes of the gateway."""

    KILLED = "killed"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class Case:
    """One client in one situation; `client` is its name in the table."""

    client: str
    family: Family
    role: Role
    way: Way
    fault: Fault
    properties: str = ""


@dataclass(slots=True)
class Outcome:
    """What became of it.

    Attributes:
        seconds: the longest time that a partition was without records after the fault; None: longer than the limit.
        back_seconds: where it did not move: how long after the gateway was back until all partitions had records.
        lost: records that were acknowledged and are not in the topic, or that the consumer left out.
        given_up: records that the producer told its user it could not deliver.
    """

    case: Case
    seconds: float | None = None
    back_seconds: float | None = None
    lost: int = 0
    given_up: int = 0
    records: int = 0
    message: str = ""
    trouble: str = ""


def gaps(times_ms: dict[int, list[int]], fault_ms: int, now_ms: int) -> float:
    """Return the longest time in seconds that a partition was without a record, of what ended after the fault.

    >>> gaps({0: [0, 100, 900], 1: [0, 400, 950]}, 150, 1000)
    0.8
    """
    longest = 0
    for times in times_ms.values():
        for before, after in itertools.pairwise([*sorted(times), now_ms]):
            if after > fault_ms:
                longest = max(longest, after - before)
    return longest / 1000


class Watched:
    """The records that a driver has told of so far."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def indexes(self) -> set[int]:
        """Return the numbers of the records."""
        return {event.number("index") for event in self._run.events("record")}

    def times_ms(self) -> dict[int, list[int]]:
        """Return the Unix times of the records, by partition."""
        times: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        for event in self._run.events("record"):
            times[event.number("index") % PARTITIONS].append(event.number("unix_ms"))
        return times

    def served_since(self, unix_seconds: float) -> bool:
        """Return whether each partition has had a record since then."""
        return all(times and max(times) > unix_seconds * 1000 for times in self.times_ms().values())


def measure(case: Case, kafka: Cluster, direct: Family, directory: Path) -> Outcome:
    """Let a client work through two gateways, take away the one that it uses, and see what becomes of it.

    `direct` produces at the brokers what a consumer consumes.
    """
    outcome = Outcome(case)
    topic = f"failover-{secrets.token_hex(4)}"
    create(kafka, topic, partitions=PARTITIONS, replication=3, configs={})
    more: dict[str, str | float] = {"watch_ms": _WATCH_MS, "size": _RECORD_BYTES, "partitions": PARTITIONS}
    if case.properties:
        more["properties"] = case.properties
    with Gateways(kafka.bootstrap(), case.way, directory) as gateways, Crowd(directory) as crowd:
        family = replace(case.family, build=lambda: _resolving(case, gateways))
        if case.role == Role.CONSUMER:
            own = options(kafka.bootstrap(), "direct", topic, **{**more, "properties": ""})
            crowd.start(direct, "produce", *own)
            more["group"] = topic
        else:
            more |= {"acks": "default", "outstanding": 1 if case.family.name == "kafkajs" else 500}
        run = crowd.start(family, case.role, *options(gateways.bootstrap, topic, topic, **more))
        try:
            _go(case, gateways, crowd, Watched(run), topic, outcome)
        except DriverError as error:
            outcome.trouble = str(error).split("\n", 1)[0]
        errors = run.events("error")
        outcome.message = errors[0].text("message") if errors else ""
        outcome.given_up = sum(len(event.items("indexes")) for event in run.events("failed"))
        crowd.stop()
        _judge(run, kafka, topic, outcome)
    return outcome


def _resolving(case: Case, gateways: Gateways) -> Command:
    """Return how the driver is started where the names of this run are known."""
    command = case.family.build()
    return replace(command, words=(*gateways.resolving, *command.words))


def _go(case: Case, gateways: Gateways, crowd: Crowd, watched: Watched, topic: str, outcome: Outcome) -> None:
    steady = crowd.until(
        lambda: all(len(times) >= _STEADY_RECORDS for times in watched.times_ms().values()),
        _STEADY_SECONDS_MAX,
    )
    if not steady:
        outcome.trouble = "never began"
        return
    lost = used(gateways, topic)
    at = gateways.kill(lost) if case.fault == Fault.KILLED else gateways.suspend(lost)
    # One that moves in the last moment is watched for as long as any other.
    deadline = at + LIMIT_SECONDS + _MOVED_SECONDS + _QUIET_SECONDS_MAX
    moved = False
    while not moved and time.time() < deadline:
        time.sleep(0.5)
        now = time.time()
        recent = max(at, now - _MOVED_SECONDS)
        quiet = gaps(watched.times_ms(), int(recent * 1000), int(now * 1000)) < _QUIET_SECONDS_MAX
        moved = quiet and now - at > _MOVED_SECONDS and watched.served_since(now - _QUIET_SECONDS_MAX)
    if moved:
        outcome.seconds = gaps(watched.times_ms(), int(at * 1000), int(time.time() * 1000))
        return
    if case.fault == Fault.KILLED:
        gateways.start(lost)
    else:
        gateways.resume(lost)
    back = time.time()
    if crowd.until(lambda: watched.served_since(back), BACK_SECONDS_MAX):
        firsts = [min(at for at in times if at > back * 1000) for times in watched.times_ms().values()]
        outcome.back_seconds = max(firsts) / 1000 - back


def used(gateways: Gateways, client_id: str) -> str:
    """Return the address of the gateway that has counted the most of a client's bytes in half a second."""
    before = gateways.client_bytes(client_id)
    time.sleep(0.5)
    after = gateways.client_bytes(client_id)
    return max(ADDRESSES, key=lambda address: after[address] - before[address])


def _judge(run: Run, kafka: Cluster, topic: str, outcome: Outcome) -> None:
    """Compare what the driver was told with what the brokers have."""
    told = Watched(run).indexes()
    outcome.records = len(told)
    there = {
        int(value[:_INDEX_DIGITS])
        for value in read_all(kafka.bootstrap(), topic, PARTITIONS, committed=False)
    }
    if outcome.case.role == Role.PRODUCER:
        outcome.lost = len(told - there)
        return
    for partition in range(PARTITIONS):
        own = {index for index in told if index % PARTITIONS == partition}
        if own:
            due = {index for index in there if index % PARTITIONS == partition and index <= max(own)}
            outcome.lost += len(due - own)
