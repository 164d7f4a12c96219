"""Reassignments on the wire: what kafka-python writes we read, what we write it reads, and cut bytes are told."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.api import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
from protocol.errors import WireError
from protocol.messages import reassignments
from protocol.messages.reassignments import (
    AlterRequest,
    AlterResponse,
    Ongoing,
    Outcome,
    Reassignments,
    Stepping,
)
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, body_of, decoded, framed, messages

FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
VERSIONS = pytest.mark.parametrize("version", [0, 1])
ALTER = ALTER_PARTITION_REASSIGNMENTS
LIST = LIST_PARTITION_REASSIGNMENTS

INT32 = st.integers(-(2**31), 2**31 - 1)
BROKERS = st.lists(INT32, max_size=4).map(tuple)
PARTITIONS = st.tuples(st.text(max_size=5), INT32)
OUTCOMES = st.builds(Outcome, st.integers(-1, 200), st.none() | st.text(max_size=5))


def known(api_key: int, version: int) -> bool:
    return bool(version <= REQUESTS[api_key].max_version)


def targets(message: Any) -> list[tuple[tuple[str, int], tuple[int, ...] | None]]:
    return [
        ((topic.name, one.partition_index), None if one.replicas is None else tuple(one.replicas))
        for topic in message.topics
        for one in topic.partitions
    ]


@VERSIONS
@FEW
@given(data=st.data())
def test_alter_request_of_kafka_python_is_read(version: int, data: st.DataObject) -> None:
    if not known(ALTER, version):
        pytest.skip("kafka-python does not know it; Kafka's own classes judge it")
    message = data.draw(messages(REQUESTS[ALTER], version))
    frame = framed(message)
    start = body_of(frame, ALTER, version)
    found = reassignments.read_alter_request(frame, start, version)
    assert reassignments.read_head(frame, start, version) == found._replace(wanted=())
    assert found.timeout_ms == message.timeout_ms
    assert found.wanted == targets(message)
    for end in range(start, len(frame)):
        with pytest.raises(WireError):
            reassignments.read_alter_request(frame[:end], start, version)
    with pytest.raises(WireError):
        reassignments.read_alter_request(frame + b"\0", start, version)


@VERSIONS
@FEW
@given(
    asked=st.builds(
        AlterRequest, INT32, st.booleans(), st.lists(st.tuples(PARTITIONS, st.none() | BROKERS), max_size=4)
    )
)
def test_alter_request_is_read_by_kafka_python_and_by_us(version: int, asked: AlterRequest) -> None:
    frame = reassignments.request_frame(asked, version, 7, b"client")
    if known(ALTER, version):
        message = decoded(REQUESTS[ALTER], version, frame)
        assert message.timeout_ms == asked.timeout_ms
        assert targets(message) == asked.wanted
    again = reassignments.read_alter_request(frame, body_of(frame, ALTER, version), version)
    allowed = asked.allow_factor_change or version == 0
    assert again == asked._replace(allow_factor_change=allowed)


@VERSIONS
@FEW
@given(
    response=st.builds(
        AlterResponse, INT32, st.booleans(), OUTCOMES, st.lists(st.tuples(PARTITIONS, OUTCOMES), max_size=4)
    )
)
def test_alter_response_is_read_by_kafka_python_and_by_us(version: int, response: AlterResponse) -> None:
    frame = reassignments.write_alter_response(response, version, 7)
    if known(ALTER, version):
        message = decoded(RESPONSES[ALTER], version, frame)
        assert (message.error_code, message.error_message) == response.outcome
        assert response.partitions == [
            ((topic.name, one.partition_index), (one.error_code, one.error_message))
            for topic in message.responses
            for one in topic.partitions
        ]
    again = reassignments.read_alter_response(frame, version)
    allowed = response.allow_factor_change or version == 0
    assert again == response._replace(allow_factor_change=allowed)
    for end in range(len(frame)):
        with pytest.raises(WireError):
            reassignments.read_alter_response(frame[:end], version)


@FEW
@given(data=st.data())
def test_list_request_of_kafka_python_is_read(data: st.DataObject) -> None:
    message = data.draw(messages(REQUESTS[LIST], 0))
    frame = framed(message)
    start = body_of(frame, LIST, 0)
    expected = None
    if message.topics is not None:
        expected = {(one.name, index) for one in message.topics for index in one.partition_indexes}
    assert reassignments.read_list_request(frame, start).partitions == expected
    for end in range(start, len(frame)):
        with pytest.raises(WireError):
            reassignments.read_list_request(frame[:end], start)


FOUND = st.builds(
    Reassignments,
    INT32,
    st.integers(-1, 200),
    st.none() | st.text(max_size=5),
    st.dictionaries(PARTITIONS, st.builds(Ongoing, BROKERS, BROKERS, BROKERS), max_size=4),
)


@FEW
@given(found=FOUND)
def test_list_response_is_read_by_kafka_python_and_by_us(found: Reassignments) -> None:
    frame = reassignments.write_list_response(found, 7)
    message = decoded(RESPONSES[LIST], 0, frame)
    assert (message.error_code, message.error_message) == (found.error_code, found.error_message)
    assert found.ongoing == {
        (topic.name, one.partition_index): (
            tuple(one.replicas),
            tuple(one.adding_replicas),
            tuple(one.removing_replicas),
        )
        for topic in message.topics
        for one in topic.partitions
    }
    assert reassignments.read_list_response(frame) == found
    for end in range(len(frame)):
        with pytest.raises(WireError):
            reassignments.read_list_response(frame[:end])


@FEW
@given(found=FOUND, batch=st.dictionaries(PARTITIONS, st.builds(Stepping, BROKERS, BROKERS), max_size=4))
def test_batch_of_version_1_follows_what_version_0_has(
    found: Reassignments, batch: dict[tuple[str, int], Stepping]
) -> None:
    frame = reassignments.write_list_response(found, 7, batch)
    assert reassignments.read_batch(frame) == (found, batch)
    assert reassignments.read_list_response(frame) == found
    for end in range(len(frame)):
        with pytest.raises(WireError):
            reassignments.read_batch(frame[:end])


@pytest.mark.parametrize("size", [126, 127, 200])
def test_list_response_may_name_many_brokers(size: int) -> None:
    """From 127 on a length needs two bytes."""
    many = tuple(range(size))
    found = Reassignments(0, 0, None, {("t", 1): Ongoing(many, (1,), ()), ("t", 2): Ongoing((1,), (), many)})
    assert reassignments.read_list_response(reassignments.write_list_response(found, 1)) == found


@FEW
@given(garbage=st.binary(max_size=60))
def test_garbage_is_read_or_refused(garbage: bytes) -> None:
    for read in (
        lambda: reassignments.read_alter_request(garbage, 0, 1),
        lambda: reassignments.read_head(garbage, 0, 1),
        lambda: reassignments.read_alter_response(garbage, 1),
        lambda: reassignments.read_list_request(garbage, 0),
        lambda: reassignments.read_batch(garbage),
    ):
        with suppress(WireError):
            read()
