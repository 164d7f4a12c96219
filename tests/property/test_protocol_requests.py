"""What we read of requests, and the Fetch requests we write, against kafka-python."""

import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import header
from protocol.api import FETCH, JOIN_GROUP, PRODUCE
from protocol.messages import fetch, groups, produce
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, body_of, decoded, framed, messages

FEW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
CLIENT_IDS = st.text(max_size=8)


@pytest.mark.parametrize("api_key", sorted(REQUESTS))
@settings(FEW, max_examples=2)
@given(data=st.data(), client_id=CLIENT_IDS)
def test_header_ends_where_the_body_begins(api_key: int, data: st.DataObject, client_id: str) -> None:
    for version in range(REQUESTS[api_key].max_version + 1):
        message = data.draw(messages(REQUESTS[api_key], version))
        frame = framed(message, client_id=client_id)
        body = len(message.encode())
        assert header.body_start(frame, 0, len(frame), api_key, version) == len(frame) - body
        assert header.client_id(frame, 0, len(frame)) == client_id
        for end in range(len(frame) - body):
            assert header.body_start(frame, 0, end, api_key, version) is None
        assert header.REQUEST_HEAD.unpack_from(frame)[:4] == (len(frame) - 4, api_key, version, 7)


@pytest.mark.parametrize("version", range(19))
@FEW
@given(data=st.data())
def test_fetch_scalars_are_those_kafka_python_wrote(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(REQUESTS[FETCH], version))
    frame = framed(message)
    body = body_of(frame, FETCH, version)
    fields = fetch.read_request(frame, body, len(frame), version)
    assert fields is not None
    if version >= 15:
        assert fields.replica_id == -1
        assert fetch.replica_id(frame, body, version) == message.replica_state.replica_id
    else:
        assert fields.replica_id == message.replica_id
    assert (fields.max_wait_ms, fields.min_bytes) == (message.max_wait_ms, message.min_bytes)
    assert fields.max_bytes == (message.max_bytes if version >= 3 else 2**31 - 1)
    session = (message.session_id, message.session_epoch) if version >= 7 else (0, -1)
    assert (fields.session_id, fields.session_epoch) == session
    changed = bytearray(frame)
    if version >= 3:
        changed[fields.max_bytes_at : fields.max_bytes_at + 4] = (77).to_bytes(4, "big")
        message.max_bytes = 77
    if version >= 7:
        changed[fields.session_epoch_at : fields.session_epoch_at + 4] = (78).to_bytes(4, "big")
        message.session_epoch = 78
    assert bytes(changed) == framed(message)


@pytest.mark.parametrize("version", range(19))
@FEW
@given(data=st.data())
def test_fetch_scalars_wait_for_their_last_byte(version: int, data: st.DataObject) -> None:
    frame = framed(data.draw(messages(REQUESTS[FETCH], version)))
    body = body_of(frame, FETCH, version)
    whole = fetch.read_request(frame, body, len(frame), version)
    assert whole is not None
    for end in range(body, len(frame)):
        part = fetch.read_request(frame, body, end, version)
        if part is not None:
            assert part == whole


@pytest.mark.parametrize("version", range(7, 19))
@FEW
@given(data=st.data(), epoch=st.integers(0, 2**31 - 1))
def test_fetch_request_encodes_as_it_was_read(version: int, data: st.DataObject, epoch: int) -> None:
    message = data.draw(messages(REQUESTS[FETCH], version))
    for number, topic in enumerate(message.topics + message.forgotten_topics_data):
        _name_apart(topic, number)
    message.topics = [topic for topic in message.topics if topic.partitions]
    message.forgotten_topics_data = [topic for topic in message.forgotten_topics_data if topic.partitions]
    for topic in message.topics:
        # A partition is named once.
        topic.partitions = list({entry.partition: entry for entry in topic.partitions}.values())
    frame = framed(message)
    body = body_of(frame, FETCH, version)
    partitions, forgotten = fetch.full_topics(frame, body, version)
    assert fetch.encode_request(frame, body, version, message.session_epoch, partitions, forgotten) == frame
    message.topics, message.forgotten_topics_data, message.session_epoch = [], [], epoch
    assert fetch.encode_request(frame, body, version, epoch, {}, []) == framed(message)


def _name_apart(topic: Any, number: int) -> None:
    topic.topic = f"{number}{topic.topic}"
    topic.topic_id = uuid.UUID(int=number)


@pytest.mark.parametrize("version", range(19))
@FEW
@given(correlation_id=st.integers(-(2**31), 2**31 - 1), session_id=st.integers(0, 2**31 - 1))
def test_empty_fetch_response_is_kafka_pythons(version: int, correlation_id: int, session_id: int) -> None:
    message = RESPONSES[FETCH](version=version, throttle_time_ms=9, session_id=session_id, responses=[])
    response = fetch.empty_response(version, correlation_id, session_id, 9)
    assert response == framed(message, correlation_id=correlation_id)
    assert decoded(RESPONSES[FETCH], version, response).responses == []


@pytest.mark.parametrize("version", range(14))
@FEW
@given(data=st.data(), size=st.sampled_from([0, 1, 5, 125, 126, 127, 200, 16383]))
def test_produce_acks_are_read_as_soon_as_they_are_there(
    version: int, data: st.DataObject, size: int
) -> None:
    message = data.draw(
        messages(REQUESTS[PRODUCE], version, transactional_id=st.none() | st.just("t" * size))
    )
    frame = framed(message)
    body = body_of(frame, PRODUCE, version)
    seen = [produce.acks(frame, body, end, version) for end in range(body, len(frame) + 1)]
    first = seen.index(message.acks)
    assert seen == [None] * first + [message.acks] * (len(seen) - first)
    # The id and its length come before, a timeout of four bytes and the topics after.
    text = 0 if message.transactional_id is None else len(message.transactional_id)
    assert first <= 2 + (0 if version < 3 else 3 + text)


@pytest.mark.parametrize("version", range(10))
@FEW
@given(data=st.data(), timeout_ms=st.integers(1, 2**31 - 1))
def test_join_group_names_its_session_timeout(version: int, data: st.DataObject, timeout_ms: int) -> None:
    message = data.draw(messages(REQUESTS[JOIN_GROUP], version, session_timeout_ms=st.just(timeout_ms)))
    frame = framed(message)
    body = body_of(frame, JOIN_GROUP, version)
    assert groups.session_timeout_ms(frame, body, len(frame), version) == timeout_ms
