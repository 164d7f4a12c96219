"""Metadata 0-13, FindCoordinator 0-6, DescribeCluster 0-2 and ApiVersions 0-5: the responses with broker addresses.

Behavior: in a gateway every broker address is replaced by Sluice's own; otherwise clients would bypass the proxy. A
sidecar's responses already contain the sidecars' addresses and are forwarded unchanged. ApiVersions is reduced to the
versions that Sluice supports in both. In Metadata the brokers precede the topics, so only the head of the frame is
rewritten, and thousands of partitions pass through. DescribeQuorum and DescribeConfigs follow below. Metadata
requests that may create topics are charged for them as described below (KIP-599, KIP-204).

Version notes: a later version of the first three has an unknown layout and ends the connection (ApiVersions never
offered it); in a sidecar, which changes nothing in their responses, it passes, but for Metadata under a partition
mutation quota. A later version of ApiVersions gets the response of a broker that does not know it, in version 0, from
Sluice itself: a broker that does know it would respond in a layout that Sluice cannot reduce.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from protocol import api
from protocol.header import RequestHead
from protocol.messages import addresses, api_versions, metadata, reassignments
from protocol.messages.api_versions import REBOOTSTRAP_REQUIRED
from protocol.messages.metadata import TopicMetadata
from proxy.channel.direction import (
    AT_ONCE_BYTES_MAX,
    Buffer,
    ChannelDirection,
    Entry,
    Owed,
    check_version,
    copied,
    fields_of,
    skip_header_tags,
)
from proxy.channel.errors import (
    AUTO_CREATED_RESPONSE_BYTES_MAX,
    BROKERS_BYTES_MAX,
    REQUEST_BYTES_MAX,
    RESPONSE_BYTES_MAX,
    PeerError,
)
from proxy.channel.own import NEWEST
from proxy.channel.settings import AddressMap, ChannelSettings
from quotas.throttles.mutation import MutationThrottle

# Responses that are kept whole and replaced by the result of a function of `protocol`, in a gateway.


@dataclass(slots=True, eq=False)
class Rewritten(Owed):
    """Replaces a response by the result of a function of `protocol`: `rewrite(frame, version, *arguments(settings))`.

    Args:
        key: the API key, by which the size of the response is limited.
        rewrite: the function.
        arguments: returns its further arguments from the channel's settings; None if it has none.
    """

    _key: int
    _rewrite: Callable[..., bytes]
    _arguments: Callable[[ChannelSettings], tuple[Any, ...]] | None = None

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Replace the response once it is complete."""
        length = direction.frame_bytes - 4
        if not direction.whole(end - pos, length, RESPONSE_BYTES_MAX[self._key]):
            return direction.verdict.order
        arguments = () if self._arguments is None else self._arguments(direction.state.settings)
        rewritten = direction.parse(self._rewrite, copied(buf, pos, pos + 4 + length), entry[1], *arguments)
        return direction.verdict.order if rewritten is None else direction.replace(length + 4, rewritten)


# The names of clients' libraries, of which connections with the same library share one string.

LIBRARIES_MAX: Final = (
    256  # names and versions that are shared; clients choose them, so that there may be any number
)


@lru_cache(maxsize=LIBRARIES_MAX)
def shared(library: str) -> str:
    """Return a string equal to `library` that all connections with the same library share, to save memory.

    Not `sys.intern`: CPython 3.12.0 to 3.12.5 never frees what it has interned, and a client may send any name.
    """
    return library


# Charges the topics that brokers create because of a Metadata request (KIP-204).
#
# Kafka does not charge the client for them (KIP-599). Here a client with a partition mutation quota is charged:
# - Request: while a bucket is overdrawn, the request is forwarded with allow_auto_topic_creation off. The response says
#   that the topic is unknown, which the client may retry, and the topic is not created. Versions before 4 always create
#   the topic; this cannot be turned off.
# - Response: a topic that does not exist after such a request is awaited. When a response contains it with partitions,
#   they are charged to the client that requested it first; only then is it known that the broker created the topic, and
#   with how many partitions. A topic that CreateTopics has created in between is no longer awaited.
#
# Limitations: a topic that is created without Sluice while a client awaits it is charged to that client. Responses of
# more than AUTO_CREATED_RESPONSE_BYTES_MAX are not examined; clients then request each missing topic by itself.
# Switched off by `quotas.charge_auto_created`.

