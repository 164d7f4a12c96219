"""What goes through a gateway is what comes out, and no address that a client sees is a broker's.

What single responses say, and whose ports they name: see test_equality; here records go their whole way, in by one door
and out by the other.
"""

import os
import struct

import pytest

from tests.cluster import HOST, Cluster
from tests.cluster.features import SEVERAL_NODES
from tests.conftest import CreateTopic
from tests.support.gateway_fixture import gateway_fixture
from tests.support.numbered import read_all, write_all
from tests.support.proxy_process import SluiceProcess
from tests.support.raw_topics import PRODUCE, Topic, batch, describe, produce_request
from tests.support.wire import response, wired
from tests.support.workers import ALIKE
from tests.unit.protocol.kafka_frames import Message

COMPRESSIONS = ("none", *(pytest.param(name, marks=ALIKE) for name in ("gzip", "snappy", "lz4", "zstd")))
NOT_LEADER = 6
# Small ones; ones larger than a read buffer; and one as large as a broker takes, which no compression makes small.
VALUES = [b"", b"a" * 10, b"b" * 100_000, os.urandom(300_000), os.urandom(990_000)]


sluice = gateway_fixture()


@pytest.fixture(scope="module")
def topic(kafka: Cluster, create_topic: CreateTopic) -> Topic:
    """A topic with a partition at each broker."""
    return describe(kafka, create_topic(partitions=3))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_that_go_in_by_one_door_come_out_by_the_other(
    kafka: Cluster, sluice: SluiceProcess, create_topic: CreateTopic, compression: str
) -> None:
    for entry, way_out in ((sluice.bootstrap, kafka.bootstrap()), (kafka.bootstrap(), sluice.bootstrap)):
        name = create_topic()
        write_all(entry, name, VALUES, settings={"compression.type": compression})
        assert read_all(way_out, name) == VALUES


def named_ports(sluice: SluiceProcess, nodes: tuple[int, ...]) -> set[tuple[int, str, int]]:
    return {(node, HOST, sluice.ports.first_broker + node) for node in nodes}


def ask(
    sluice: SluiceProcess, broker: int, message: Message, api_key: int, version: int
) -> tuple[Message, bytes]:
    with wired(sluice.ports.address(broker)) as wire:
        frame = wire.ask(message).frame
    return response(api_key, version, frame), frame


def real_ports(kafka: Cluster) -> list[bytes]:
    return [struct.pack(">i", kafka.address(node)[1]) for node in kafka.nodes]


@pytest.mark.needs(SEVERAL_NODES)
@pytest.mark.parametrize("version", [10, 12, 13])
def test_new_leader_in_a_produce_response_is_at_a_port_of_sluice(
    kafka: Cluster, sluice: SluiceProcess, topic: Topic, version: int
) -> None:
    led_elsewhere = topic.led_by(2)[0]
    asked = produce_request(topic, led_elsewhere, batch([b"value"]), version=version)
    seen, frame = ask(sluice, 1, asked, PRODUCE, version)
    assert seen.responses[0].partition_responses[0].error_code == NOT_LEADER
    named = {n.node_id for n in seen.node_endpoints}
    assert 2 in named  # kfake names the others as well
    assert {(n.node_id, n.host, n.port) for n in seen.node_endpoints} == named_ports(sluice, tuple(named))
    assert not [port for port in real_ports(kafka) if port in frame]
