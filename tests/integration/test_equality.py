"""Transparency: the same request to a broker and through Sluice, the responses compared byte for byte.

What may differ is named: broker addresses (rewritten), a new fetch session's id (the broker's choice), and nothing
else; correlation ids are the same on both sides, and no quota is reached.
"""

import pytest

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support.gateway_fixture import gateway_fixture
from tests.support.proxy_process import SluiceProcess
from tests.support.raw_topics import FETCH, METADATA, Topic, batch, describe, fetch_request, write
from tests.support.wire import part, request, response, wired
from tests.support.workers import one_process
from tests.unit.protocol.kafka_frames import Message, framed

FIND_COORDINATOR, API_VERSIONS, DESCRIBE_CLUSTER = 10, 18, 60
LIST_OFFSETS, DESCRIBE_GROUPS, LIST_GROUPS, DESCRIBE_CONFIGS, DESCRIBE_TOPIC_PARTITIONS = 2, 15, 16, 32, 75
FETCH_VERSIONS = range(4, 19)
GZIP = 1
BROKER = 1
# Where the session id lies in a response: length, correlation id, tags in flexible versions, throttle time, error.
SESSION_AT = {True: 4 + 4 + 1 + 4 + 2, False: 4 + 4 + 4 + 2}
CORRELATION = 7


GENEROUS = {
    "producer_byte_rate": 1_000_000_000,
    "consumer_byte_rate": 1_000_000_000,
}  # no client reaches them

sluice = gateway_fixture(client_quotas={"<default>": GENEROUS})


@pytest.fixture(scope="module")
def records(kafka: Cluster, create_topic: CreateTopic) -> Topic:
    """A topic whose first broker leads two partitions: one with batches of both kinds, one empty."""
    topic = describe(kafka, create_topic(partitions=6))
    filled = topic.led_by(BROKER)[0]
    for compression in (0, GZIP):
        values = [bytes([index]) * 700 for index in range(40)]
        write(kafka.address(BROKER), topic, filled, batch(values, compression))
    return topic


def both(
    kafka: Cluster, sluice: SluiceProcess, message: Message, broker: int = BROKER
) -> tuple[bytes, bytes]:
    """Ask the broker itself and Sluice's port for it."""
    received = []
    for address in (kafka.address(broker), sluice.ports.address(broker)):
        with wired(address) as wire:
            received.append(wire.ask(message, CORRELATION).frame)
    return received[0], received[1]


def through(kafka: Cluster, sluice: SluiceProcess, node: int, host: str, port: int) -> tuple[str, int]:
    """Return a broker's address as a client behind Sluice must see it, after a check that it is the real one."""
    assert (host, port) == kafka.address(node)
    return sluice.ports.address(node)


def rewritten(kafka: Cluster, sluice: SluiceProcess, entries: list[Message], node_field: str) -> None:
    for entry in entries:
        entry.host, entry.port = through(kafka, sluice, getattr(entry, node_field), entry.host, entry.port)


def in_order(api_key: int, version: int, frame: bytes, node_field: str) -> bytes:
    """Return the response as if the broker said the same each time.

    It gives brokers and partitions in any order, and in KRaft mode any broker as the controller.
    """
    message = response(api_key, version, frame)
    assert framed(message, CORRELATION) == frame, "kafka-python reads it as it was written"
    message.controller_id = -1
    message.brokers.sort(key=lambda entry: getattr(entry, node_field))
    if api_key == METADATA:
        for topic in message.topics:
            topic.partitions.sort(key=lambda entry: entry.partition_index)
    return bytes(framed(message, CORRELATION))


@one_process("a first response is cut to a share of the quota")
@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_is_the_brokers_byte_for_byte(
    kafka: Cluster, sluice: SluiceProcess, records: Topic, version: int
) -> None:
    offsets = dict.fromkeys(records.led_by(BROKER), 0)
    direct, proxied = both(kafka, sluice, fetch_request(records, offsets, version=version))
    assert len(direct) > 25_000
    assert proxied == direct


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_small_fetch_is_the_brokers_byte_for_byte(
    kafka: Cluster, sluice: SluiceProcess, records: Topic, version: int
) -> None:
    # An offset beyond the end: an error for one partition, records for the other, cut by the limit.
    filled, empty = records.led_by(BROKER)[:2]
    message = fetch_request(records, {empty: 99, filled: 3}, version=version, max_bytes=1000)
    direct, proxied = both(kafka, sluice, message)
    assert proxied == direct


@pytest.mark.parametrize("version", [version for version in FETCH_VERSIONS if version >= 7])
def test_new_session_differs_in_its_id_alone(
    kafka: Cluster, sluice: SluiceProcess, records: Topic, version: int
) -> None:
    offsets = dict.fromkeys(records.led_by(BROKER), 0)
    message = fetch_request(records, offsets, version=version, session_epoch=0)
    at = SESSION_AT[version >= 12]
    direct, proxied = (frame[:at] + frame[at + 4 :] for frame in both(kafka, sluice, message))
    assert proxied == direct


@pytest.mark.parametrize("version", [16, 17, 18])
def test_fetch_from_a_follower_names_the_leader_through_sluice(
    kafka: Cluster, sluice: SluiceProcess, records: Topic, version: int
) -> None:
    # Led by broker 2 and asked of broker 1: NOT_LEADER_OR_FOLLOWER, and where the leader is (KIP-951).
    elsewhere = records.led_by(2)[0]
    direct, proxied = both(kafka, sluice, fetch_request(records, {elsewhere: 0}, version=version))
    # Rewritten in place: the frame's length was sent before its end was seen.
    assert len(proxied) == len(direct)
    expected, found = response(FETCH, version, direct), response(FETCH, version, proxied)
    ports = [(entry.node_id, entry.host, entry.port) for entry in found.node_endpoints or []]
    if found.node_endpoints is None:
        pytest.skip("this broker names no leader for it")
    assert ports == [
        (entry.node_id, *through(kafka, sluice, entry.node_id, entry.host, entry.port))
        for entry in expected.node_endpoints
    ]
    assert found.responses[0].partitions[0].error_code == expected.responses[0].partitions[0].error_code


