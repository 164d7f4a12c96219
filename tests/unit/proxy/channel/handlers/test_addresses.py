"""What a client learns about brokers: in a gateway Sluice's addresses alone, in a sidecar what the broker says."""

from typing import Any

import pytest

from protocol.api import API_VERSIONS, DESCRIBE_CLUSTER, FIND_COORDINATOR, MAX_VERSION, METADATA
from tests.support.frames import api_versions, frame, request
from tests.support.playbook import Drop, Ends, Insert, More, Pass, Passthrough, Playbook, channel_machine
from tests.unit.protocol.kafka_frames import RESPONSES, decoded, framed, struct

HOST = "broker.internal.example"


def metadata(version: int, nodes: list[int], topics: int = 0) -> bytes:
    """A Metadata answer of these brokers, with so many topics behind them."""
    cls = RESPONSES[METADATA]
    brokers = [
        struct(cls, version, "MetadataResponseBroker", node_id=node, host=HOST, port=9092) for node in nodes
    ]
    named = [struct(cls, version, "MetadataResponseTopic", partitions=[]) for _ in range(topics)]
    for number, topic in enumerate(named):
        topic.name = f"topic-{number}"
    return framed(cls(version=version, brokers=brokers, topics=named), correlation_id=1)


def answered(key: int, version: int, frame_bytes: bytes, *, gateway: bool = True) -> tuple[Any, Playbook]:
    """The whole answer as the client gets it, decoded."""
    talk = Playbook(channel_machine(gateway=gateway))
    asked = request(key, version, size=60)
    talk.client(0, asked, Pass(asked))
    orders = talk.orders("broker", 0, frame_bytes)
    out = b"".join(order.data for order in orders if isinstance(order, Pass | Insert))
    return decoded(RESPONSES[key], version, out), talk


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_ports_of_ours(version: int) -> None:
    seen, _ = answered(METADATA, version, metadata(version, [1, 2]))
    assert [(b.node_id, b.host, b.port) for b in seen.brokers] == [
        (1, "sluice.example", 19101),
        (2, "sluice.example", 19102),
    ]


@pytest.mark.parametrize("version", range(14))
def test_metadata_leaves_out_a_broker_without_a_port(version: int) -> None:
    seen, _ = answered(METADATA, version, metadata(version, [1, 64]))
    assert [b.node_id for b in seen.brokers] == [1]


@pytest.mark.parametrize("version", range(14))
def test_metadata_passes_a_sidecar_untouched(version: int) -> None:
    seen, _ = answered(METADATA, version, metadata(version, [1, 64]), gateway=False)
    assert [(b.node_id, b.host, b.port) for b in seen.brokers] == [(1, HOST, 9092), (64, HOST, 9092)]


@pytest.mark.parametrize("version", [0, 9, 13])
def test_topics_behind_the_brokers_pass_unseen(version: int) -> None:
    talk = Playbook(channel_machine())
    asked = request(METADATA, version, size=60)
    talk.client(0, asked, Pass(asked))
    whole = metadata(version, [1], topics=5000)
    head = 200
    orders = talk.orders("broker", 0, whole[:head])
    assert Passthrough(len(whole) - head) in orders


def test_cut_brokers_are_kept_until_they_are_whole() -> None:
    talk = Playbook(channel_machine())
    asked = request(METADATA, 9, size=60)
    talk.client(0, asked, Pass(asked))
    whole = metadata(9, list(range(60)))
    talk.broker(0, whole[:100], More(2 * 100 + 64))


def test_metadata_that_ends_before_its_brokers_do_ends_the_connection() -> None:
    talk = Playbook(channel_machine())
    asked = request(METADATA, 9, size=60)
    talk.client(0, asked, Pass(asked))
    talk.broker(0, frame(b"\0\0\0\1\0\0\0\0\0\x09"), Ends("malformed"))


