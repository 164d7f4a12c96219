"""What a client learns about brokers: in a gateway Sluice's addresses alone, in a sidecar what the broker says."""

from struct import pack as struct_pack
from typing import Any

import pytest

from protocol import api
from protocol.messages.addresses import configs_without_addresses
from protocol.primitives import string_bytes
from proxy.channel import Channel
from proxy.channel.errors import AUTO_CREATED_RESPONSE_BYTES_MAX, PeerError
from proxy.channel.handlers.addresses import LIBRARIES_MAX, shared
from tests.support.frames import api_versions, frame, request
from tests.support.mutation_frames import create, mutation_response, sizes
from tests.support.playbook import (
    Drop,
    Ends,
    Insert,
    More,
    Pass,
    Passthrough,
    Playbook,
    channel_machine,
    playbook,
)
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, decoded, framed, struct
from tests.unit.protocol.messages.test_addresses import config_response, quorum
from tests.unit.proxy.channel.handlers.test_topic_mutations import engine, tokens

HOST = "broker.internal.example"
Ranges = dict[int, tuple[int, int]]  # the oldest and newest version of each API


def metadata(version: int, nodes: list[int], topics: int = 0) -> bytes:
    """A Metadata response of these brokers, with so many topics behind them."""
    cls = RESPONSES[api.METADATA]
    brokers = [
        struct(cls, version, "MetadataResponseBroker", node_id=node, host=HOST, port=9092) for node in nodes
    ]
    named = [struct(cls, version, "MetadataResponseTopic", partitions=[]) for _ in range(topics)]
    for number, topic in enumerate(named):
        topic.name = f"topic-{number}"
    return framed(cls(version=version, brokers=brokers, topics=named), correlation_id=1)


def responded(key: int, version: int, frame_bytes: bytes, *, gateway: bool = True) -> Any:
    """The whole response as the client gets it, decoded."""
    talk = playbook(gateway=gateway)
    talk.asks(0, request(key, version, size=60))
    orders = talk.orders("broker", 0, frame_bytes)
    out = b"".join(order.data for order in orders if isinstance(order, Pass | Insert))
    return decoded(RESPONSES[key], version, out)


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_ports_of_ours_and_in_a_sidecar_what_the_broker_said(version: int) -> None:
    ours = responded(api.METADATA, version, metadata(version, [1, 2, 64]))  # the third one has no port
    assert [(b.node_id, b.host, b.port) for b in ours.brokers] == [
        (1, "sluice.example", 19101),
        (2, "sluice.example", 19102),
    ]
    seen = responded(api.METADATA, version, metadata(version, [1, 64]), gateway=False)
    assert [(b.node_id, b.host, b.port) for b in seen.brokers] == [(1, HOST, 9092), (64, HOST, 9092)]


def test_metadata_that_ends_before_its_brokers_do_ends_the_connection() -> None:
    talk = playbook()
    talk.asks(0, request(api.METADATA, 9, size=60))
    talk.broker(0, frame(b"\0\0\0\1\0\0\0\0\0\x09"), Ends("malformed"))


@pytest.mark.parametrize("gateway", [True, False])
def test_client_that_brokers_tell_to_begin_anew_is_told(gateway: bool) -> None:
    """The error of a Metadata response is behind its topics (KIP-1102)."""
    cls = RESPONSES[api.METADATA]
    message = cls(version=13, brokers=[], topics=[], error_code=129)
    seen = responded(api.METADATA, 13, framed(message, correlation_id=1), gateway=gateway)
    assert seen.error_code == 129


@pytest.mark.parametrize("version", range(7))
def test_coordinator_is_at_a_port_of_ours(version: int) -> None:
    cls = RESPONSES[api.FIND_COORDINATOR]
    if version >= 4:
        found = struct(cls, version, "Coordinator", key="g", node_id=2, host=HOST, port=9092, error_code=0)
        message = cls(version=version, coordinators=[found])
    else:
        message = cls(version=version, node_id=2, host=HOST, port=9092, error_code=0)
    seen = responded(api.FIND_COORDINATOR, version, framed(message, correlation_id=1))
    seen = seen.coordinators[0] if version >= 4 else seen
    assert (seen.node_id, seen.host, seen.port) == (2, "sluice.example", 19102)