# Topics examined in one turn of the loop: up to 5 us each, if one replaces another awaited topic.
_SETTLED_AT_ONCE: Final = 500
_UNKNOWN: Final = frozenset((3, 5))  # UNKNOWN_TOPIC_OR_PARTITION in KRaft, LEADER_NOT_AVAILABLE before


@dataclass(slots=True, eq=False)
class _Identified(Owed):
    """The response to an ApiVersions request that means a certain node of a certain cluster (KIP-1242), in a gateway.

    The client has the node's id from Sluice, whose port for that node it is connected to. If a broker of the same
    cluster refuses, the node's address has changed and Sluice does not know it yet: the client cannot help that by
    asking Sluice's bootstrap port, and would only lose all its connections. So this one alone is closed; the client
    connects again, and Sluice reads addresses every few seconds. A client that means another cluster is told.

    Args:
        cluster_id: the id of the cluster that the client means.
    """

    _cluster_id: bytes

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int
    ) -> int:
        """Close the connection if it leads to another broker of the client's cluster, else limit the versions."""
        if end - pos >= _ERROR_CODE_END:
            settings = direction.state.settings
            refused = api_versions.error_code(buf[pos : pos + _ERROR_CODE_END]) == REBOOTSTRAP_REQUIRED
            if refused and self._cluster_id.decode("utf-8", "replace") == settings.cluster_id():
                raise PeerError(
                    "broker_misrouted", f"at the address of broker {settings.broker} is another one"
                )
        return _APIS.respond(direction, buf, pos, end, entry, now_ms)


@dataclass(slots=True, eq=False)
class AwaitedTopics:
    """A Metadata request that may make the broker create topics, and the progress in examining its response."""

    throttle: MutationThrottle
    creates: bool
    denied: bool  # their creation was taken out of the request
    topics: Sequence[TopicMetadata] | None = None  # the response's topics, once parsed
    settled: int = 0  # how many of them were examined


def examine_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> AwaitedTopics | int | None:
    """Examine a Metadata request that may auto-create topics; over the quota, it is changed so that it does not.

    Returns:
        The state for examining its response; None if that is not examined; an `Order` if more must arrive first.
    """
    state = direction.state
    quotas = state.engine.mutations
    identity = state.identity
    if identity is None or not state.engine.options.charge_auto_created or not quotas.limiting():
        return None
    throttle = identity.quota.mutations
    if not throttle.limits(now_ms):
        return None
    length, _, version, _, _ = head
    check_version(head)  # also in a sidecar: it might create topics that are not charged
    if not direction.whole(end - pos, length, REQUEST_BYTES_MAX[api.METADATA]):
        return direction.verdict.order
    frame_end = pos + 4 + length
    fields_at = skip_header_tags(buf, body, frame_end, flexible=api.flexible(api.METADATA, version))
    if fields_at is None:
        return None
    request = direction.parse(metadata.read_request, copied(buf, pos, frame_end), fields_at - pos, version)
    if request is None:
        return direction.verdict.order
    if not request.names:
        return None
    denied = request.creates and request.creates_at >= 0 and throttle.enforcing and throttle.overdrawn(now_ms)
    if denied:
        buf[pos + request.creates_at] = 0
        direction.verdict.patches += 1
    return AwaitedTopics(throttle, creates=request.creates and not denied, denied=denied)


def settle(direction: ChannelDirection, awaiting: AwaitedTopics, now_ms: int) -> bool:
    """Examine the next topics of a Metadata response: charge those that a client's request has created.

    Missing topics that this request may create are noted. Returns whether all topics have been examined; if not, call
    it again in the loop's next turn.
    """
    quotas = direction.state.engine.mutations
    topics = awaiting.topics or ()
    first, awaiting.settled = awaiting.settled, awaiting.settled + _SETTLED_AT_ONCE
    for topic in topics[first : awaiting.settled]:
        if topic.name is None:
            continue
        if topic.error_code in _UNKNOWN:
            if awaiting.denied:
                direction.state.stats.topics_rejected["Metadata"] += 1
            elif awaiting.creates and quotas.auto_creating.get(topic.name, now_ms) is None:
                quotas.auto_creating.put(topic.name, awaiting.throttle, now_ms)
        elif topic.partitions:
            creator = quotas.auto_creating.get(topic.name, now_ms)
            if creator is not None:
                quotas.auto_creating.forget((topic.name,))
                creator.record(topic.partitions, now_ms)
                creator.count_mutations(topic.partitions)
    return awaiting.settled >= len(topics)


