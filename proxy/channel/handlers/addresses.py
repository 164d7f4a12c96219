"""Metadata 0-13, FindCoordinator 0-6, DescribeCluster 0-2 and ApiVersions 0-5: what a client learns about
brokers.

Behavior: in a gateway every broker address becomes Sluice's own, or a client would find its way round the
proxy; a sidecar's answers already lead to sidecars and pass as they are. ApiVersions is cut to what Sluice
can serve in both. Metadata's brokers stand before its topics, so only the frame's head is rewritten and
thousands of partitions pass unseen. DescribeQuorum and DescribeConfigs are `descriptions`'. Metadata requests
that may create topics are also `proxy.channel.auto_created`'s.

Version notes: a later version of the three would be answered in a layout we do not know, so it ends the
connection (ApiVersions never offered it). ApiVersions of any version passes: a broker answers what it does
not know in version 0.
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
from protocol.messages import (
    api_versions,
    describe_cluster,
    find_coordinator,
    metadata,
    metadata_topics,
    reassignments,
)
from proxy.channel import auto_created
from proxy.channel.bounds import AUTO_CREATED_ANSWER_BYTES_MAX, BROKERS_BYTES_MAX
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Buffer, Entry, Responder
from proxy.channel.parsing import AT_ONCE_BYTES_MAX
from proxy.channel.rewriting import whole_answer
from proxy.channel.settings import AddressMap
from proxy.channel.side import Side, copied

__all__ = [
    "api_versions_request",
    "describe_cluster_request",
    "find_coordinator_request",
    "metadata_request",
]

Head = tuple[int, int, int, int, int]

# Where reassignments are carried out in steps, their list has the proposal's version (KIP-435).
_OFFERED: Final[Mapping[int, int]] = {LIST_PARTITION_REASSIGNMENTS: reassignments.BATCH_VERSION}
_NOTHING: Final[Mapping[int, int]] = {}


def _owe(side: Side, head: Head, responder: Responder) -> int:
    """Owe an answer that is rewritten in a gateway and passes in a sidecar."""
    _, key, version, correlation_id, _ = head
    if side.state.settings.address_map is None:
        side.state.in_flight.append((correlation_id, None, version, None))
        return 0
    if not 0 <= version <= MAX_VERSION[key]:
        raise PeerError("unsupported_version", f"{API_NAMES[key]} version {version}")
    side.state.in_flight.append((correlation_id, responder, version, None))
    return 0


def metadata_request(side: Side, buf: Buffer, pos: int, end: int, body: int, head: Head, now_ms: int) -> int:
    """Owe a Metadata answer, which is looked through where its request may create topics (KIP-599)."""
    awaiting = auto_created.asked(side, buf, pos, end, body, head, now_ms)
    if awaiting is None:
        return _owe(side, head, _metadata_answer)
    if isinstance(awaiting, int):
        return awaiting
    side.state.in_flight.append((head[3], _created_answer, head[2], awaiting))
    return 0


def _created_answer(side: Side, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int) -> int:
    """Look for topics that were created; then the answer is as any other."""
    length = side.frame_bytes - 4
    awaiting = entry[3]
    if length <= AUTO_CREATED_ANSWER_BYTES_MAX:
        if not side.whole(end - pos, length, AUTO_CREATED_ANSWER_BYTES_MAX):
            return side.verdict.order
        if awaiting.seen is None:
            frame = copied(buf, pos, pos + 4 + length)
            awaiting.seen = side.parse(metadata_topics.read_topics, frame, entry[2])
            if awaiting.seen is None:
                return side.verdict.order
        if not auto_created.heard(side, awaiting, now_ms):
            return side.next_turn()
    return (
        0 if side.state.settings.address_map is None else _metadata_answer(side, buf, pos, end, entry, now_ms)
    )


def find_coordinator_request(
    side: Side, _buf: Buffer, _pos: int, _end: int, _body: int, head: Head, _now_ms: int
) -> int:
    """Owe a FindCoordinator answer."""
    return _owe(side, head, _find_coordinator_answer)


def describe_cluster_request(
    side: Side, _buf: Buffer, _pos: int, _end: int, _body: int, head: Head, _now_ms: int
) -> int:
    """Owe a DescribeCluster answer."""
    return _owe(side, head, _describe_cluster_answer)


def api_versions_request(
    side: Side, _buf: Buffer, _pos: int, _end: int, _body: int, head: Head, _now_ms: int
) -> int:
    """Owe an ApiVersions answer, which is cut in a sidecar too."""
    side.state.in_flight.append((head[3], _api_versions_answer, head[2], None))
    return 0


def _metadata_answer(side: Side, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int) -> int:
    """Rewrite the brokers at the answer's head; the topics behind them pass unseen."""
    length = side.frame_bytes - 4
    shown = min(end - pos, 4 + length)
    for most in (AT_ONCE_BYTES_MAX, BROKERS_BYTES_MAX):  # brokers enough for most clusters, and for all
        rewritten = side.parse(
            metadata.rewrite_head, copied(buf, pos, pos + min(shown, most)), entry[2], _map(side)
        )
        if rewritten is None:
            return side.verdict.order
        consumed, head = rewritten
        if consumed:
            return side.replace(consumed, head, unseen=length + 4 - consumed)
        if shown <= most:
            return side.more(end - pos, length)
    raise PeerError(side.too_long, f"more than {BROKERS_BYTES_MAX} bytes of brokers")


def _map(side: Side) -> AddressMap:
    address_map = side.state.settings.address_map
    assert address_map is not None, "only a gateway rewrites"
    return address_map


def _find_coordinator_answer(side: Side, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int) -> int:
    rewrite = find_coordinator.rewrite
    return whole_answer(side, buf, pos, end, FIND_COORDINATOR, rewrite, entry[2], _map(side))


def _describe_cluster_answer(side: Side, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int) -> int:
    rewrite = describe_cluster.rewrite
    return whole_answer(side, buf, pos, end, DESCRIBE_CLUSTER, rewrite, entry[2], _map(side))


def _api_versions_answer(side: Side, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int) -> int:
    offered = _OFFERED if side.state.settings.reassignments is not None else _NOTHING
    return whole_answer(side, buf, pos, end, API_VERSIONS, api_versions.rewrite, entry[2], offered)
