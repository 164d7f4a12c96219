"""A soft close of the connection on which a group member fetches: does it stay, and read each record once?

Also whether group requests share a connection with Fetch: what is closed for one is closed for the other.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop.families import Family
from tests.interop.refusals.measure import Lane
from tests.interop.refusals.script import FETCH, Counts, Script, Way
from tests.interop.runs import Crowd, DriverError, options
from tests.support.raw_topics import batch, create, describe, write

RECORDS: Final = 1000
_RECORD_BYTES: Final = 1000
_BATCH_RECORDS: Final = 50
_FETCH_BYTES: Final = 100_000
_CONSUME_SECONDS: Final = 40
_SLACK_SECONDS: Final = 20.0
INDEX_SUM: Final = RECORDS * (RECORDS - 1) // 2
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
        return not self.hung and (self.records, self.index_sum) == (RECORDS, INDEX_SUM)


def consume(lane: Lane, family: Family, directory: Path, script: Script | None = CLOSE_FETCHES) -> Membership:
    """Read a filled topic as a member of a group whose fetching connections are closed three times."""
    topic = f"group-{secrets.token_hex(4)}"
    # One partition on each broker: one of them is also where the group's coordinator is.
    create(lane.cluster, topic, partitions=len(lane.cluster.nodes), replication=1, configs={})
    described = describe(lane.cluster, topic, partitions=len(lane.cluster.nodes))
    for number, first in enumerate(range(0, RECORDS, _BATCH_RECORDS)):
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
        records=RECORDS,
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
