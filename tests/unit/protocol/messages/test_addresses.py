"""The addresses of brokers in responses, by their bytes, and as kafka-python writes and reads them."""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from protocol.api import DESCRIBE_CONFIGS, DESCRIBE_QUORUM
from protocol.errors import MalformedFieldError, TruncatedError, WireError
from protocol.messages import addresses
from protocol.messages.addresses import (
    HIDDEN,
    configs_without_addresses,
    names_broker,
    quorum_without_addresses,
)
from protocol.primitives import uvarint_bytes
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, Message, decoded, framed, struct

# One broker: id 1, host "ab", port 9, rack "r", no tags.
BROKER = "00000001 03 6162 00000009 02 72 00"
ARRAY = bytes.fromhex("02" + BROKER)


def ours(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    assert (node_id, host, port) == (1, "ab", 9)
    return ("cd", 8)


def no_address(_node_id: int, _host: str, _port: int) -> None:
    return None


def test_endpoints_are_read_with_their_new_addresses() -> None:
    entries, pos = addresses.read_endpoints(ARRAY, 0, len(ARRAY), ours)
    assert entries == [addresses.Endpoint(1, "cd", 8, b"\x02r", b"\x00")]
    assert pos == len(ARRAY)
    assert addresses.endpoints_bytes(entries) == bytes.fromhex("02 00000001 03 6364 00000008 02 72 00")
    assert addresses.endpoints_bytes(entries, racks=False) == bytes.fromhex(
        "02 00000001 03 6364 00000008 00 00"
    )
    for end in range(len(ARRAY)):
        with pytest.raises(TruncatedError):
            addresses.read_endpoints(ARRAY, 0, end, ours)


def test_other_tags_and_the_bytes_behind_them_are_unchanged() -> None:
    # Tag 0 is the array, tag 5 is unknown; two bytes behind the section.
    section = bytes.fromhex("02 00 0f") + ARRAY + bytes.fromhex("05 01 aa" + "eeee")
    rewritten = addresses.rewrite_tags(section, 0, len(section), ours)
    assert rewritten == bytes.fromhex("02 00 0f 02 00000001 03 6364 00000008 02 72 00" + "05 01 aa" + "eeee")
    assert addresses.fit_tags(section, 0, len(section), ours) == rewritten


def test_endpoints_without_brokers_are_left_out() -> None:
    section = bytes.fromhex("02 00 0f") + ARRAY + bytes.fromhex("05 01 aa")
    assert addresses.rewrite_tags(section, 0, len(section), no_address) == bytes.fromhex("01 05 01 aa")


def test_tags_without_endpoints_are_unchanged() -> None:
    section = bytes.fromhex("01 05 01 aa")
    assert addresses.rewrite_tags(section, 0, len(section), no_address) is None
    assert addresses.fit_tags(section, 0, len(section), no_address) is None


def test_shorter_array_before_the_tags_is_padded_by_a_tag() -> None:
    tail = ARRAY + b"\x00"
    # No broker is named: the array is empty, and 14 bytes are padding: one field, tag 127, 12 zeros.
    assert addresses.fit_array(tail, 0, len(tail), no_address) == bytes.fromhex("01 01 7f 0c") + bytes(12)
    assert addresses.fit_array(b"\x01\x00", 0, 2, no_address) is None


@pytest.mark.parametrize("size", [*range(120, 140), 16380, 16385, 16390, 16400])
def test_padding_gives_the_old_length_for_every_host_length(size: int) -> None:
    host = b"h" * size
    array = b"\x02" + bytes(4) + uvarint_bytes(size + 1) + host + bytes(6)
    section = b"\x01\x00" + uvarint_bytes(len(array)) + array
    fitted = addresses.fit_tags(section, 0, len(section), lambda *_: ("x", 1))
    assert fitted is not None
    assert len(fitted) == len(section)


def test_too_many_tags_are_malformed() -> None:
    section = b"\x7f" + b"\x05\x00" * 127
    with pytest.raises(MalformedFieldError):
        addresses.rewrite_tags(section, 0, len(section), no_address)


def _asked_of_nobody(_node_id: int, _host: str, _port: int) -> None:
    raise AssertionError("more endpoints than are rewritten are not looked at")


@pytest.mark.parametrize("count", [addresses.FITTED_MAX, addresses.FITTED_MAX + 1])
def test_more_endpoints_than_are_rewritten_are_left_out(count: int) -> None:
    array = uvarint_bytes(count + 1) + bytes.fromhex(BROKER) * count
    section = b"\x02\x00" + uvarint_bytes(len(array)) + array + bytes.fromhex("05 01 aa")
    tail = array + bytes.fromhex("01 05 01 aa")
    few = count <= addresses.FITTED_MAX
    address_map = ours if few else _asked_of_nobody
    fitted = addresses.fit_tags(section, 0, len(section), address_map)
    shared = addresses.fit_array(tail, 0, len(tail), address_map)
    assert fitted is not None
    assert shared is not None
    assert (len(fitted), len(shared)) == (len(section), len(tail))
    if few:
        assert (fitted.count(b"cd"), shared.count(b"cd")) == (count, count)
    else:
        assert fitted[:4] == bytes.fromhex("02 05 01 aa")
        assert shared[:5] == bytes.fromhex("01 02 05 01 aa")


QUORUM = RESPONSES[DESCRIBE_QUORUM]
VERSION = 2


def quorum(host: str | None) -> bytes:
    replica = struct(
        QUORUM, VERSION, "ReplicaState", replica_id=1, replica_directory_id=uuid.UUID(int=5), log_end_offset=9,
        last_fetch_timestamp=8, last_caught_up_timestamp=7,
    )  # fmt: skip
    partition = struct(
        QUORUM, VERSION, "PartitionData", partition_index=0, error_code=0, error_message=None, leader_id=1,
        leader_epoch=2, high_watermark=3, current_voters=[replica, replica], observers=[replica],
    )  # fmt: skip
    topic = struct(QUORUM, VERSION, "TopicData", topic_name="__cluster_metadata", partitions=[partition])
    listeners = []
    if host is not None:
        listener = struct(QUORUM, VERSION, "Listener", host=host, port=9093)
        listener.name = "CONTROLLER"
        listeners = [listener, listener]
    nodes = [struct(QUORUM, VERSION, "Node", node_id=node, listeners=listeners) for node in (1, 2)]
    return framed(QUORUM[VERSION](error_code=0, error_message=None, topics=[topic], nodes=nodes))


def test_voters_keep_all_but_their_listeners() -> None:
    after = quorum_without_addresses(quorum("10.0.0.1"), VERSION)
    assert after == quorum(None)
    assert [node.node_id for node in decoded(QUORUM, VERSION, after).nodes] == [1, 2]


def test_truncated_quorum_is_refused() -> None:
    with pytest.raises(WireError):
        quorum_without_addresses(quorum("10.0.0.1")[:-3], VERSION)


OF_TOPIC, OF_BROKER = 2, 4  # resource types
CONFIGS = RESPONSES[DESCRIBE_CONFIGS]
VERSIONS = [1, 2, 3, 4]


def config(version: int, name: str, value: str | None) -> Message:
    synonym = struct(CONFIGS, version, "DescribeConfigsSynonym", name=name, value=value, source=4)
    later: dict[str, Any] = {"config_type": 2, "documentation": "what it is"} if version >= 3 else {}
    made = struct(
        CONFIGS, version, "DescribeConfigsResourceResult", value=value, read_only=True, config_source=4,
        is_sensitive=False, synonyms=[synonym, synonym], **later,
    )  # fmt: skip
    made.name = name
    return made


def config_response(version: int, configs: Mapping[str, str | None]) -> bytes:
    entries = [config(version, name, value) for name, value in configs.items()]
    results = [
        struct(
            CONFIGS, version, "DescribeConfigsResult", error_code=0, error_message=None, resource_type=kind,
            resource_name="1", configs=entries,
        )
        for kind in (OF_BROKER, OF_TOPIC)
    ]  # fmt: skip
    return framed(CONFIGS[version](throttle_time_ms=7, results=results))


def shown(version: int, frame: bytes) -> list[tuple[str, str | None, bool, list[str | None]]]:
    results = decoded(CONFIGS, version, frame).results
    assert len(results) == 2
    assert str(results[0].configs) == str(results[1].configs)
    return [
        (one.name, one.value, one.is_sensitive, [synonym.value for synonym in one.synonyms])
        for one in results[0].configs
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_addresses_are_marked_as_sensitive(version: int) -> None:
    before = config_response(
        version, {"a": "b", "advertised.listeners": "PLAINTEXT://10.0.0.1:9092", "c": None}
    )
    after = configs_without_addresses(before, version)
    assert b"10.0.0.1" not in after
    assert shown(version, after) == [
        ("a", "b", False, ["b", "b"]),
        ("advertised.listeners", None, True, [None, None]),
        ("c", None, False, [None, None]),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_config_that_holds_an_address_is_hidden(version: int) -> None:
    after = configs_without_addresses(
        config_response(version, dict.fromkeys(HIDDEN, "10.0.0.1:9092")), version
    )
    assert b"10.0.0.1" not in after
    assert {name for name, *_ in shown(version, after)} == HIDDEN


@pytest.mark.parametrize("version", VERSIONS)
def test_configs_without_addresses_are_unchanged(version: int) -> None:
    before = config_response(version, {"listener.name": "x", "log.dirs": "/data", "": None})
    assert configs_without_addresses(before, version) == before


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_configs_are_refused(version: int) -> None:
    before = config_response(version, {"a": "b"})
    with pytest.raises(WireError):
        configs_without_addresses(before[:-3], version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("named", "asks"),
    [
        ([(OF_TOPIC, "1")], False),
        ([(OF_TOPIC, "a"), (OF_BROKER, "1")], True),
        ([(OF_BROKER, "")], False),
        ([], False),
    ],
)
def test_request_that_names_a_broker_is_recognized(
    version: int, named: list[tuple[int, str]], asks: bool
) -> None:
    cls = REQUESTS[DESCRIBE_CONFIGS]
    resources = [
        struct(
            cls, version, "DescribeConfigsResource", resource_type=kind, resource_name=name,
            configuration_keys=keys,
        )
        for kind, name in named
        for keys in (["x", "y"], None)
    ]  # fmt: skip
    frame = framed(cls[version](resources=resources), client_id="a")
    body = 15 + (version >= 4)
    assert names_broker(frame, body, version) is asks
