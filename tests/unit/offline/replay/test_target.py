"""What the target has to speak, and where recorded partitions go."""

import pytest

from offline.replay import messages, target
from offline.replay.answers import Broker, Topic
from offline.replay.errors import TargetError
from offline.replay.schedule import Part
from offline.replay.target import Placement, wanted
from protocol.api import FETCH, HEARTBEAT, PRODUCE
from tests.unit.offline.replay.rows import recorded

HERE = Broker("h", 1)
ALL = {key: (0, version + 1) for key, version in messages.VERSIONS.items()}


def test_highest_produce_that_names_topics_is_sent() -> None:
    assert target._versions(HERE, ALL) == 10
    assert target._versions(HERE, ALL | {PRODUCE: (3, 13)}) == 12


@pytest.mark.parametrize(
    ("offered", "problem"),
    [
        (ALL | {FETCH: (4, 11)}, "h:1: refuses Fetch version 12; it has 4 to 11"),
        (ALL | {FETCH: (13, 17)}, "h:1: refuses Fetch version 12; it has 13 to 17"),
        (
            {key: found for key, found in ALL.items() if key != PRODUCE},
            "h:1: refuses Produce version 9; it has none",
        ),
    ],
)
def test_refused_api_is_named(offered: dict[int, tuple[int, int]], problem: str) -> None:
    with pytest.raises(TargetError) as raised:
        target._versions(HERE, offered)
    assert str(raised.value) == problem


def test_recording_says_what_is_needed() -> None:
    found = wanted(
        [
            recorded(broker=3, partitions=(Part("a", 1, 10, 1), Part("", -1, 5, -1))),
            recorded(broker=1, api_key=FETCH, partitions=(Part("b", 0, 70, -1),)),
            recorded(broker=1, api_key=FETCH, partitions=(Part("b", 0, 50, -1),)),
            recorded(broker=-1, api_key=HEARTBEAT, partitions=()),
        ]
    )
    assert found.leaders == {"a": {1: 3}, "b": {0: 1}}
    assert (found.fetched, found.brokers) == ({("b", 0): 70}, {1, 3})


def test_partition_stays_where_its_broker_leads_it() -> None:
    topics = {"a": Topic(0, {0: 11, 1: 12, 2: 12, 3: 12})}
    placement = Placement({}, {1: 11, 2: 12, 3: 13}, topics)
    assert [placement.partition("a", index, 2) for index in (0, 1, 2, 4)] == [1, 1, 2, 2]
    assert placement.partition("a", 5, 1) == 0
    assert placement.partition("a", 0, 3) == placement.partition("b", 0, 1) == -1