@pytest.mark.parametrize("version", range(3))
def test_described_cluster_names_ports_of_ours(version: int) -> None:
    cls = RESPONSES[api.DESCRIBE_CLUSTER]
    broker = struct(cls, version, "DescribeClusterBroker", broker_id=2, host=HOST, port=9092)
    message = cls(version=version, brokers=[broker], error_code=0)
    seen = responded(api.DESCRIBE_CLUSTER, version, framed(message, correlation_id=1))
    assert [(b.broker_id, b.host, b.port) for b in seen.brokers] == [(2, "sluice.example", 19102)]


@pytest.mark.parametrize("gateway", [True, False])
def test_api_versions_are_cut_to_what_is_served(gateway: bool) -> None:
    cls = RESPONSES[api.API_VERSIONS]
    keys = [
        struct(cls, 3, "ApiVersion", api_key=key, min_version=0, max_version=newest)
        for key, newest in ((0, 99), (3, 4), (4000, 1))
    ]
    message = cls(version=3, error_code=0, api_keys=keys)
    seen = responded(api.API_VERSIONS, 3, framed(message, correlation_id=1), gateway=gateway)
    assert [(k.api_key, k.max_version) for k in seen.api_keys] == [(0, api.MAX_VERSION[0]), (3, 4)]


def test_api_versions_of_a_version_the_broker_does_not_know_stay_version_0() -> None:
    talk = playbook()
    talk.asks(0, api_versions(5))
    cls = RESPONSES[api.API_VERSIONS]
    keys = [struct(cls, 0, "ApiVersion", api_key=18, min_version=0, max_version=4)]
    refused = framed(cls(version=0, error_code=35, api_keys=keys), correlation_id=1)
    talk.broker(0, refused, Insert(refused), Drop(len(refused)))


@pytest.mark.parametrize("serves", [True, False])
@pytest.mark.parametrize("version", [0, 2, 3])
@pytest.mark.parametrize(
    ("has", "error_code", "added"),
    [
        ({1: (4, 12), 3: (0, 4)}, 0, {48: (0, 1), 49: (0, 1)}),
        ({1: (0, 11), 3: (0, 4)}, 0, {}),  # Kafka 2.6, which some clients know by these APIs
        ({3: (0, 4)}, 0, {}),
        ({49: (0, 0), 1: (4, 18)}, 0, {48: (0, 1)}),
        ({48: (2, 3), 49: (0, 1), 1: (4, 18)}, 0, {48: (0, 1)}),  # no version that Sluice knows
        ({48: (0, 1), 49: (0, 1)}, 0, {}),
        ({18: (0, 4)}, 42, {}),  # a refused request
    ],
)
def test_quota_api_is_offered_where_sluice_responds_to_it(
    has: Ranges, error_code: int, added: Ranges, version: int, serves: bool
) -> None:
    known = {key: versions for key, versions in has.items() if versions[0] <= api.MAX_VERSION[key]}
    shown = known | (added if serves else {})
    talk = playbook(serves_quota_api=serves)
    talk.asks(0, api_versions(version))
    told, seen = (offering(version, error_code, ranges) for ranges in (has, shown))
    talk.broker(1, told, Insert(seen), Drop(len(told)))


def offering(version: int, error_code: int, ranges: Ranges) -> bytes:
    """An ApiVersions response."""
    cls = RESPONSES[api.API_VERSIONS]
    keys = [
        struct(cls, version, "ApiVersion", api_key=key, min_version=oldest, max_version=newest)
        for key, (oldest, newest) in ranges.items()
    ]
    return framed(
        cls(version=version, error_code=error_code, api_keys=keys, throttle_time_ms=0), correlation_id=1
    )


def meaning(cluster_id: str | None) -> bytes:
    """An ApiVersions request, version 5, of a client that means broker 1 of a cluster (KIP-1242)."""
    fields = b"\2x\2y" + string_bytes(cluster_id, True) + struct_pack(">ib", 1 if cluster_id else -1, 0)
    return request(api.API_VERSIONS, 5, fields)


REFUSED = frame(struct_pack(">ihbib", 1, 129, 1, 0, 0))  # REBOOTSTRAP_REQUIRED, without APIs