# The bytes of an ApiVersions response up to the end of its error code: length, correlation id, error code.
_ERROR_CODE_END: Final = 10

# If reassignments are carried out in steps, their list has the version of KIP-435.
_OFFERED: Final[Mapping[int, int]] = {api.LIST_PARTITION_REASSIGNMENTS: reassignments.BATCH_VERSION}
# The quota API, where Sluice responds to it.
_QUOTAS: Final[Mapping[int, int]] = {
    key: api.MAX_VERSION[key] for key in (api.DESCRIBE_CLIENT_QUOTAS, api.ALTER_CLIENT_QUOTAS)
}
_NOTHING: Final[Mapping[int, int]] = {}


class _Metadata(Owed):
    """The broker's response to a Metadata request: brokers first, then topics."""

    __slots__ = ()

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Rewrite the brokers at the head of the response; the topics after them pass through."""
        length = direction.frame_bytes - 4
        shown = min(end - pos, 4 + length)
        address_map = _address_map(direction.state.settings)
        for most in (AT_ONCE_BYTES_MAX, BROKERS_BYTES_MAX):  # enough for most clusters, and for all
            front = copied(buf, pos, pos + min(shown, most))
            rewritten = direction.parse(metadata.rewrite_head, front, entry[1], address_map)
            if rewritten is None:
                return direction.verdict.order
            consumed, head = rewritten
            if consumed:
                return direction.replace(consumed, head, passthrough=length + 4 - consumed)
            if shown <= most:
                return direction.order_more(end - pos, length)
        raise PeerError(direction.too_long, f"more than {BROKERS_BYTES_MAX} bytes of brokers")


class _CreatingMetadata(_Metadata):
    """A Metadata response to a request that may have created topics."""

    __slots__ = ("_awaited",)

    def __init__(self, awaited: AwaitedTopics) -> None:
        self._awaited = awaited

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int
    ) -> int:
        """Find and charge created topics; then handle the response like any other."""
        length = direction.frame_bytes - 4
        awaited = self._awaited
        if length <= AUTO_CREATED_RESPONSE_BYTES_MAX:
            if not direction.whole(end - pos, length, AUTO_CREATED_RESPONSE_BYTES_MAX):
                return direction.verdict.order
            if awaited.topics is None:
                frame = copied(buf, pos, pos + 4 + length)
                awaited.topics = direction.parse(metadata.read_topics, frame, entry[1])
                if awaited.topics is None:
                    return direction.verdict.order
            if not settle(direction, awaited, now_ms):
                return direction.next_turn()
        if direction.state.settings.address_map is None:
            return 0
        return super().respond(direction, buf, pos, end, entry, now_ms)


def _address_map(settings: ChannelSettings) -> AddressMap:
    assert settings.address_map is not None, "only a gateway rewrites"
    return settings.address_map


def _mapped(settings: ChannelSettings) -> tuple[AddressMap]:
    return (_address_map(settings),)


def _offered(settings: ChannelSettings) -> tuple[Mapping[int, int], ...]:
    return (
        _OFFERED if settings.reassignments is not None else _NOTHING,
        NEWEST if settings.own is not None else _NOTHING,
        _QUOTAS if settings.serves_quota_api else _NOTHING,
    )


_METADATA: Final = _Metadata()
_REWRITTEN: Final = {
    api.FIND_COORDINATOR: Rewritten(api.FIND_COORDINATOR, addresses.rewrite_find_coordinator, _mapped),
    api.DESCRIBE_CLUSTER: Rewritten(api.DESCRIBE_CLUSTER, addresses.rewrite_describe_cluster, _mapped),
    api.DESCRIBE_QUORUM: Rewritten(api.DESCRIBE_QUORUM, addresses.quorum_without_addresses),
}
_APIS: Final = Rewritten(api.API_VERSIONS, api_versions.rewrite, _offered)


def _owe(direction: ChannelDirection, head: RequestHead, owed: Owed | None) -> int:
    """Add an owed response that is rewritten in a gateway, and forwarded unchanged in a sidecar; returns 0."""
    _, _, version, correlation_id, _ = head
    if direction.state.settings.address_map is None:
        direction.state.in_flight.append((correlation_id, version, None))
        return 0
    check_version(head)
    direction.state.in_flight.append((correlation_id, version, owed))
    return 0


def metadata_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Handle a Metadata request; its response is rewritten in a gateway, and examined if it may show created topics.

    Returns 0 to forward the request, or an `Order`.
    """
    awaited = examine_request(direction, buf, pos, end, body, head, now_ms)
    if awaited is None:
        return _owe(direction, head, _METADATA)
    if isinstance(awaited, int):
        return awaited
    direction.state.in_flight.append((head[3], head[2], _CreatingMetadata(awaited)))
    return 0


