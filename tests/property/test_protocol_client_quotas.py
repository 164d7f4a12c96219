"""The quota API's messages: what kafka-python writes we read, what we write it reads, and cut bytes are told."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_client import quotas
from kafka_client.quotas import QuotaEntities
from protocol import header
from protocol.api import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from protocol.errors import WireError
from protocol.messages import client_quotas
from tests.support.quota_frames import alter_request, describe_request
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, body_of, decoded, framed, messages

FEW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
VERSIONS = pytest.mark.parametrize("version", [0, 1])
TEXTS = st.text(max_size=6)
NAMES = st.none() | TEXTS
PARTS = st.lists(st.tuples(TEXTS, NAMES), max_size=3).map(tuple)
VALUES = st.floats(allow_nan=False)


def parts_of(entity: Any) -> tuple[tuple[str, str | None], ...]:
    return tuple((part.entity_type, part.entity_name) for part in entity)


@VERSIONS
@FEW
@given(data=st.data())
def test_describe_request_of_kafka_python_is_read(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(REQUESTS[DESCRIBE_CLIENT_QUOTAS], version))
    frame = framed(message)
    start = body_of(frame, DESCRIBE_CLIENT_QUOTAS, version)
    components, strict = client_quotas.read_describe(frame, start, len(frame), version)
    assert components == [(one.entity_type, one.match_type, one.match) for one in message.components]
    assert strict == message.strict
    for end in range(start, len(frame)):
        with pytest.raises(WireError):
            client_quotas.read_describe(frame, start, end, version)
    with pytest.raises(WireError):
        client_quotas.read_describe(frame + b"\0", start, len(frame) + 1, version)


@VERSIONS
@FEW
@given(data=st.data())
def test_alter_request_of_kafka_python_is_read(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(REQUESTS[ALTER_CLIENT_QUOTAS], version))
    frame = framed(message)
    start = body_of(frame, ALTER_CLIENT_QUOTAS, version)
    request = client_quotas.AlterRequest(frame, start, len(frame), version)
    expected = [
        (parts_of(entry.entity), [(op.key, None if op.remove else repr(op.value)) for op in entry.ops])
        for entry in message.entries
    ]
    # As text: NaN is not equal to itself.
    found = [
        (parts, [(key, None if value is None else repr(value)) for key, value in ops])
        for parts, ops in request
    ]
    assert found == expected
    assert request.validate_only == message.validate_only
    for end in range(start, len(frame)):
        with pytest.raises(WireError):
            list(client_quotas.AlterRequest(frame, start, end, version))


@VERSIONS
@FEW
@given(entries=st.lists(st.tuples(PARTS, st.dictionaries(TEXTS, VALUES, max_size=3)), max_size=3))
def test_describe_response_is_read_by_kafka_python_and_by_us(
    version: int, entries: list[tuple[tuple[tuple[str, str | None], ...], dict[str, float]]]
) -> None:
    frame = client_quotas.describe_response(version, 7, iter(entries))
    message = decoded(RESPONSES[DESCRIBE_CLIENT_QUOTAS], version, frame)
    assert (message.throttle_time_ms, message.error_code, message.error_message) == (0, 0, None)
    assert [
        (parts_of(entry.entity), {value.key: value.value for value in entry.values})
        for entry in message.entries
    ] == entries
    response = QuotaEntities(version, frame)
    assert (response.error_code, response.error_message) == (0, None)
    assert list(response) == entries
    if entries:
        for end in range(len(frame)):
            with pytest.raises(WireError):
                list(QuotaEntities(version, frame[:end]))


@VERSIONS
def test_describe_error_has_no_entries(version: int) -> None:
    frame = client_quotas.describe_error(version, 7, 42, "no")
    message = decoded(RESPONSES[DESCRIBE_CLIENT_QUOTAS], version, frame)
    assert (message.error_code, message.error_message, message.entries) == (42, "no", None)
    response = QuotaEntities(version, frame)
    assert (response.error_code, response.error_message, list(response)) == (42, "no", [])


@VERSIONS
@FEW
@given(results=st.lists(st.tuples(PARTS, st.integers(-1, 100), NAMES), max_size=3))
def test_alter_response_is_read_by_kafka_python_and_by_us(
    version: int, results: list[tuple[tuple[tuple[str, str | None], ...], int, str | None]]
) -> None:
    frame = client_quotas.alter_response(version, 7, iter(results))
    message = decoded(RESPONSES[ALTER_CLIENT_QUOTAS], version, frame)
    found = [(parts_of(entry.entity), entry.error_code, entry.error_message) for entry in message.entries]
    assert found == results
    read = quotas.alter([], validate_only=False, version=version).read
    assert read(bytes(frame)) == results
    if results:
        for end in range(len(frame)):
            with pytest.raises(WireError):
                read(bytes(frame[:end]))


@VERSIONS
@FEW
@given(components=st.lists(st.tuples(TEXTS, st.integers(-128, 127), NAMES), max_size=3), strict=st.booleans())
def test_describe_request_of_ours_is_read(
    version: int, components: list[tuple[str, int, str | None]], strict: bool
) -> None:
    frame = describe_request(components, strict=strict, correlation_id=7, client_id="c", version=version)
    start = body_of(frame, DESCRIBE_CLIENT_QUOTAS, version)
    assert client_quotas.read_describe(frame, start, len(frame), version) == (components, strict)


@VERSIONS
@FEW
@given(
    alterations=st.lists(
        st.tuples(PARTS, st.lists(st.tuples(TEXTS, st.none() | VALUES), max_size=3).map(tuple)), max_size=3
    ),
    validate_only=st.booleans(),
)
def test_alter_request_of_ours_is_read(
    version: int,
    alterations: list[tuple[tuple[tuple[str, str | None], ...], tuple[tuple[str, float | None], ...]]],
    validate_only: bool,
) -> None:
    frame = alter_request(
        alterations, validate_only=validate_only, correlation_id=7, client_id="c", version=version
    )
    assert header.REQUEST_HEAD.unpack_from(frame)[:4] == (len(frame) - 4, ALTER_CLIENT_QUOTAS, version, 7)
    start = body_of(frame, ALTER_CLIENT_QUOTAS, version)
    request = client_quotas.AlterRequest(frame, start, len(frame), version)
    assert list(request) == alterations
    assert request.validate_only == validate_only


@VERSIONS
@FEW
@given(garbage=st.binary(max_size=60))
def test_garbage_is_read_or_refused(version: int, garbage: bytes) -> None:
    for read in (
        lambda: client_quotas.read_describe(garbage, 0, len(garbage), version),
        lambda: list(client_quotas.AlterRequest(garbage, 0, len(garbage), version)),
        lambda: list(QuotaEntities(version, garbage)),
    ):
        with suppress(WireError):
            read()