@pytest.mark.parametrize("version", range(7))
def test_coordinator_is_at_a_port_of_ours(version: int) -> None:
    cls = RESPONSES[FIND_COORDINATOR]
    if version >= 4:
        found = struct(cls, version, "Coordinator", key="g", node_id=2, host=HOST, port=9092, error_code=0)
        message = cls(version=version, coordinators=[found])
    else:
        message = cls(version=version, node_id=2, host=HOST, port=9092, error_code=0)
    seen, _ = answered(FIND_COORDINATOR, version, framed(message, correlation_id=1))
    seen = seen.coordinators[0] if version >= 4 else seen
    assert (seen.node_id, seen.host, seen.port) == (2, "sluice.example", 19102)


@pytest.mark.parametrize("version", range(3))
def test_described_cluster_names_ports_of_ours(version: int) -> None:
    cls = RESPONSES[DESCRIBE_CLUSTER]
    broker = struct(cls, version, "DescribeClusterBroker", broker_id=2, host=HOST, port=9092)
    message = cls(version=version, brokers=[broker], error_code=0)
    seen, _ = answered(DESCRIBE_CLUSTER, version, framed(message, correlation_id=1))
    assert [(b.broker_id, b.host, b.port) for b in seen.brokers] == [(2, "sluice.example", 19102)]


@pytest.mark.parametrize("gateway", [True, False])
def test_api_versions_are_cut_to_what_is_served(gateway: bool) -> None:
    cls = RESPONSES[API_VERSIONS]
    keys = [
        struct(cls, 3, "ApiVersion", api_key=key, min_version=0, max_version=newest)
        for key, newest in ((0, 99), (3, 4), (4000, 1))
    ]
    message = cls(version=3, error_code=0, api_keys=keys)
    seen, _ = answered(API_VERSIONS, 3, framed(message, correlation_id=1), gateway=gateway)
    assert [(k.api_key, k.max_version) for k in seen.api_keys] == [(0, MAX_VERSION[0]), (3, 4)]


def test_api_versions_of_a_version_the_broker_does_not_know_stay_version_0() -> None:
    talk = Playbook(channel_machine())
    asked = api_versions(99)
    talk.client(0, asked, Pass(asked))
    cls = RESPONSES[API_VERSIONS]
    keys = [struct(cls, 0, "ApiVersion", api_key=18, min_version=0, max_version=4)]
    refused = framed(cls(version=0, error_code=35, api_keys=keys), correlation_id=1)
    talk.broker(0, refused, Insert(refused), Drop(len(refused)))


@pytest.mark.parametrize("key", [FIND_COORDINATOR, DESCRIBE_CLUSTER, API_VERSIONS])
def test_cut_answer_is_kept_until_it_is_whole(key: int) -> None:
    talk = Playbook(channel_machine())
    asked = request(key, 0, size=60)
    talk.client(0, asked, Pass(asked))
    talk.broker(0, frame(b"\0\0\0\1" + bytes(100))[:20], More(108))


@pytest.mark.parametrize("key", [METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER])
def test_sidecar_passes_unknown_versions(key: int) -> None:
    talk = Playbook(channel_machine(gateway=False))
    asked = request(key, 99, size=60)
    talk.client(0, asked, Pass(asked))


def test_next_answer_follows_a_rewritten_one() -> None:
    talk = Playbook(channel_machine())
    asked = request(METADATA, 9, size=60) + request(2, 7, size=60, correlation_id=2)
    talk.client(0, asked, Pass(asked))
    whole = metadata(9, [64])
    following = frame(b"\0\0\0\2" + bytes(10))
    _, dropped, passed = talk.orders("broker", 0, whole + following)
    assert isinstance(dropped, Drop)
    assert passed == Pass((whole + following)[dropped.count :])


def test_rest_of_a_rewritten_answer_passes_unseen() -> None:
    talk = Playbook(channel_machine())
    asked = request(METADATA, 9, size=60)
    talk.client(0, asked, Pass(asked))
    whole = metadata(9, [64], topics=50)
    empty = metadata(9, [], topics=50)
    # All up to the array of brokers, which is empty now: length, correlation id, tags, throttle time, count.
    head = empty[:14]
    consumed = 14 + len(whole) - len(empty)
    talk.broker(
        0, whole[:300], Insert(head), Drop(consumed), Pass(whole[consumed:300]), Passthrough(len(whole) - 300)
    )
