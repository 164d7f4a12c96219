"""One run through a relay that refuses some requests: what became of each record, and of a group's member.

A producer of a client family sends numbered records; they are read from the broker itself, on a listener that no relay
stands before. Or the connections on which a group member fetches are closed: does it stay, and read each record once?
And do group requests share a connection with Fetch: what is closed for one is closed for the other.
"""

import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster import HOST, Cluster, ClusterOptions, Listener, free_ports
from tests.interop.families import Family
from tests.interop.refusals.relay import Relay
from tests.interop.refusals.script import FETCH, Counts, Script, Way
from tests.interop.runs import Crowd, DriverError, Run, options
from tests.support.numbered import read_all
from tests.support.raw_topics import batch, create, describe, write

RECORDS: Final = 300
# Larger than the Java client's batch.size: each record is a batch, and a few are in flight.
RECORD_BYTES: Final = 100_000
# KafkaJS waits for each call: so many records are one call.
KAFKAJS_CALL_RECORDS: Final = 5
RUN_SECONDS_MAX: Final = 60.0
_READ_SECONDS_MAX: Final = 30.0
_INDEX_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class Setting:
    """What the producer is told: "default" leaves a setting out; without a client id, it is the topic's name."""

    acks: str = "default"
    idempotence: str = "default"
    client_id: str = ""
    calls: int = 1
    transactional: bool = False
    records: int = RECORDS
    size: int = RECORD_BYTES


@dataclass(slots=True)
class Outcome:
    """What became of the records of one run.

    Attributes:
        failed: records that the client said it could not deliver, and that are not there.
        failed_written: records that it said it could not deliver, and that are there.
        lost: records that it called delivered, and that are not there.
        silent: records that it neither called delivered nor failed.
        duplicated: records that are there more than once, each counted as often as it is too often.
        reordered: records whose first appearance comes after that of a later record.
        gave_up: it failed a record while every request was refused.
        refused_by_then: refusals that were carried out until it did.
        message: the first error that the user was told.
    """

    family: str
    setting: Setting
    script: Script
    counts: Counts
    seconds: float = 0.0
    slowest_ms: int = 0
    failed: int = 0
    failed_written: int = 0
    lost: int = 0
    silent: int = 0
    duplicated: int = 0
    reordered: int = 0
    errors: int = 0
    gave_up: bool = False
    refused_by_then: int = 0
    message: str = ""
    hung: str = ""
    log: str = field(default="", repr=False)

    @property
    def survived(self) -> bool:
        """Whether every record is there once, in order, and called delivered."""
        wrong = (self.failed, self.failed_written, self.lost, self.silent, self.duplicated, self.reordered)
        return not any(wrong) and not self.hung


def judge(sent: int, failed: set[int], delivered: int, found: list[int]) -> Counter[str]:
    """Compare what the client said with what is there.

    >>> sorted(judge(5, {4}, 4, [0, 2, 1, 1]).items())
    [('duplicated', 1), ('failed', 1), ('lost', 1), ('reordered', 1)]
    """
    copies = Counter(found)
    judged: Counter[str] = Counter()
    judged["failed"] = len(failed - copies.keys())
    judged["failed_written"] = len(failed & copies.keys())
    judged["lost"] = len(set(range(sent)) - failed - copies.keys())
    judged["silent"] = max(0, sent - len(failed) - delivered)
    judged["duplicated"] = sum(copies.values()) - len(copies)
    highest = -1
    for index in dict.fromkeys(found):
        judged["reordered"] += index < highest
        highest = max(highest, index)
    return Counter({name: number for name, number in judged.items() if number})


@dataclass(frozen=True, slots=True)
class Lane:
    """A relay in front of a cluster, and where its clients connect."""

    cluster: Cluster
    relay: Relay
    bootstrap: str


class Rig:
    """Brokers with a listener and a relay for each lane, so that runs may go on side by side.

    More than one broker: a client that loses its only one takes its metadata for lost (KIP-1102).
    """

    def __init__(self, lanes: int, nodes: int = 2) -> None:
        inner, outer = free_ports(lanes * nodes), free_ports(lanes * nodes)
        parts = [range(lane * nodes, (lane + 1) * nodes) for lane in range(lanes)]
        listeners = [
            Listener(
                f"LANE{lane}",
                ports=tuple(inner[at] for at in part),
                advertised=tuple((HOST, outer[at]) for at in part),
            )
            for lane, part in enumerate(parts)
        ]
        self.cluster = Cluster(ClusterOptions(nodes=nodes, listeners=tuple(listeners)))
        self.lanes = [
            Lane(
                self.cluster,
                Relay({outer[at]: (HOST, inner[at]) for at in part}),
                ",".join(f"{HOST}:{outer[at]}" for at in part),
            )
            for part in parts
        ]


