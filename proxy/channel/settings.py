"""The constant settings of a channel."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from protocol.messages import reassignments
from protocol.messages.reassignments import Ongoing, Stepping
from protocol.messages.replica_session import Partition
from proxy.channel.own import OwnNames
from quotas.replication.replication_quotas import ReplicationQuotas

# The reassignments in steps (KIP-435) as clients see them: with the requested target (KIP-455).
#
# The shell replaces the mapping whenever it changes; channels only read it.


class ShownMove(NamedTuple):
    """One partition reassignment that Sluice carries out in steps, as clients see it.

    Args:
        ongoing: the whole reassignment, with the requested target.
        step: the step under way; None if there is none.
    """

    ongoing: Ongoing
    step: Stepping | None


class OngoingMoves:
    """All partition reassignments that Sluice carries out in steps, as clients see them.

    Attributes:
        moves: the reassignments by partition; the mapping is replaced as a whole.
    """

    __slots__ = ("moves",)

    def __init__(self) -> None:
        self.moves: Mapping[Partition, ShownMove] = MappingProxyType({})


def merge_moves(
    frame: bytes,
    moves: Mapping[Partition, ShownMove],
    wanted: frozenset[Partition] | None,
    version: int,
    correlation_id: int,
) -> bytes:
    """Return a ListPartitionReassignments response that lists whole reassignments in place of their present steps.

    b"" if the broker's response can be used unchanged.

    Args:
        frame: the broker's response, of version 0.
        wanted: the requested partitions; None for all.
        version: the version of the returned response; BATCH_VERSION also contains the steps.

    Raises:
        WireError: the frame is not such a response.
    """
    found = reassignments.read_list_response(frame)
    with_batch = version != reassignments.VERSION
    batch: dict[Partition, Stepping] = {}
    if not found.error_code:
        if not with_batch and not moves:
            return b""
        keys = moves.keys() if wanted is None else moves.keys() & wanted
        shown = {key: moves[key] for key in moves if key in keys}
        ongoing = {**found.ongoing, **{key: one.ongoing for key, one in shown.items()}}
        batch = {key: one.step for key, one in shown.items() if one.step is not None}
        found = found._replace(ongoing=ongoing)
    if found.error_code and not with_batch:
        return b""
    return reassignments.write_list_response(found, correlation_id, batch if with_batch else None)


ANY_BROKER: Final = -1  # instead of a broker id: the bootstrap port, which leads to any broker
ANONYMOUS: Final = "ANONYMOUS"  # Kafka's name for a client that is not authenticated
AddressMap = Callable[[int, str, int], tuple[str, int] | None]

RESPONSE_BYTES_MAX: Final = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """The constant settings of one channel: its listener, its client's address and user, and what it may do.

    Attributes:
        broker: the id of the broker behind the port; -1 if the bootstrap port's broker has no known id.
        address_map: returns the address to put in place of a broker's; None in a sidecar, which rewrites nothing.
        frame_bytes_max: the largest request, without its length prefix (Kafka: socket.request.max.bytes).
        response_bytes_max: the longest response, without its length prefix.
        address: the client's address without its port; the memory of kept bytes is attributed to it.
        user: the principal's name before any SASL exchange; ANONYMOUS without a client certificate.
        oauth_claim: the claim of an OAUTHBEARER token that names the principal.
        serves_quota_api: whether Sluice, not the broker, responds to the quota API, with its own quotas.
        sasl: whether brokers require SASL, so that a client has no user before its exchange.
        trusted: whether unauthenticated clients of this listener may alter quotas (`Config.trusts`).
        replication: the quotas of leaders and followers, at a listener for brokers.
        cluster_id: returns the id of the cluster behind Sluice; "" if it is not known.
        own: the names of Sluice's own topics, groups and ids, which clients may not use; None if there are none.
        reassignments: the reassignments carried out in steps; None if such requests are forwarded unchanged.
    """

    broker: int
    address_map: AddressMap | None
    frame_bytes_max: int
    response_bytes_max: int = RESPONSE_BYTES_MAX
    address: str = ""
    user: str = ANONYMOUS
    oauth_claim: str = "sub"
    serves_quota_api: bool = False
    sasl: bool = False
    trusted: bool = False
    replication: ReplicationQuotas | None = None
    reassignments: OngoingMoves | None = None
    cluster_id: Callable[[], str] = str
    own: OwnNames | None = None
