"""DescribeConfigs and DescribeQuorum as dialogues: a gateway tells no broker's address, a sidecar changes nothing."""

import pytest

from protocol.api import DESCRIBE_CONFIGS, DESCRIBE_QUORUM
from protocol.messages.addresses import configs_without_addresses
from tests.support.frames import request
from tests.support.playbook import Drop, Ends, Insert, Pass, Playbook, channel_machine
from tests.unit.protocol.kafka_frames import REQUESTS, framed, struct
from tests.unit.protocol.messages import test_broker_configs, test_describe_quorum

TOPIC, BROKER = 2, 4  # resource types
TOLD = {"listeners": "PLAINTEXT://10.0.0.1:9092", "log.dirs": "/data"}


def asked(kind: int, version: int = 4) -> bytes:
    resource = struct(
        REQUESTS[DESCRIBE_CONFIGS], version, "DescribeConfigsResource", resource_type=kind, resource_name="1",
        configuration_keys=None,
    )  # fmt: skip
    return framed(REQUESTS[DESCRIBE_CONFIGS][version](resources=[resource]), client_id="a")


def test_gateway_hides_a_brokers_addresses() -> None:
    talk = Playbook(channel_machine())
    talk.client(0, asked(BROKER), Pass(asked(BROKER)))
    before = test_broker_configs.answer(4, TOLD)
    talk.broker(0, before, Insert(configs_without_addresses(before, 4)), Drop(len(before)))


@pytest.mark.parametrize(("kind", "gateway"), [(TOPIC, True), (BROKER, False), (TOPIC, False)])
def test_other_config_requests_pass(kind: int, gateway: bool) -> None:
    talk = Playbook(channel_machine(gateway=gateway))
    talk.client(0, asked(kind), Pass(asked(kind)))
    before = test_broker_configs.answer(4, TOLD)
    talk.broker(0, before, Pass(before))


@pytest.mark.parametrize("gateway", [True, False])
def test_gateway_hides_voters_listeners(gateway: bool) -> None:
    talk = Playbook(channel_machine(gateway=gateway))
    sent = request(DESCRIBE_QUORUM, 2, size=60, correlation_id=7)
    talk.client(0, sent, Pass(sent))
    before = test_describe_quorum.answer("10.0.0.1")
    if gateway:
        talk.broker(0, before, Insert(test_describe_quorum.answer(None)), Drop(len(before)))
    else:
        talk.broker(0, before, Pass(before))


@pytest.mark.parametrize("key", [DESCRIBE_CONFIGS, DESCRIBE_QUORUM])
def test_version_that_is_not_known_ends_a_gateways_connection(key: int) -> None:
    talk = Playbook(channel_machine())
    talk.client(0, request(key, 9, size=60), Ends("unsupported_version"))


def test_request_that_cannot_be_read_is_malformed() -> None:
    talk = Playbook(channel_machine())
    talk.client(0, request(DESCRIBE_CONFIGS, 4, b"\5\2\2"), Ends("malformed"))
