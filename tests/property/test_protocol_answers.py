"""Whatever we change in a response equals decode, change, encode with kafka-python, for every version it knows."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import api, throttle
from protocol.messages import addresses, api_versions, metadata
from tests.unit.protocol.kafka_frames import (
    RESPONSES,
    decoded,
    framed,
    hide_odd,
    messages,
    rewrite_produce,
    versions,
)

FEW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
INT32 = st.integers(0, 2**31 - 1)


def version_of(api_key: int) -> list[int]:
    return [version for key, version in versions(RESPONSES) if key == api_key]


def test_table_agrees_with_kafka_python() -> None:
    for key, cls in RESPONSES.items():
        assert cls.__name__ == api.API_NAMES[key] + "Response"
        assert api.MAX_VERSION[key] >= cls.max_version
        for version in range(cls.max_version + 1):
            assert api.flexible(key, version) == cls.flexible_version_q(version), (key, version)
    assert api.FLEXIBLE_SINCE.keys() >= api.MAX_VERSION.keys()


@pytest.mark.parametrize("api_key", sorted(RESPONSES))
@settings(FEW, max_examples=3)
@given(data=st.data(), throttle_ms=INT32)
def test_patched_throttle_time_is_the_larger(api_key: int, data: st.DataObject, throttle_ms: int) -> None:
    cls = RESPONSES[api_key]
    fixed: dict[str, st.SearchStrategy[Any]] = (
        {"error_code": st.just(0)} if api_key == api.API_VERSIONS else {}
    )
    for version in version_of(api_key):
        frame = framed(data.draw(messages(cls, version, **fixed)))
        message = decoded(cls, version, frame)
        patched = bytearray(frame)
        has_field = any(
            field.name == "throttle_time_ms" and field.for_version_q(version) for field in cls._struct._fields
        )
        assert throttle.patch(patched, api_key, version, throttle_ms) is has_field
        if has_field:
            message.throttle_time_ms = max(message.throttle_time_ms, throttle_ms)
        assert bytes(patched) == framed(message), version


@pytest.mark.parametrize("version", version_of(api.METADATA))
@FEW
@given(data=st.data())
def test_metadata_has_our_addresses_and_the_rest_untouched(version: int, data: st.DataObject) -> None:
    frame = framed(data.draw(messages(RESPONSES[api.METADATA], version)))
    message = decoded(RESPONSES[api.METADATA], version, frame)
    message.brokers = [_moved(broker) for broker in message.brokers if broker.node_id % 2 == 0]
    consumed, head = metadata.rewrite_head(frame, version, hide_odd)
    assert head + frame[consumed:] == framed(message)


@pytest.mark.parametrize("version", version_of(api.METADATA))
@FEW
@given(data=st.data(), after=st.binary(max_size=9))
def test_metadata_head_waits_for_its_last_byte(version: int, data: st.DataObject, after: bytes) -> None:
    frame = framed(data.draw(messages(RESPONSES[api.METADATA], version)))
    whole = metadata.rewrite_head(frame, version, hide_odd)
    for visible in range(len(frame) + 1):
        part = metadata.rewrite_head(frame[:visible], version, hide_odd)
        assert part == (whole if visible >= whole[0] else (0, b""))
    assert metadata.rewrite_head(frame + after, version, hide_odd) == whole


@pytest.mark.parametrize("version", version_of(api.FIND_COORDINATOR))
@FEW
@given(data=st.data())
def test_find_coordinator_has_our_addresses(version: int, data: st.DataObject) -> None:
    frame = framed(data.draw(messages(RESPONSES[api.FIND_COORDINATOR], version)))
    message = decoded(RESPONSES[api.FIND_COORDINATOR], version, frame)
    for response in message.coordinators if version >= 4 else [message]:
        if response.error_code and response.node_id < 0:
            continue
        if response.node_id % 2:
            response.error_code = response.error_code or addresses.COORDINATOR_NOT_AVAILABLE
            response.node_id, response.host, response.port = -1, "", -1
        else:
            _moved(response)
    assert addresses.rewrite_find_coordinator(frame, version, hide_odd) == framed(message)


@pytest.mark.parametrize("version", version_of(api.DESCRIBE_CLUSTER))
@FEW
@given(data=st.data(), endpoint_type=st.sampled_from([1, 1, 1, 2]))
def test_describe_cluster_has_our_addresses(version: int, data: st.DataObject, endpoint_type: int) -> None:
    cls = RESPONSES[api.DESCRIBE_CLUSTER]
    frame = framed(data.draw(messages(cls, version, endpoint_type=st.just(endpoint_type))))
    message = decoded(cls, version, frame)
    brokers = message.brokers if version < 1 or endpoint_type == 1 else []
    message.brokers = [_moved(broker, "broker_id") for broker in brokers if broker.broker_id % 2 == 0]
    assert addresses.rewrite_describe_cluster(frame, version, hide_odd) == framed(message)


@pytest.mark.parametrize("version", version_of(api.API_VERSIONS))
@FEW
@given(data=st.data(), error_code=st.sampled_from([0, 35]))
def test_api_versions_are_cut(version: int, data: st.DataObject, error_code: int) -> None:
    cls = RESPONSES[api.API_VERSIONS]
    # A response to a version that the broker does not speak comes in version 0, whatever was asked.
    spoken = 0 if error_code == api_versions.UNSUPPORTED_VERSION else version
    frame = framed(data.draw(messages(cls, spoken, error_code=st.just(error_code))))
    message = decoded(cls, spoken, frame)
    for entry in message.api_keys:
        entry.max_version = min(entry.max_version, api.MAX_VERSION.get(entry.api_key, -1))
    message.api_keys = [entry for entry in message.api_keys if entry.min_version <= entry.max_version]
    assert api_versions.rewrite(frame, version) == framed(message)


@pytest.mark.parametrize("version", version_of(api.PRODUCE))
@FEW
@given(data=st.data(), throttle_ms=INT32, gateway=st.booleans())
def test_produce_has_our_addresses_and_the_larger_throttle_time(
    version: int, data: st.DataObject, throttle_ms: int, gateway: bool
) -> None:
    cls = RESPONSES[api.PRODUCE]
    frame = framed(data.draw(messages(cls, version)))
    message = decoded(cls, version, frame)
    message.throttle_time_ms = (
        max(message.throttle_time_ms, throttle_ms) if throttle_ms else message.throttle_time_ms
    )
    if gateway and version >= 10:
        message.node_endpoints = [_moved(node) for node in message.node_endpoints if node.node_id % 2 == 0]
    assert rewrite_produce(frame, version, hide_odd if gateway else None, throttle_ms) == framed(message)


def _moved(broker: Any, key: str = "node_id") -> Any:
    broker.host, broker.port = hide_odd(getattr(broker, key), "", 0) or ("", -1)
    return broker