def rewritten_request(
    direction: ChannelDirection,
    _buf: Buffer,
    _pos: int,
    _end: int,
    _body: int,
    head: RequestHead,
    _now_ms: int,
) -> int:
    """Handle a FindCoordinator, DescribeCluster or DescribeQuorum request: it is forwarded unchanged.

    In a gateway, the addresses in its response will be rewritten, or removed. Returns 0.
    """
    _, key, version, _, _ = head
    without = key == api.DESCRIBE_QUORUM and version < addresses.ENDPOINTS_SINCE  # any address
    return _owe(direction, head, None if without else _REWRITTEN[key])


def api_versions_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, _now_ms: int
) -> int:
    """Handle ApiVersions: note the client's software, and limit the versions in the response (also in a sidecar).

    A client asks again in version 0, which has no software, if its broker does not know the first request's version.
    Returns 0 to forward the request, or an `Order`.
    """
    length, key, version, correlation_id, _ = head
    if version > api.MAX_VERSION[key]:
        if not direction.whole(end - pos, length, REQUEST_BYTES_MAX[key]):
            return direction.verdict.order
        direction.state.respond_locally(correlation_id, 0, api_versions.refusal(correlation_id))
        direction.state.stats.requests[key] += 1
        direction.verdict.signal = True
        return direction.replace(length + 4, b"")
    owed: Owed = _APIS
    if version >= api_versions.CLUSTER_SINCE and direction.state.settings.address_map is not None:
        if not direction.whole(end - pos, length, REQUEST_BYTES_MAX[key]):
            return direction.verdict.order
        cluster_id = api_versions.meant_cluster(buf, body, pos + 4 + length, version)
        owed = _Identified(cluster_id) if cluster_id else _APIS
    library = api_versions.software(buf, body, min(end, pos + 4 + length), version)
    if library:
        direction.state.library = shared(library)
    direction.state.in_flight.append((correlation_id, version, owed))
    return 0


# DescribeConfigs 0-4 and DescribeQuorum 0-2: responses that also contain addresses of brokers and controllers.
#
# Behavior: in a gateway, broker configs that hold addresses are returned like sensitive configs, without a value, and
# voters without their listeners; otherwise a client could bypass the proxy. A sidecar's responses and those that are
# not about a broker are forwarded unchanged. Ignored: the values of all other configs.

_CONFIGS: Final = Rewritten(api.DESCRIBE_CONFIGS, addresses.configs_without_addresses)


def configs_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, _now_ms: int
) -> int:
    """Handle DescribeConfigs; a gateway removes the addresses from the response if it is about a broker.

    Returns 0 to forward the request, or an `Order`.
    """
    length, key, version, correlation_id, _ = head
    owed = None
    if direction.state.settings.address_map is not None:
        check_version(head)
        if not direction.whole(end - pos, length, REQUEST_BYTES_MAX[key]):
            return direction.verdict.order
        frame_end = pos + 4 + length
        fields_at = fields_of(buf, body, frame_end, head)
        asks = direction.parse(addresses.names_broker, copied(buf, pos, frame_end), fields_at - pos, version)
        if asks is None:
            return direction.verdict.order
        owed = _CONFIGS if asks else None
    direction.state.in_flight.append((correlation_id, version, owed))
    return 0
