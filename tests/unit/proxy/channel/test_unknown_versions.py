"""A made-up next version of each API, from clients and from brokers: passed unread, refused, or closed, never changed.

docs/compatibility.md says which of them a user meets.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import api
from protocol.messages import reassignments
from protocol.messages.api_versions import refusal
from proxy.channel.own import TREATMENTS, Treatment, own_names
from proxy.channel.settings import OngoingMoves
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from tests.support.engines import engine_with
from tests.support.frames import api_versions, frame, request, some_response
from tests.support.playbook import Drop, Ends, Insert, Pass, Playbook, playbook
from tests.unit.protocol.kafka_frames import RESPONSES, decoded, framed, struct

NEXT: Final = {key: newest + 1 for key, newest in api.MAX_VERSION.items()} | {
    # KIP-435's version, which no broker has, is Sluice's own.
    api.LIST_PARTITION_REASSIGNMENTS: reassignments.BATCH_VERSION + 1
}

# What is read for quotas or for the user's name is closed everywhere, even if nothing is limited: it would have to be
# read as soon as something is, in the middle of a session.
READ: Final = {
    api.PRODUCE, api.FETCH, api.SHARE_FETCH, api.SHARE_ACKNOWLEDGE, api.SASL_HANDSHAKE, api.SASL_AUTHENTICATE,
}  # fmt: skip
WITH_ADDRESSES: Final = {
    api.METADATA, api.FIND_COORDINATOR, api.DESCRIBE_CLUSTER, api.DESCRIBE_CONFIGS, api.DESCRIBE_QUORUM,
}  # fmt: skip
MUTATIONS: Final = {
    api.CREATE_TOPICS, api.CREATE_PARTITIONS, api.DELETE_TOPICS, api.METADATA, api.STREAMS_GROUP_HEARTBEAT,
}  # fmt: skip
SERVED: Final = {api.DESCRIBE_CLIENT_QUOTAS, api.ALTER_CLIENT_QUOTAS}
IN_STEPS: Final = {api.ALTER_PARTITION_REASSIGNMENTS, api.LIST_PARTITION_REASSIGNMENTS}
# Where Sluice has topics or groups of its own, whatever could change them.
GUARDED: Final = {
    key for key, treatment in TREATMENTS.items()
    if treatment not in (Treatment.READS, Treatment.NAMES_NOTHING, Treatment.ACLS, Treatment.CLOSED)
}  # fmt: skip


def limited() -> Engine:
    """Every kind of quota for every client, far above what one request needs."""
    limits = {
        "producer_byte_rate": 1e9,
        "consumer_byte_rate": 1e9,
        "request_percentage": 1000.0,
        "controller_mutation_rate": 1e6,
    }
    return engine_with({Entity(client_id=DEFAULT): limits})


TALKS: Final[dict[str, tuple[Callable[[], Playbook], AbstractSet[int]]]] = {
    "gateway": (playbook, READ | WITH_ADDRESSES),
    "sidecar": (lambda: playbook(gateway=False), READ),
    "limited gateway": (lambda: playbook(limited()), READ | WITH_ADDRESSES | MUTATIONS),
    "limited sidecar": (lambda: playbook(limited(), gateway=False), READ | MUTATIONS),
    "serving": (
        lambda: playbook(gateway=False, serves_quota_api=True, reassignments=OngoingMoves()),
        READ | SERVED | IN_STEPS,
    ),
    "guarding": (lambda: playbook(gateway=False, own=own_names(frozenset(("own",)))), READ | GUARDED),
}


@pytest.mark.parametrize("key", sorted(NEXT.keys() - {api.API_VERSIONS}))
@pytest.mark.parametrize("mode", TALKS)
def test_next_version_of_an_api_passes_untouched_or_is_closed(mode: str, key: int) -> None:
    make, closed = TALKS[mode]
    talk = make()
    asked = request(key, NEXT[key], size=90)
    if mode == "guarding" and key == api.ENVELOPE:  # in any version: what it carries is not looked at
        talk.client(0, asked, Ends("own_names"))
        return
    if key in closed:
        talk.client(0, asked, Ends("unsupported_version"))
        return
    talk.asks(0, asked)
    response = some_response(200)
    talk.responds(1, response)
    talk.asks(2, request(api.LIST_OFFSETS, 7, size=60, correlation_id=2))


@pytest.mark.parametrize("mode", TALKS)
def test_next_api_passes_in_a_sidecar_alone(mode: str) -> None:
    make, _ = TALKS[mode]
    talk = make()
    asked = request(max(api.MAX_VERSION) + 1, 0, size=90)
    if mode in ("gateway", "limited gateway", "guarding"):
        talk.client(0, asked, Ends("unknown_api"))
    else:
        talk.asks(0, asked)
        talk.responds(1, some_response(200))


@pytest.mark.parametrize("mode", TALKS)
@pytest.mark.parametrize("version", [api.MAX_VERSION[api.API_VERSIONS] + 1, 32_767])
def test_next_version_of_api_versions_is_refused_as_by_a_broker(mode: str, version: int) -> None:
    make, _ = TALKS[mode]
    talk = make()
    asked = api_versions(version, correlation_id=9)
    talk.client(0, asked, Drop(len(asked)))
    response = refusal(9)
    talk.broker(0, b"", Insert(response))
    told = decoded(RESPONSES[api.API_VERSIONS], 0, response)
    assert [told.error_code, *((k.api_key, k.min_version, k.max_version) for k in told.api_keys)] == [
        35,
        (api.API_VERSIONS, 0, api.MAX_VERSION[api.API_VERSIONS]),
    ]
    talk.asks(1, api_versions(api.MAX_VERSION[api.API_VERSIONS], correlation_id=10))


def test_refused_api_versions_waits_for_the_responses_before_it() -> None:
    talk = playbook()
    asked = api_versions(6, correlation_id=2)
    talk.asks(0, request(api.LIST_OFFSETS, 7, size=60))
    talk.client(0, asked, Drop(len(asked)))
    response = some_response(40)
    talk.broker(1, response, Pass(response), Insert(refusal(2)))


def test_api_versions_of_an_unknown_version_is_not_kept_without_bound() -> None:
    whole = request(api.API_VERSIONS, 6, size=64 * 1024 + 1)
    assert playbook().orders("client", 0, whole[:1000])[-1] == Ends("frame_length")


@pytest.mark.parametrize("gateway", [True, False])
@pytest.mark.parametrize("version", range(api.MAX_VERSION[api.API_VERSIONS] + 1))
def test_versions_and_apis_that_a_newer_broker_offers_are_not_offered(gateway: bool, version: int) -> None:
    cls, layout = RESPONSES[api.API_VERSIONS], min(version, RESPONSES[api.API_VERSIONS].max_version)
    keys = [
        struct(cls, layout, "ApiVersion", api_key=key, min_version=0, max_version=newest)
        for key, newest in [*NEXT.items(), (max(NEXT) + 1, 0)]
    ]
    offered = framed(cls(version=layout, error_code=0, api_keys=keys), correlation_id=1)
    talk = playbook(gateway=gateway)
    talk.asks(0, api_versions(version))
    orders = talk.orders("broker", 0, offered)
    seen = decoded(cls, layout, b"".join(order.data for order in orders if isinstance(order, Pass | Insert)))
    assert {k.api_key: k.max_version for k in seen.api_keys} == api.MAX_VERSION


@given(st.sampled_from(sorted(NEXT)), st.binary(min_size=1, max_size=300), st.sampled_from(sorted(TALKS)))
def test_bytes_behind_an_unknown_version_are_never_read(key: int, fields: bytes, mode: str) -> None:
    """Whatever stands there: it passes as it is, is closed for its version, or is refused."""
    make, closed = TALKS[mode]
    talk = make()
    asked = frame(request(key, NEXT[key], size=40)[4:] + fields)
    orders = talk.orders("client", 0, asked)
    if key in closed or (mode == "guarding" and key == api.ENVELOPE):
        assert [type(order) for order in orders] == [Ends]
    elif key == api.API_VERSIONS:
        assert orders == [Drop(len(asked))]
    else:
        assert orders == [Pass(asked)]
