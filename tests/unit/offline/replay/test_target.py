"""What a recording needs, and where its partitions go."""

from offline.replay.messages import Topic
from offline.replay.schedule import Part
from offline.replay.target import Placement, requirements_of
from protocol.api import FETCH, HEARTBEAT
from tests.unit.offline.replay.rows import recorded


def test_recording_lists_the_needed_topics() -> None:
    found = requirements_of(
        [
            recorded(broker=3, partitions=(Part("a", 1, 10, 1), Part("", -1, 5, -1))),
            recorded(broker=1, api_key=FETCH, partitions=(Part("b", 0, 70, -1),)),
            recorded(broker=1, api_key=FETCH, partitions=(Part("b", 0, 50, -1),)),
            recorded(broker=-1, api_key=HEARTBEAT, partitions=()),
        ]
    )
    assert found.leaders == {"a": {1: 3}, "b": {0: 1}}
    assert (found.fetched, found.brokers) == ({("b", 0, 1): 70}, {1, 3})


def test_partition_that_brought_nothing_is_not_needed() -> None:
    found = requirements_of([recorded(api_key=FETCH, partitions=(Part("a", 0, 0, -1),))])
    assert (found.leaders, found.fetched) == ({}, {})


def test_broker_that_is_not_known_hides_none_that_is() -> None:
    found = requirements_of([recorded(broker=3), recorded(broker=-1)])
    assert found.leaders == {"a": {0: 3}}
    assert requirements_of([recorded(broker=-1)]).leaders == {"a": {0: -1}}


def test_partition_stays_where_its_broker_leads_it() -> None:
    topics = {"a": Topic(0, {0: 11, 1: 12, 2: 12, 3: 12})}
    placement = Placement({}, {1: 11, 2: 12, 3: 13}, topics)
    assert [placement.partition("a", index, 2) for index in (0, 1, 2, 4)] == [1, 1, 2, 2]
    assert placement.partition("a", 5, 1) == 0
    assert placement.partition("a", 0, 3) == placement.partition("b", 0, 1) == -1