def produce(lane: Lane, family: Family, setting: Setting, script: Script, directory: Path) -> Outcome:
    """Send the records through a lane's relay, and see what became of them."""
    topic = f"refused-{secrets.token_hex(4)}"
    create(lane.cluster, topic, partitions=1, replication=1, configs={})
    words = options(
        lane.bootstrap,
        setting.client_id or topic,
        topic,
        acks=setting.acks,
        idempotence=setting.idempotence,
        records=setting.records,
        size=setting.size,
    )
    if family.name == "kafkajs":
        words += ["--outstanding", str(KAFKAJS_CALL_RECORDS), "--calls", str(setting.calls)]
    if setting.transactional:
        words += ["--transactional-id", topic]
    counts = lane.relay.begin(script)
    outcome = Outcome(family.name, setting, script, counts)
    started = time.monotonic()
    with Crowd(directory) as crowd:
        run = crowd.start(family, "transact" if setting.transactional else "produce", *words)
        _wait(crowd, run, outcome)
        outcome.seconds = time.monotonic() - started
        outcome.refused_by_then = counts.refused
        run.stop()
        _report(run, outcome)
        found = [int(value[:_INDEX_DIGITS]) for value in read_all(lane.cluster.bootstrap(), topic)]
    lane.relay.begin(None)
    _judge(run, outcome, found)
    return outcome


def _wait(crowd: Crowd, run: Run, outcome: Outcome) -> None:
    """Wait until the driver ends or, where every request is refused, until it gives a record up."""
    script = outcome.script
    try:
        if script.always_after and not script.rounds_max:
            outcome.gave_up = crowd.until(lambda: bool(run.events("failed")), script.always_seconds)
        else:
            run.wait(RUN_SECONDS_MAX)
    except DriverError as error:
        outcome.hung = str(error).split("\n", 1)[0]


def _report(run: Run, outcome: Outcome) -> None:
    outcome.log = run.log()[-20_000:]
    errors = run.events("error")
    if errors:
        outcome.message = errors[0].text("message")
        outcome.errors = len(errors)


def _judge(run: Run, outcome: Outcome, found: list[int]) -> None:
    failed: set[int] = set()
    for event in run.events("failed"):
        for index in event.items("indexes"):
            assert isinstance(index, int), f"indexes of {event} are no numbers"
            failed.add(index)
    if outcome.setting.transactional:
        delivered = outcome.setting.records if run.events("transacted") else 0
    elif produced := run.events("produced"):
        delivered = produced[-1].number("records")
        outcome.seconds = produced[-1].number("last_ms") / 1000
        outcome.slowest_ms = produced[-1].number("slowest_ms")
    else:
        return  # a driver that did not end has called nothing delivered
    for name, number in judge(outcome.setting.records, failed, delivered, found).items():
        setattr(outcome, name, number)


GROUP_RECORDS: Final = 1000
_RECORD_BYTES: Final = 1000
_BATCH_RECORDS: Final = 50
_FETCH_BYTES: Final = 100_000
_CONSUME_SECONDS: Final = 40
_SLACK_SECONDS: Final = 20.0
INDEX_SUM: Final = GROUP_RECORDS * (GROUP_RECORDS - 1) // 2
# JoinGroup, Heartbeat, LeaveGroup, SyncGroup, OffsetCommit, OffsetFetch, ConsumerGroupHeartbeat.
_GROUP_APIS: Final = {11, 12, 13, 14, 8, 9, 68}
CLOSE_FETCHES: Final = Script(Way.CLOSE, api_key=FETCH, every=4, rounds_max=3, hold_seconds=0.0)


@dataclass(slots=True)
class Membership:
    """What a group member saw."""

    family: str
    counts: Counts
    records: int = 0
    index_sum: int = 0
    rebalances: int = 0
    errors: int = 0
    seconds: float = 0.0
    hung: str = ""

    @property
    def fetches_with_group(self) -> bool:
        """Whether Fetch and group requests shared a connection."""
        return any(FETCH in apis and apis & _GROUP_APIS for apis in self.counts.apis)

    @property
    def read_each_once(self) -> bool:
        """Whether each record was read, and none twice."""
        return not self.hung and (self.records, self.index_sum) == (GROUP_RECORDS, INDEX_SUM)


def consume(lane: Lane, family: Family, directory: Path, script: Script | None = CLOSE_FETCHES) -> Membership:
    """Read a filled topic as a member of a group whose fetching connections are closed three times."""
    topic = f"group-{secrets.token_hex(4)}"
    # One partition on each broker: one of them is also where the group's coordinator is.
    create(lane.cluster, topic, partitions=len(lane.cluster.nodes), replication=1, configs={})
    described = describe(lane.cluster, topic, partitions=len(lane.cluster.nodes))
    for number, first in enumerate(range(0, GROUP_RECORDS, _BATCH_RECORDS)):
        partition = number % len(lane.cluster.nodes)
        values = [
            f"{index:010d}".encode().ljust(_RECORD_BYTES) for index in range(first, first + _BATCH_RECORDS)
        ]
        write(lane.cluster.address(described.leaders[partition]), described, partition, batch(values))
    words = options(
        lane.bootstrap,
        topic,
        topic,
        group=topic,
        records=GROUP_RECORDS,
        seconds=_CONSUME_SECONDS,
        fetch_bytes=_FETCH_BYTES,
        partitions=len(lane.cluster.nodes),
    )
    member = Membership(family.name, lane.relay.begin(script))
    with Crowd(directory) as crowd:
        run = crowd.start(family, "consume", *words)
        try:
            line = run.wait(_CONSUME_SECONDS + _SLACK_SECONDS).last("consumed")
        except DriverError as error:
            member.hung = str(error).split("\n", 1)[0]
            return member
        member.records, member.index_sum = line.number("records"), line.number("index_sum")
        member.rebalances, member.errors = line.number("rebalances"), line.number("errors")
        member.seconds = line.number("last_ms") / 1000
    lane.relay.begin(None)
    return member