@pytest.mark.parametrize(
    ("meant", "known", "gateway", "closed"),
    [
        ("ours", "ours", True, True),
        ("theirs", "ours", True, False),  # the client has to begin anew
        ("ours", "", True, False),  # not known yet
        ("ours", "ours", False, False),  # clients have the sidecars' addresses from the brokers
        (None, "ours", True, False),
    ],
)
def test_broker_that_a_client_does_not_mean_is_left_and_another_cluster_is_told(
    meant: str | None, known: str, gateway: bool, closed: bool
) -> None:
    talk = playbook(gateway=gateway, cluster_id=lambda: known)
    talk.asks(0, meaning(meant))
    if closed:
        talk.broker(0, REFUSED[:9], More(len(REFUSED)))
        talk.broker(0, REFUSED[9:], Ends("broker_misrouted"))
    else:
        talk.broker(0, REFUSED, Insert(REFUSED), Drop(len(REFUSED)))


def test_broker_that_a_client_means_tells_its_versions() -> None:
    talk = playbook(cluster_id=lambda: "ours")
    asked = meaning("ours")
    talk.client(0, asked[:20], More(len(asked)))
    talk.client(0, asked[20:], Pass(asked))
    served = frame(struct_pack(">ihbhhhbib", 1, 0, 2, 3, 0, 99, 0, 0, 0))
    orders = talk.orders("broker", 0, served)
    assert orders[0] == Insert(frame(struct_pack(">ihbhhhbib", 1, 0, 2, 3, 0, 13, 0, 0, 0)))


@pytest.mark.parametrize("key", [api.METADATA, api.FIND_COORDINATOR, api.DESCRIBE_CLUSTER])
def test_sidecar_passes_unknown_versions(key: int) -> None:
    playbook(gateway=False).asks(0, request(key, 99, size=60))


def test_next_response_follows_a_rewritten_one() -> None:
    talk = playbook()
    talk.asks(0, request(api.METADATA, 9, size=60) + request(2, 7, size=60, correlation_id=2))
    whole = metadata(9, [64])
    following = frame(b"\0\0\0\2" + bytes(10))
    _, dropped, passed = talk.orders("broker", 0, whole + following)
    assert isinstance(dropped, Drop)
    assert passed == Pass((whole + following)[dropped.count :])


def test_rest_of_a_rewritten_response_passes_unseen() -> None:
    talk = playbook()
    talk.asks(0, request(api.METADATA, 9, size=60))
    whole = metadata(9, [64], topics=50)
    empty = metadata(9, [], topics=50)
    # All up to the array of brokers, which is empty now: length, correlation id, tags, throttle time, count.
    head = empty[:14]
    consumed = 14 + len(whole) - len(empty)
    talk.broker(
        0, whole[:300], Insert(head), Drop(consumed), Pass(whole[consumed:300]), Passthrough(len(whole) - 300)
    )


TOPIC, BROKER = 2, 4  # resource types
TOLD = {"listeners": "PLAINTEXT://10.0.0.1:9092", "log.dirs": "/data"}


def asked(kind: int, version: int = 4) -> bytes:
    resource = struct(
        REQUESTS[api.DESCRIBE_CONFIGS], version, "DescribeConfigsResource", resource_type=kind, resource_name="1",
        configuration_keys=None,
    )  # fmt: skip
    return framed(REQUESTS[api.DESCRIBE_CONFIGS][version](resources=[resource]), client_id="a")


def test_gateway_hides_a_brokers_addresses() -> None:
    talk = playbook()
    talk.asks(0, asked(BROKER))
    before = config_response(4, TOLD)
    talk.broker(0, before, Insert(configs_without_addresses(before, 4)), Drop(len(before)))


@pytest.mark.parametrize(("kind", "gateway"), [(TOPIC, True), (BROKER, False), (TOPIC, False)])
def test_other_config_requests_pass(kind: int, gateway: bool) -> None:
    talk = playbook(gateway=gateway)
    talk.asks(0, asked(kind))
    talk.responds(0, config_response(4, TOLD))


