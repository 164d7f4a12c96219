"""Topic mutations as we read, cut and respond to them, against kafka-python: decode, change, encode (KIP-599)."""

import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, MAX_VERSION, METADATA
from protocol.errors import WireError
from protocol.messages import metadata, topic_mutations
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, body_of, decoded, framed, messages

FEW = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
APIS = (CREATE_TOPICS, CREATE_PARTITIONS, DELETE_TOPICS)
EVERY = [(api_key, version) for api_key in APIS for version in range(MAX_VERSION[api_key] + 1)]
NO_ID = uuid.UUID(int=0)


def topics_of(message: Any, api_key: int, version: int) -> list[Any]:
    by_name = api_key == DELETE_TOPICS and version < 6
    return list(message.topic_names if by_name else message.topics)


def name_of(topic: Any) -> str | None:
    return topic if isinstance(topic, str) else topic.name


def read(frame: bytes, api_key: int, version: int) -> topic_mutations.MutationRequest:
    body = body_of(frame, api_key, version)
    return topic_mutations.read_request(frame, body, api_key, version)


@pytest.mark.parametrize(("api_key", "version"), EVERY)
@FEW
@given(data=st.data())
def test_request_is_what_kafka_python_wrote(api_key: int, version: int, data: st.DataObject) -> None:
    message = data.draw(messages(REQUESTS[api_key], version))
    found = read(framed(message), api_key, version)
    theirs = topics_of(message, api_key, version)
    assert [topic.name for topic in found.topics] == [name_of(topic) for topic in theirs]
    assert found.timeout_ms == message.timeout_ms
    knows = api_key == CREATE_PARTITIONS or (api_key == CREATE_TOPICS and version >= 1)
    assert found.validate_only == (message.validate_only if knows else False)
    for ours, topic in zip(found.topics, theirs, strict=True):
        if api_key == CREATE_TOPICS:
            assert ours.partitions == (len(topic.assignments) or topic.num_partitions)
        elif api_key == CREATE_PARTITIONS:
            assert ours.partitions == topic.count
        if api_key == DELETE_TOPICS and version >= 6:
            assert ours.topic_id == topic.topic_id.bytes


@pytest.mark.parametrize(("api_key", "version"), EVERY)
@FEW
@given(data=st.data())
def test_request_without_topics_is_kafka_pythons(api_key: int, version: int, data: st.DataObject) -> None:
    message = data.draw(messages(REQUESTS[api_key], version))
    frame = framed(message)
    found = read(frame, api_key, version)
    keep = data.draw(st.lists(st.booleans(), min_size=len(found.topics), max_size=len(found.topics)))
    kept = [topic for topic, stays in zip(found.topics, keep, strict=True) if stays]
    ours = topic_mutations.keep_topics(frame, found, kept, api_key, version)
    theirs = [topic for topic, stays in zip(topics_of(message, api_key, version), keep, strict=True) if stays]
    if api_key == DELETE_TOPICS and version < 6:
        message.topic_names = theirs
    else:
        message.topics = theirs
    assert ours == framed(message)


@pytest.mark.parametrize(("api_key", "version"), EVERY)
@settings(FEW, max_examples=2)
@given(data=st.data())
def test_request_that_is_cut_off_is_an_error(api_key: int, version: int, data: st.DataObject) -> None:
    frame = framed(data.draw(messages(REQUESTS[api_key], version)))
    body = body_of(frame, api_key, version)
    for end in range(body, len(frame)):
        with pytest.raises(WireError):
            topic_mutations.read_request(frame[:end], body, api_key, version)


def responded(message: Any, api_key: int) -> Any:
    field = {CREATE_TOPICS: "topics", CREATE_PARTITIONS: "results", DELETE_TOPICS: "responses"}[api_key]
    return getattr(message, field)


@pytest.mark.parametrize(("api_key", "version"), EVERY)
@FEW
@given(data=st.data())
def test_response_is_what_kafka_python_wrote(api_key: int, version: int, data: st.DataObject) -> None:
    message = data.draw(messages(RESPONSES[api_key], version))
    frame = framed(message)
    found = topic_mutations.read_response(frame, api_key, version)
    theirs = responded(message, api_key)
    assert [(topic.name, topic.error_code) for topic in found.topics] == [
        (topic.name, topic.error_code) for topic in theirs
    ]
    if api_key == CREATE_TOPICS and version >= 5:
        assert [topic.partitions for topic in found.topics] == [topic.num_partitions for topic in theirs]
    told = -1 if found.throttle_at < 0 else int.from_bytes(frame[found.throttle_at :][:4], "big", signed=True)
    has_time = version >= {CREATE_TOPICS: 2, CREATE_PARTITIONS: 0, DELETE_TOPICS: 1}[api_key]
    assert told == (message.throttle_time_ms if has_time else -1)


@pytest.mark.parametrize(("api_key", "version"), EVERY)
@FEW
@given(data=st.data(), throttle_ms=st.integers(0, 2**31 - 1))
def test_local_response_says_error_89_for_every_topic(
    api_key: int, version: int, data: st.DataObject, throttle_ms: int
) -> None:
    topics = read(framed(data.draw(messages(REQUESTS[api_key], version))), api_key, version).topics
    frame = topic_mutations.local_response(topics, api_key, version, 77, throttle_ms)
    message = decoded(RESPONSES[api_key], version, frame)
    assert framed(message, correlation_id=77) == frame
    assert [(topic.name, topic.error_code) for topic in responded(message, api_key)] == [
        (topic.name, 89) for topic in topics
    ]
    for topic in responded(message, api_key):
        if version >= {CREATE_TOPICS: 1, CREATE_PARTITIONS: 0, DELETE_TOPICS: 5}[api_key]:
            assert topic.error_message == "The throttling quota has been exceeded."
        if api_key == CREATE_TOPICS and version >= 5:
            assert (topic.num_partitions, topic.replication_factor, topic.configs) == (-1, -1, [])