@pytest.mark.parametrize("version", range(14))
def test_metadata_differs_in_the_brokers_addresses_alone(
    kafka: Cluster, sluice: SluiceProcess, records: Topic, version: int
) -> None:
    topics = [part(METADATA, version, "MetadataRequestTopic", name=records.name)]
    message = request(METADATA, version, topics=topics, allow_auto_topic_creation=False)
    direct, proxied = both(kafka, sluice, message)
    expected = response(METADATA, version, direct)
    rewritten(kafka, sluice, expected.brokers, "node_id")
    assert in_order(METADATA, version, proxied, "node_id") == in_order(
        METADATA, version, framed(expected, CORRELATION), "node_id"
    )


@pytest.mark.parametrize("version", range(7))
def test_coordinator_differs_in_its_address_alone(
    kafka: Cluster, sluice: SluiceProcess, records: Topic, version: int
) -> None:
    message = request(
        FIND_COORDINATOR, version, key=records.name, key_type=0, coordinator_keys=[records.name]
    )
    direct, proxied = both(kafka, sluice, message)
    expected = response(FIND_COORDINATOR, version, direct)
    entries = expected.coordinators if version >= 4 else [expected]
    rewritten(kafka, sluice, [entry for entry in entries if entry.node_id >= 0], "node_id")
    assert proxied == framed(expected, CORRELATION)


@pytest.mark.parametrize("version", range(3))
def test_cluster_differs_in_the_brokers_addresses_alone(
    kafka: Cluster, sluice: SluiceProcess, version: int
) -> None:
    message = request(DESCRIBE_CLUSTER, version, endpoint_type=1)
    direct, proxied = both(kafka, sluice, message)
    expected = response(DESCRIBE_CLUSTER, version, direct)
    rewritten(kafka, sluice, expected.brokers, "broker_id")
    assert in_order(DESCRIBE_CLUSTER, version, proxied, "broker_id") == in_order(
        DESCRIBE_CLUSTER, version, framed(expected, CORRELATION), "broker_id"
    )


@pytest.mark.parametrize("version", range(5))
def test_api_versions_promise_nothing_that_the_broker_does_not(
    kafka: Cluster, sluice: SluiceProcess, version: int
) -> None:
    message = request(API_VERSIONS, version, client_software_name="wire", client_software_version="1")
    direct, proxied = both(kafka, sluice, message)
    broker, own = response(API_VERSIONS, version, direct), response(API_VERSIONS, version, proxied)
    served = {entry.api_key: (entry.min_version, entry.max_version) for entry in broker.api_keys}
    promised = {entry.api_key: (entry.min_version, entry.max_version) for entry in own.api_keys}
    assert promised.keys() <= served.keys()
    for key, (low, high) in promised.items():
        assert served[key][0] <= low <= high <= served[key][1], (key, promised[key], served[key])
    # Everything a client of this release needs is there, in all the versions the broker has.
    assert promised == served
    # The minimum that old librdkafka takes for "may compress" (KAFKA-18659).
    assert promised[0][0] == 0


@pytest.mark.parametrize(
    ("api_key", "version"),
    [pytest.param(2, version, id=f"ListOffsets-{version}") for version in range(1, 12)]
    + [pytest.param(15, version, id=f"DescribeGroups-{version}") for version in range(7)]
    + [pytest.param(16, version, id=f"ListGroups-{version}") for version in range(6)]
    + [pytest.param(32, version, id=f"DescribeConfigs-{version}") for version in range(1, 5)]
    + [pytest.param(75, 0, id="DescribeTopicPartitions-0")],
)
def test_everything_else_is_the_brokers_byte_for_byte(
    kafka: Cluster, sluice: SluiceProcess, records: Topic, api_key: int, version: int
) -> None:
    direct, proxied = both(kafka, sluice, plain(api_key, version, records))
    assert proxied == direct


def plain(api_key: int, version: int, topic: Topic) -> Message:
    """Return a request about this topic, or about a group that does not exist."""
    partition = part(
        LIST_OFFSETS, version, "ListOffsetsPartition", partition_index=topic.led_by(BROKER)[0], timestamp=-1
    )
    resource = part(
        DESCRIBE_CONFIGS,
        version,
        "DescribeConfigsResource",
        resource_type=2,
        resource_name=topic.name,
        configuration_keys=["retention.ms", "segment.bytes"],
    )
    listed = part(LIST_OFFSETS, version, "ListOffsetsTopic", name=topic.name, partitions=[partition])
    named = part(DESCRIBE_TOPIC_PARTITIONS, 0, "TopicRequest", name=topic.name)
    fields: dict[int, dict[str, object]] = {
        LIST_OFFSETS: {"replica_id": -1, "isolation_level": 0, "timeout_ms": 1000, "topics": [listed]},
        DESCRIBE_GROUPS: {"groups": ["nobody"]},
        LIST_GROUPS: {"states_filter": [], "types_filter": []},
        DESCRIBE_CONFIGS: {"resources": [resource]},
        DESCRIBE_TOPIC_PARTITIONS: {"topics": [named], "cursor": None, "response_partition_limit": 100},
    }
    return request(api_key, version, **fields[api_key])