@pytest.mark.parametrize("gateway", [True, False])
def test_gateway_hides_voters_listeners(gateway: bool) -> None:
    talk = playbook(gateway=gateway)
    talk.asks(0, request(api.DESCRIBE_QUORUM, 2, size=60, correlation_id=7))
    before = quorum("10.0.0.1")
    if gateway:
        talk.broker(0, before, Insert(quorum(None)), Drop(len(before)))
    else:
        talk.responds(0, before)


@pytest.mark.parametrize(
    ("asked", "cause"),
    [
        (request(api.DESCRIBE_CONFIGS, 9, size=60), "unsupported_version"),
        (request(api.DESCRIBE_QUORUM, 9, size=60), "unsupported_version"),
        (request(api.DESCRIBE_CONFIGS, 4, b"\5\2\2"), "malformed"),
    ],
)
def test_request_that_cannot_be_read_ends_a_gateways_connection(asked: bytes, cause: str) -> None:
    playbook().client(0, asked, Ends(cause))


VERSION = 12


def dialogue(*, gateway: bool = False, **options: Any) -> Playbook:
    return playbook(engine(**options), gateway=gateway)


def ask(
    names: list[str] | None, version: int = VERSION, *, creates: bool = True, correlation_id: int = 1
) -> bytes:
    topics = None
    if names is not None:
        topics = []
        for name in names:
            topic = struct(REQUESTS[api.METADATA], version, "MetadataRequestTopic")
            topic.name = name
            topics.append(topic)
    message = REQUESTS[api.METADATA][version](topics=topics)
    if version >= 4:
        message.allow_auto_topic_creation = creates
    return framed(message, correlation_id, "a")


def see(talk: Playbook, asked: bytes, responded: bytes) -> None:
    """Ask, and hear the response; both pass as they are."""
    talk.asks(0, asked)
    talk.responds(0, responded)


def spend(talk: Playbook, partitions: int) -> None:
    """Create a topic on purpose."""
    said = mutation_response(api.CREATE_TOPICS, 7, [("t", 0)], partitions=partitions)
    see(talk, create(7, {"t": partitions}), said)


@pytest.mark.parametrize("version", [1, 4, 9, 12, 13])
def test_auto_created_topic_is_charged_to_the_client_that_named_it(version: int) -> None:
    talk = dialogue()
    see(talk, ask(["t"], version), sizes(version, {"t": 0}))
    assert tokens(talk) == 20
    see(talk, ask(["t"], version), sizes(version, {"t": 6}))
    assert tokens(talk) == 14
    see(talk, ask(["t"], version), sizes(version, {"t": 6}))
    assert tokens(talk) == 14  # once


def test_client_that_creates_no_topic_is_not_charged() -> None:
    talk = dialogue()
    see(talk, ask(["was there"]), sizes(VERSION, {"was there": 6}))
    see(talk, ask(["t"], creates=False), sizes(VERSION, {"t": 0}))
    see(talk, ask(["t"]), sizes(VERSION, {"t": 6}))
    see(talk, ask(None), sizes(VERSION, {"u": 0}))
    see(talk, ask(["u"]), sizes(VERSION, {"u": 6}))
    assert tokens(talk) == 20


@pytest.mark.parametrize(
    ("options", "version", "spent", "left"),
    [
        ({}, 1, 50, 20 - 50 - 3),  # a version that always creates
        ({"mode": "observe"}, VERSION, 50, 20 - 50 - 3),
        ({"charge_auto_created": False}, VERSION, 0, 20),
    ],
    ids=["old version", "observed", "free"],
)
def test_auto_created_topic_is_not_prevented(
    options: dict[str, Any], version: int, spent: int, left: int
) -> None:
    talk = dialogue(**options)
    if spent:
        spend(talk, spent)
    see(talk, ask(["u"], version), sizes(version, {"u": 0}))
    see(talk, ask(["u"], version), sizes(version, {"u": 3}))
    assert tokens(talk) == left


def test_topic_that_is_created_on_purpose_meanwhile_is_charged_once() -> None:
    talk = dialogue()
    see(talk, ask(["t"]), sizes(VERSION, {"t": 0}))
    spend(talk, 6)
    see(talk, ask(["t"]), sizes(VERSION, {"t": 6}))
    assert tokens(talk) == 14