@pytest.mark.parametrize(
    ("api_key", "version"), [(CREATE_TOPICS, 7), (CREATE_PARTITIONS, 3), (DELETE_TOPICS, 6)]
)
@FEW
@given(data=st.data())
def test_merged_response_is_in_the_requests_order(api_key: int, version: int, data: st.DataObject) -> None:
    request = data.draw(messages(REQUESTS[api_key], version))
    for number, topic in enumerate(request.topics):
        topic.name = f"topic-{number}"
        if api_key == DELETE_TOPICS and number % 2:
            topic.name, topic.topic_id = None, uuid.UUID(int=number)
        elif api_key == DELETE_TOPICS:
            topic.topic_id = NO_ID
    topics = read(framed(request), api_key, version).topics
    rejected = {index for index in range(len(topics)) if data.draw(st.booleans())}
    response = data.draw(messages(RESPONSES[api_key], version))
    drawn = dict(enumerate(responded(response, api_key)))
    entries = []
    for index in range(len(topics)):
        if index in rejected or index not in drawn:
            continue
        entry = drawn[index]
        # A broker tells both the name and the id of a topic it knows.
        entry.name = f"topic-{index}"
        if api_key != CREATE_PARTITIONS:
            entry.topic_id = uuid.UUID(int=index or 1000)
        entries.append((index, entry))
    shuffled = data.draw(st.permutations(entries))
    field = {CREATE_TOPICS: "topics", CREATE_PARTITIONS: "results", DELETE_TOPICS: "responses"}[api_key]
    setattr(response, field, [entry for _, entry in shuffled])
    frame = framed(response)
    found = topic_mutations.read_response(frame, api_key, version)
    became = topic_mutations.match_results(found, topics)
    ordered = [
        topic_mutations.rejected_entry(topic, api_key, version) if index in rejected else became[index]
        for index, topic in enumerate(topics)
    ]
    merged = topic_mutations.merged_response(frame, found, ordered, compact=True)
    message = decoded(RESPONSES[api_key], version, merged)
    assert framed(message) == merged
    expected = sorted([index for index, _ in entries] + list(rejected))
    codes = [89 if index in rejected else drawn[index].error_code for index in expected]
    assert [topic.error_code for topic in responded(message, api_key)] == codes
    names = [topics[index].name if index in rejected else f"topic-{index}" for index in expected]
    assert [topic.name for topic in responded(message, api_key)] == names


@pytest.mark.parametrize("version", range(14))
@FEW
@given(data=st.data())
def test_metadata_topics_are_what_kafka_python_wrote(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(RESPONSES[METADATA], version))
    seen = metadata.read_topics(framed(message), version)
    assert [(topic.error_code, topic.name, topic.partitions) for topic in seen] == [
        (topic.error_code, topic.name, len(topic.partitions)) for topic in message.topics
    ]
    if version >= 10:
        assert [topic.topic_id for topic in seen] == [topic.topic_id.bytes for topic in message.topics]


@pytest.mark.parametrize("version", range(14))
@FEW
@given(data=st.data())
def test_metadata_request_is_what_kafka_python_wrote(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(REQUESTS[METADATA], version))
    frame = framed(message)
    body = body_of(frame, METADATA, version)
    asked = metadata.read_request(frame, body, version)
    names = tuple(topic.name for topic in message.topics or () if topic.name is not None)
    assert asked.names == names
    if version < 4:
        assert (asked.creates, asked.creates_at) == (bool(names), -1)
        return
    assert asked.creates == message.allow_auto_topic_creation
    changed = bytearray(frame)
    changed[asked.creates_at] = 0
    message.allow_auto_topic_creation = False
    assert bytes(changed) == framed(message)


@FEW
@given(names=st.lists(st.text(max_size=8), max_size=4), client_id=st.text(max_size=8))
def test_question_by_name_is_kafka_pythons(names: list[str], client_id: str) -> None:
    frame = metadata.request_by_name(names, 7, client_id.encode())
    message = decoded(REQUESTS[METADATA], 4, frame)
    assert ([topic.name for topic in message.topics], message.allow_auto_topic_creation) == (names, False)
    assert framed(message, client_id=client_id) == frame


@FEW
@given(ids=st.lists(st.integers(1, 2**128 - 1), max_size=4), client_id=st.text(max_size=8))
def test_question_by_id_is_kafka_pythons(ids: list[int], client_id: str) -> None:
    wanted = [uuid.UUID(int=number) for number in ids]
    frame = metadata.request_by_id([topic_id.bytes for topic_id in wanted], 7, client_id.encode())
    message = decoded(REQUESTS[METADATA], 12, frame)
    assert [(topic.name, topic.topic_id) for topic in message.topics] == [
        (None, topic_id) for topic_id in wanted
    ]
    assert message.allow_auto_topic_creation is False
    assert framed(message, client_id=client_id) == frame
