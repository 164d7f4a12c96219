"""Requests to a target before a replay; kafka-python writes the responses."""

import asyncio
from typing import Any, TypeVar

import pytest

from kafka_client import Request, topics
from offline.errors import TargetError
from offline.replay import messages, prepare
from offline.replay.messages import BATCH_BYTES_MIN, Broker
from offline.replay.prepare import Peer
from protocol.api import FETCH, LIST_OFFSETS, PRODUCE
from tests.support.own_requests import frame_of
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, decoded, framed
from tests.unit.protocol.kafka_frames import struct as part

T = TypeVar("T")
HERE = Broker("h", 1)
ALL = {key: (0, version + 1) for key, version in (messages.VERSIONS | topics.VERSIONS).items()}


def test_highest_produce_that_names_topics_is_sent() -> None:
    assert prepare.agreed_produce_version(HERE, ALL) == 10
    assert prepare.agreed_produce_version(HERE, ALL | {PRODUCE: (3, 13)}) == 12


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
        prepare.agreed_produce_version(HERE, offered)
    assert str(raised.value) == problem


ONE, TWO, THREE = (Broker(f"h{number}", 9092) for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("recorded", "there", "expected"),
    [
        ({1, 2, 3}, {1: ONE, 2: TWO, 3: THREE}, {1: 1, 2: 2, 3: 3, -1: 2}),
        # By order alone 2 would be 1, and 3 would be 2.
        ({2, 3}, {1: ONE, 2: TWO, 3: THREE}, {2: 2, 3: 3, -1: 2}),
        ({1, 2, 3}, {3: ONE, 4: TWO, 5: THREE}, {3: 3, 1: 4, 2: 5, -1: 4}),
        ({1, 2, 3, 4}, {7: ONE, 8: THREE}, {1: 7, 2: 8, 3: 7, 4: 8, -1: 7}),
    ],
)
def test_broker_is_itself_where_the_target_has_it(
    recorded: set[int], there: dict[int, Broker], expected: dict[int, int]
) -> None:
    assert prepare.stand_ins(recorded, there, TWO) == expected


def test_impossible_host_name_is_one_clear_line() -> None:
    with pytest.raises(TargetError, match=r"x\.\.y:9092: is not an address"):
        asyncio.run(Peer(Broker("x..y", 9092)).ask(topics.version_ranges("me")))


class Scripted(Peer):
    """A broker that responds with one error after the other."""

    def __init__(self, *errors: int) -> None:
        super().__init__(Broker("h", 9092))
        self._errors = list(errors)
        self.asked: list[Any] = []

    async def ask(self, request: Request[T]) -> T:
        api_key, version = request.api_key, request.version
        self.asked.append(decoded(REQUESTS[api_key], version, frame_of(request)))
        error = self._errors.pop(0) if self._errors else 0
        cls = RESPONSES[api_key]
        if api_key == LIST_OFFSETS:
            name, rows, array = "ListOffsetsTopicResponse", "ListOffsetsPartitionResponse", "topics"
            fields: dict[str, Any] = {"timestamp": -1, "offset": 40, "leader_epoch": 0}
        else:
            name, rows, array = "TopicProduceResponse", "PartitionProduceResponse", "responses"
            fields = {"base_offset": 0, "log_append_time_ms": -1, "log_start_offset": 0, "record_errors": []}
            fields["error_message"] = None
        index = "partition_index" if api_key == LIST_OFFSETS else "index"
        entry: Any = part(cls, version, rows, error_code=error, **{index: 3}, **fields)
        topic: Any = part(
            cls,
            version,
            name,
            **{"partitions" if api_key == LIST_OFFSETS else "partition_responses": [entry]},
        )
        topic.name = "t"
        return request.read(framed(cls[version](throttle_time_ms=0, **{array: [topic]})))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "AGAIN_SECONDS", 0)


@pytest.mark.usefixtures("at_once")
def test_broker_that_has_not_heard_of_its_topic_is_asked_again() -> None:
    peer = Scripted(3, 5, 6)
    assert asyncio.run(prepare.locate(peer, "t", [3])) == {3: 40}
    assert len(peer.asked) == 4
    peer = Scripted(6)
    asyncio.run(prepare.fill(peer, "t", 3, 10))
    assert len(peer.asked) == 2


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("errors", "shown"), [((29,), 29), ((3,) * 10_000, 3)])
def test_missing_first_offset_is_an_error(
    errors: tuple[int, ...], shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "LEADER_SECONDS_MAX", 0.05)
    with pytest.raises(
        TargetError, match=f"topic t: the first offset of partition 3 cannot be read: error {shown}"
    ):
        asyncio.run(prepare.locate(Scripted(*errors), "t", [3]))


@pytest.mark.parametrize(("size", "rest"), [(10, []), (3000, [1024] * 3), (640_000, [10_000] * 64)])
def test_partition_is_filled_from_a_small_batch_on(size: int, rest: list[int]) -> None:
    peer = Scripted()
    asyncio.run(prepare.fill(peer, "t", 3, size))
    sizes = [len(asked.topic_data[0].partition_data[0].records) for asked in peer.asked]
    assert sizes == [BATCH_BYTES_MIN, *rest]
    assert sum(sizes) >= size
