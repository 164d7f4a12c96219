"""Two members of every family's groups, classic, consumer (KIP-848) and share (KIP-932), through Sluice.

All groups run side by side in one window, since each needs seconds of waiting and hardly any work.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.features import CONSUMER_GROUPS, SHARE_GROUPS, broker, lacks
from tests.conftest import CreateTopic
from tests.interop.conftest import Target, available, present
from tests.interop.families import FAMILIES, Family
from tests.interop.runs import Crowd, Run, options

PARTITIONS = 6
RECORDS = 300
INDEX_SUM = RECORDS * (RECORDS - 1) // 2
# The longest it may take; the stop file ends it as soon as everything has come. KIP-848's members hear what they
# own with their next heartbeat, 5 s apart, and need several.
ASSIGNED_SECONDS_MAX = 60.0
ARRIVED_SECONDS_MAX = 20.0
SETTLE_SECONDS = 1.0
RUN_SECONDS_MAX = 60.0
CASES = [(family, protocol) for family in FAMILIES for protocol in family.group_protocols]
NEEDS = {"classic": (), "consumer": (CONSUMER_GROUPS,), "share": (SHARE_GROUPS,)}


@dataclass(slots=True)
class Group:
    """One group: its members, and whether they shared the partitions before records came."""

    topic: str
    members: list[Run]
    shared: bool = False

    def divided(self, protocol: str) -> bool:
        """Whether each member has its part.

        With the classic protocol and eager balancers the last assignment is the whole truth; with KIP-848 a member
        is only told what is new, and the second has something when the first gave it up.
        """
        assigned = [run.events("assigned") for run in self.members]
        if protocol == "share":
            return True
        if not all(assigned):
            return False
        if protocol == "consumer":
            return all(any(event.items("partitions") for event in events) for events in assigned)
        held = [events[-1].items("partitions") for events in assigned]
        return all(held) and sorted(map(str, itertools.chain(*held))) == [str(p) for p in range(PARTITIONS)]


@pytest.fixture(scope="module")
def groups(target: Target, create_topic: CreateTopic, interop_directory: Path) -> Iterator[dict[str, Group]]:
    """Every group's members, run to their end."""
    directory = interop_directory / "groups"
    directory.mkdir()
    stop_file = directory / "stop"
    families = present()
    found: dict[str, Group] = {}
    with Crowd(directory) as crowd:
        for family, protocol in CASES:
            if family not in families or any(lacks(feature, broker()) for feature in NEEDS[protocol]):
                continue
            topic = create_topic(partitions=PARTITIONS, replication=3)
            words = options(
                target.bootstrap,
                f"group-{family.name}",
                topic,
                group=f"g-{topic}",
                group_protocol=protocol,
                partitions=PARTITIONS,
                stop_file=str(stop_file),
                seconds=ASSIGNED_SECONDS_MAX + 2 * ARRIVED_SECONDS_MAX,
            )
            members = [crowd.start(family, "consume", *words) for _ in range(2)]
            found[f"{family.name}-{protocol}"] = Group(topic, members)
        waiting = {name: name.rpartition("-")[2] for name in found}
        crowd.until(
            lambda: all(found[name].divided(protocol) for name, protocol in waiting.items()),
            ASSIGNED_SECONDS_MAX,
        )
        for name, protocol in waiting.items():
            found[name].shared = found[name].divided(protocol)
        for group in found.values():
            _produce(crowd, families, target, group.topic)
        # Members tell their records about once a second: what is not told yet comes with the last line.
        crowd.until(
            lambda: all(run.events("progress") for run in crowd.runs if run.words[0] == "consume"), 10.0
        )
        crowd.until(lambda: False, SETTLE_SECONDS)
        stop_file.touch()
        yield found


def _produce(crowd: Crowd, families: list[Family], target: Target, topic: str) -> None:
    # librdkafka's driver: it is always there, and quick to start.
    quick = next(family for family in families if family.name == "librdkafka")
    words = options(target.bootstrap, "group-fill", topic, partitions=PARTITIONS, records=RECORDS)
    crowd.start(quick, "produce", *words).wait(RUN_SECONDS_MAX)


@pytest.mark.parametrize(
    ("family", "protocol"),
    [
        pytest.param(
            family, protocol, id=f"{family.name}-{protocol}", marks=pytest.mark.needs(*NEEDS[protocol])
        )
        for family, protocol in CASES
    ],
)
def test_two_members_share_a_group(family: Family, protocol: str, groups: dict[str, Group]) -> None:
    available(family)
    group = groups[f"{family.name}-{protocol}"]
    told = "\n".join(run.describe() for run in group.members)
    assert group.shared, told
    lines = [run.wait(RUN_SECONDS_MAX).last("consumed") for run in group.members]
    assert sum(line.number("records") for line in lines) == RECORDS, told
    assert sum(line.number("index_sum") for line in lines) == INDEX_SUM, told
    assert all(line.number("records") > 0 for line in lines), told
    assert all(line.number("errors") == 0 for line in lines), told