def test_over_the_quota_the_request_creates_nothing() -> None:
    talk = dialogue()
    spend(talk, 50)
    denied = ask(["u"], creates=False)
    talk.client(0, ask(["u"]), Pass(denied))
    assert decoded(REQUESTS[api.METADATA], VERSION, denied).allow_auto_topic_creation is False
    talk.responds(0, sizes(VERSION, {"u": 0}))
    assert talk.stats.topics_rejected == {"Metadata": 1}
    talk.asks(15_000, ask(["u"]))  # -30 + 15 s · 2


def test_gateway_still_rewrites_addresses() -> None:
    talk = dialogue(gateway=True)
    talk.asks(0, ask(["t"]))
    orders = talk.orders("broker", 0, sizes(VERSION, {"t": 0}))
    assert b"".join(getattr(order, "data", b"") for order in orders) == sizes(VERSION, {"t": 0})
    assert len(talk.engine.mutations.auto_creating) == 1


def test_response_that_is_too_large_is_not_looked_through() -> None:
    talk = dialogue()
    talk.asks(0, ask(["t"]))
    talk.responds(0, frame(b"\0\0\0\1" + bytes(AUTO_CREATED_RESPONSE_BYTES_MAX)))


JAVA = ("apache-kafka-java", "4.4.0")
MIB = 1 << 20


def library_of(channel: Channel) -> str:
    return channel.condition(0, time_requests=False).library


def library(*requests: bytes) -> str:
    """Of a channel that has been sent these."""
    channel = channel_machine(frame_bytes_max=32 * MIB)
    for one in requests:
        channel.requests.receive(bytearray(one), 0, len(one), 0)
    return library_of(channel)


@pytest.mark.parametrize(
    "sent",
    [[api_versions(version, software=JAVA)] for version in (3, 4, 5)]
    + [[api_versions(4, software=JAVA), api_versions(0)]],
    ids=["3", "4", "5", "falls back to version 0"],
)
def test_client_says_it(sent: list[bytes]) -> None:
    assert library() == ""
    assert library(*sent) == "apache-kafka-java 4.4.0"


def test_connections_of_one_library_share_one_string() -> None:
    assert library(api_versions(software=JAVA)) is library(api_versions(software=JAVA))


def test_shared_names_have_a_bound() -> None:
    for number in range(2 * LIBRARIES_MAX):
        assert shared(f"a client {number}") == f"a client {number}"
    info = shared.cache_info()
    assert info.currsize == info.maxsize == LIBRARIES_MAX


@pytest.mark.parametrize(
    "software",
    [
        ("<script>", "1"),
        ("a\x1b[2J", "1"),
        ("é", "1"),
        ("x" * 65, "1"),
        ("x" * 16 * MIB, "1"),
        ("x", "1" * 16 * MIB),
    ],
    ids=["markup", "escape", "not ascii", "too long", "16 MiB name", "16 MiB version"],
)
def test_what_brokers_refuse_is_not_shown_and_costs_nothing(software: tuple[str, str]) -> None:
    before = shared.cache_info().misses
    assert library(api_versions(software=software)) == ""
    assert shared.cache_info().misses == before


@pytest.mark.parametrize(
    "length", [b"\x0f", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01"]
)
def test_name_that_is_longer_than_its_request_is_not_shown(length: bytes) -> None:
    front = api_versions(software=("x", "y"))[4 : -len(b"\2x\2y\0")]
    sent = frame(front + length + b"x\2y\0")
    assert library(sent + api_versions(0, correlation_id=2)) == ""
    assert library(sent, api_versions(software=JAVA, correlation_id=2)) == "apache-kafka-java 4.4.0"


def test_name_is_not_read_beyond_its_request() -> None:
    """What follows the request would complete it."""
    whole = api_versions(software=JAVA)
    cut = frame(whole[4:-4])
    channel = channel_machine()
    with pytest.raises(PeerError):  # the rest of it is no request
        channel.requests.receive(bytearray(cut + whole[-4:]), 0, len(whole), 0)
    assert library_of(channel) == ""


def test_name_that_is_not_utf_8_is_not_shown() -> None:
    sent = api_versions(software=("xx", "y"))
    assert library(sent.replace(b"\3xx", b"\3\xff\xfe")) == ""
