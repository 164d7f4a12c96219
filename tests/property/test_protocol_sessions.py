"""Fetch sessions against a broker that follows KIP-227 to the letter, and a client that does too.

The model knows nothing of merging: the broker applies what it is sent, the client what it says, and after every request
that reaches the broker both must agree on epoch and partitions.
"""

import uuid
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.api import FETCH
from protocol.messages import fetch
from protocol.messages.fetch_session import EPOCH_MAX, SessionTable
from tests.unit.protocol.kafka_frames import REQUESTS, body_of, decoded, framed, struct

FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
CLS: Final = REQUESTS[FETCH]
SESSION: Final = 4711
Partition: TypeAlias = tuple[int, int]

PARTITIONS: Final = st.tuples(st.integers(1, 3), st.integers(0, 3))
# (responded to locally, partitions named with an offset, partitions forgotten)
STEPS: Final = st.lists(
    st.tuples(
        st.booleans(),
        st.dictionaries(PARTITIONS, st.integers(0, 1000), max_size=4),
        st.sets(PARTITIONS, max_size=3),
    ),
    max_size=25,
)


def request(version: int, epoch: int, named: dict[Partition, int], forgotten: set[Partition]) -> bytes:
    topics = {topic: [p for t, p in named if t == topic] for topic, _ in named}
    dropped = {topic: [p for t, p in forgotten if t == topic] for topic, _ in forgotten}

    def entry(kind: str, topic: int, partitions: list[Any]) -> Any:
        number = uuid.UUID(int=topic)
        return struct(CLS, version, kind, topic=f"t{topic}", topic_id=number, partitions=partitions)

    def partition(topic: int, index: int) -> Any:
        return struct(CLS, version, "FetchPartition", partition=index, fetch_offset=named[topic, index])

    message = CLS(
        version=version, max_wait_ms=500, session_id=SESSION, session_epoch=epoch, rack_id="rack",
        topics=[entry("FetchTopic", topic, [partition(topic, p) for p in ps]) for topic, ps in topics.items()],
        forgotten_topics_data=[entry("ForgottenTopic", topic, sorted(ps)) for topic, ps in dropped.items()],
    )  # fmt: skip
    return framed(message)


class Broker:
    """A session as KIP-227 has it: additions and updates first, then what is forgotten."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.partitions: dict[Partition, int] = {}

    def take(self, version: int, frame: bytes) -> None:
        message = decoded(CLS, version, frame)
        assert (message.session_id, message.session_epoch) == (SESSION, self.epoch)
        assert (message.max_wait_ms, message.rack_id) == (500, "rack" if version >= 11 else "")
        for topic in message.topics:
            for entry in topic.partitions:
                self.partitions[_number(topic), entry.partition] = entry.fetch_offset
        for topic in message.forgotten_topics_data:
            for partition in topic.partitions:
                self.partitions.pop((_number(topic), partition), None)
        self.epoch = self.epoch % EPOCH_MAX + 1


def _number(topic: Any) -> int:
    return topic.topic_id.int if topic.topic_id else int(topic.topic[1:])


@pytest.mark.parametrize("version", [7, 9, 11, 12, 13, 17, 18])
@FEW
@given(steps=STEPS, epoch=st.sampled_from([1, 5, EPOCH_MAX - 2, EPOCH_MAX]))
def test_broker_and_client_never_disagree(
    version: int, steps: list[tuple[bool, dict[Partition, int], set[Partition]]], epoch: int
) -> None:
    table = SessionTable(10)
    broker = Broker(epoch)
    client: dict[Partition, int] = {}
    for local, named, forgotten in [*steps, (False, {}, set())]:
        frame = request(version, epoch, named, forgotten)
        body = body_of(frame, FETCH, version)
        fields = fetch.read_request(frame, body, len(frame), version)
        assert fields is not None
        client.update(named)
        for partition in forgotten:
            client.pop(partition, None)
        if local:
            assert table.respond_locally("b", fields, frame, body, version, 0) == SESSION
        else:
            known = table.is_shifted("b", SESSION)
            sent = table.forward("b", fields, frame, body, version, 0)
            assert (sent is not None) == known
            broker.take(version, frame if sent is None else sent)
            assert broker.partitions == client
        epoch = epoch % EPOCH_MAX + 1
