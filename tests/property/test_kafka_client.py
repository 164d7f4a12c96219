"""Sluice's own requests: what arbitrary responses become, and that garbage is refused."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_client import Request, metadata, topics
from protocol.api import ELECT_LEADERS, METADATA
from protocol.errors import WireError
from tests.support.own_requests import frame_of
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, decoded, framed, messages

FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
INT32 = st.integers(-(2**31), 2**31 - 1)
PARTITIONS = st.tuples(st.text(max_size=5), INT32)
EVERY: list[Request[Any]] = [
    metadata.brokers(),
    metadata.partitions([]),
    metadata.topics_by_id([]),
    metadata.registered_brokers(),
    metadata.describe_topics([], []),
    metadata.replica_sizes(),
    metadata.elect_preferred([], 1),
    topics.version_ranges("me"),
    topics.create_placed("a", []),
    topics.first_offsets("a", []),
]


@FEW
@given(partitions=st.lists(PARTITIONS, max_size=4, unique=True))
def test_election_is_asked_for_each_partition(partitions: list[tuple[str, int]]) -> None:
    request = metadata.elect_preferred(partitions, 5000)
    message = decoded(REQUESTS[ELECT_LEADERS], request.version, frame_of(request))
    assert (message.election_type, message.timeout_ms) == (0, 5000)
    named = [(one.topic, index) for one in message.topic_partitions for index in one.partitions]
    assert sorted(named) == sorted(partitions)


@FEW
@given(data=st.data())
def test_election_is_read(data: st.DataObject) -> None:
    request = metadata.elect_preferred([], 1)
    message = data.draw(messages(RESPONSES[ELECT_LEADERS], request.version))
    frame = framed(message)
    error_code, found = request.read(frame)
    assert error_code == message.error_code
    assert set(found) == {
        (one.topic, partition.partition_id)
        for one in message.replica_election_results
        for partition in one.partition_result
    }
    for end in range(len(frame)):
        with pytest.raises(WireError):
            request.read(frame[:end])


@pytest.mark.parametrize("request_", [metadata.partitions([]), metadata.all_topics()], ids=["some", "all"])
@FEW
@given(data=st.data())
def test_partitions_are_read(request_: Request[Any], data: st.DataObject) -> None:
    message = data.draw(messages(RESPONSES[METADATA], request_.version))
    found = request_.read(framed(message))
    assert found.live == {broker.node_id for broker in message.brokers}
    assert found.brokers == [(broker.node_id, broker.host, broker.port) for broker in message.brokers]
    for topic in message.topics:
        seen = found.topics[topic.name or ""]
        last = [one for one in message.topics if (one.name or "") == (topic.name or "")][-1]
        topic_id = getattr(last, "topic_id", None)
        assert (seen.error_code, seen.topic_id) == (
            last.error_code,
            topic_id.bytes if topic_id else bytes(16),
        )
        for partition in last.partitions:
            same = [one for one in last.partitions if one.partition_index == partition.partition_index][-1]
            expected = (same.leader_id, tuple(same.replica_nodes), tuple(same.isr_nodes))
            assert seen.partitions[partition.partition_index] == expected


@pytest.mark.parametrize("request_", EVERY, ids=lambda request: f"{request.api_key}v{request.version}")
@settings(max_examples=200, deadline=None)
@given(garbage=st.binary(max_size=60))
def test_garbage_is_read_or_refused(request_: Request[Any], garbage: bytes) -> None:
    try:
        request_.read(len(garbage).to_bytes(4, "big") + garbage)
    except WireError:
        return


@pytest.mark.parametrize("request_", EVERY, ids=lambda request: f"{request.api_key}v{request.version}")
@FEW
@given(data=st.data())
def test_changed_response_is_read_or_refused(request_: Request[Any], data: st.DataObject) -> None:
    message = data.draw(messages(RESPONSES[request_.api_key], request_.version))
    frame = bytearray(framed(message)[4:])
    for _ in range(20):
        at = data.draw(st.integers(4, len(frame)))
        frame[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        try:
            request_.read(len(frame).to_bytes(4, "big") + bytes(frame))
        except WireError:
            continue
