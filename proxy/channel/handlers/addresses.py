"""Metadata 0-13, FindCoordinator 0-6, DescribeCluster 0-2 and ApiVersions 0-5: the responses with broker addresses.

Behavior: in a gateway every broker address is replaced by Sluice's own; otherwise clients would bypass the proxy. A
sidecar's responses already contain the sidecars' addresses and are forwarded unchanged. ApiVersions is reduced to the
versions that Sluice supports in both. In Metadata the brokers precede the topics, so only the head of the frame is
rewritten, and thousands of partitions pass through. DescribeQuorum and DescribeConfigs are in `descriptions`. Metadata
requests that may create topics are also handled by `proxy.channel.auto_created`.

Version notes: a later version of the first three has an unknown layout and ends the connection (ApiVersions never
offered it). ApiVersions of any version is forwarded: a broker responds to an unknown version in version 0.
"""

from collections.abc import Mapping
from typing import Final

from protocol.api import (
    API_NAMES,
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FIND_COORDINATOR,
    LIST_PARTITION_REASSIGNMENTS,
    MAX_VERSION,
)
from protocol.header import RequestHead
from protocol.messages import (
    addresses,
    api_versions,
    metadata,
    reassignments,
)
from protocol.messages import (
    metadata as metadata_topics,
)
from proxy.channel import auto_created
from proxy.channel.bounds import AUTO_CREATED_RESPONSE_BYTES_MAX, BROKERS_BYTES_MAX
from proxy.channel.direction import ChannelDirection, copied
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Buffer, Entry, Owed
from proxy.channel.libraries import shared
from proxy.channel.own import NEWEST
from proxy.channel.parsing import AT_ONCE_BYTES_MAX
from proxy.channel.rewriting import Rewritten
from proxy.channel.settings import AddressMap, ChannelSettings

# If reassignments are carried out in steps, their list has the version of KIP-435.
_OFFERED: Final[Mapping[int, int]] = {LIST_PARTITION_REASSIGNMENTS: reassignments.BATCH_VERSION}
_NOTHING: Final[Mapping[int, int]] = {}


class _Metadata(Owed):
    """A Metadata response: brokers, then topics."""

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

    def __init__(self, awaited: auto_created.AwaitedTopics) -> None:
        self._awaited = awaited

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int
    ) -> int:
        """Find created topics; then handle the response like any other."""
        length = direction.frame_bytes - 4
        awaited = self._awaited
        if length <= AUTO_CREATED_RESPONSE_BYTES_MAX:
            if not direction.whole(end - pos, length, AUTO_CREATED_RESPONSE_BYTES_MAX):
                return direction.verdict.order
            if awaited.topics is None:
                frame = copied(buf, pos, pos + 4 + length)
                awaited.topics = direction.parse(metadata_topics.read_topics, frame, entry[1])
                if awaited.topics is None:
                    return direction.verdict.order
            if not auto_created.settle(direction, awaited, now_ms):
                return direction.next_turn()
        if direction.state.settings.address_map is None:
            return 0
        return super().respond(direction, buf, pos, end, entry, now_ms)


def _address_map(settings: ChannelSettings) -> AddressMap:
    assert settings.address_map is not None, "only a gateway rewrites"
    return settings.address_map


def _mapped(settings: ChannelSettings) -> tuple[AddressMap]:
    return (_address_map(settings),)


def _offered(settings: ChannelSettings) -> tuple[Mapping[int, int], Mapping[int, int]]:
    return (
        _OFFERED if settings.reassignments is not None else _NOTHING,
        NEWEST if settings.own is not None else _NOTHING,
    )


_METADATA: Final = _Metadata()
_COORDINATORS: Final = Rewritten(FIND_COORDINATOR, addresses.rewrite_find_coordinator, _mapped)
_CLUSTER: Final = Rewritten(DESCRIBE_CLUSTER, addresses.rewrite_describe_cluster, _mapped)
_APIS: Final = Rewritten(API_VERSIONS, api_versions.rewrite, _offered)


def _owe(direction: ChannelDirection, head: RequestHead, owed: Owed) -> int:
    """Owe a response that is rewritten in a gateway and forwarded unchanged in a sidecar."""
    _, key, version, correlation_id, _ = head
    if direction.state.settings.address_map is None:
        direction.state.in_flight.append((correlation_id, version, None))
        return 0
    if not 0 <= version <= MAX_VERSION[key]:
        raise PeerError("unsupported_version", f"{API_NAMES[key]} version {version}")
    direction.state.in_flight.append((correlation_id, version, owed))
    return 0


def metadata_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Owe a Metadata response; it is examined if its request may create topics (KIP-599)."""
    awaited = auto_created.examine_request(direction, buf, pos, end, body, head, now_ms)
    if awaited is None:
        return _owe(direction, head, _METADATA)
    if isinstance(awaited, int):
        return awaited
    direction.state.in_flight.append((head[3], head[2], _CreatingMetadata(awaited)))
    return 0


def find_coordinator_request(
    direction: ChannelDirection,
    _buf: Buffer,
    _pos: int,
    _end: int,
    _body: int,
    head: RequestHead,
    _now_ms: int,
) -> int:
    """Owe a FindCoordinator response."""
    return _owe(direction, head, _COORDINATORS)


def describe_cluster_request(
    direction: ChannelDirection,
    _buf: Buffer,
    _pos: int,
    _end: int,
    _body: int,
    head: RequestHead,
    _now_ms: int,
) -> int:
    """Owe a DescribeCluster response."""
    return _owe(direction, head, _CLUSTER)


def api_versions_request(
    direction: ChannelDirection,
    buf: Buffer,
    pos: int,
    end: int,
    body: int,
    head: RequestHead,
    _now_ms: int,
) -> int:
    """Owe an ApiVersions response, which is reduced in a sidecar too; note the client's software.

    A client asks again in version 0, which has no software, if its broker does not know the first request's version.
    """
    library = api_versions.software(buf, body, min(end, pos + 4 + head[0]), head[2])
    if library:
        direction.state.library = shared(library)
    direction.state.in_flight.append((head[3], head[2], _APIS))
    return 0
