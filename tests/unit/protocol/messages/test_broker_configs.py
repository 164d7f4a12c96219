"""Brokers' configs without the addresses in them, as kafka-python writes and reads them."""

from collections.abc import Mapping
from typing import Any

import pytest

from protocol.api import DESCRIBE_CONFIGS
from protocol.errors import WireError
from protocol.messages.addresses import HIDDEN, configs_without_addresses, names_broker
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, Message, decoded, framed, struct

TOPIC, BROKER = 2, 4  # resource types
CLS = RESPONSES[DESCRIBE_CONFIGS]
VERSIONS = [1, 2, 3, 4]


def config(version: int, name: str, value: str | None) -> Message:
    synonym = struct(CLS, version, "DescribeConfigsSynonym", name=name, value=value, source=4)
    later: dict[str, Any] = {"config_type": 2, "documentation": "what it is"} if version >= 3 else {}
    made = struct(
        CLS, version, "DescribeConfigsResourceResult", value=value, read_only=True, config_source=4,
        is_sensitive=False, synonyms=[synonym, synonym], **later,
    )  # fmt: skip
    made.name = name
    return made


def answer(version: int, configs: Mapping[str, str | None]) -> bytes:
    entries = [config(version, name, value) for name, value in configs.items()]
    results = [
        struct(
            CLS, version, "DescribeConfigsResult", error_code=0, error_message=None, resource_type=kind,
            resource_name="1", configs=entries,
        )
        for kind in (BROKER, TOPIC)
    ]  # fmt: skip
    return framed(CLS[version](throttle_time_ms=7, results=results))


def shown(version: int, frame: bytes) -> list[tuple[str, str | None, bool, list[str | None]]]:
    results = decoded(CLS, version, frame).results
    assert len(results) == 2
    assert str(results[0].configs) == str(results[1].configs)
    return [
        (one.name, one.value, one.is_sensitive, [synonym.value for synonym in one.synonyms])
        for one in results[0].configs
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_addresses_are_marked_as_sensitive(version: int) -> None:
    before = answer(version, {"a": "b", "advertised.listeners": "PLAINTEXT://10.0.0.1:9092", "c": None})
    after = configs_without_addresses(before, version)
    assert b"10.0.0.1" not in after
    assert shown(version, after) == [
        ("a", "b", False, ["b", "b"]),
        ("advertised.listeners", None, True, [None, None]),
        ("c", None, False, [None, None]),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_config_that_holds_an_address_is_hidden(version: int) -> None:
    after = configs_without_addresses(answer(version, dict.fromkeys(HIDDEN, "10.0.0.1:9092")), version)
    assert b"10.0.0.1" not in after
    assert {name for name, *_ in shown(version, after)} == HIDDEN


@pytest.mark.parametrize("version", VERSIONS)
def test_configs_without_addresses_are_unchanged(version: int) -> None:
    before = answer(version, {"listener.name": "x", "log.dirs": "/data", "": None})
    assert configs_without_addresses(before, version) == before


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_response_is_refused(version: int) -> None:
    before = answer(version, {"a": "b"})
    with pytest.raises(WireError):
        configs_without_addresses(before[:-3], version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("named", "asks"),
    [([(TOPIC, "1")], False), ([(TOPIC, "a"), (BROKER, "1")], True), ([(BROKER, "")], False), ([], False)],
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
