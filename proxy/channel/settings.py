"""The constant settings of a channel."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from proxy.channel.own import OwnNames
from proxy.channel.reassignments import OngoingMoves
from quotas.replication.replication_quotas import ReplicationQuotas

ANY_BROKER: Final = -1  # instead of a broker id: the bootstrap port, which leads to any broker
ANONYMOUS: Final = "ANONYMOUS"  # Kafka's name for a client that is not authenticated
AddressMap = Callable[[int, str, int], tuple[str, int] | None]

RESPONSE_BYTES_MAX: Final = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """One channel's listener, and what the channel may do.

    Attributes:
        broker: the id of the broker behind the port; -1 if the bootstrap port's broker has no known id.
        address_map: returns the address to put in place of a broker's; None in a sidecar, which rewrites nothing.
        frame_bytes_max: the largest request, without its length prefix (Kafka: socket.request.max.bytes).
        response_bytes_max: the longest response, without its length prefix.
        address: the client's address without its port; kept bytes are counted by it.
        user: the principal's name before any SASL exchange; ANONYMOUS without a client certificate.
        oauth_claim: the claim of an OAUTHBEARER token that names the principal.
        serves_quota_api: whether Sluice, not the broker, responds to the quota API, with its own quotas.
        sasl: whether brokers require SASL, so that a client has no user before its exchange.
        trusted: whether unauthenticated clients of this listener may alter quotas (`Config.trusts`).
        replication: the quotas of leaders and followers, at a listener for brokers.
        own: what is Sluice's own in the cluster and refused to clients; None if nothing is.
        reassignments: those carried out in steps; None if reassignments are forwarded unchanged.
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
    own: OwnNames | None = None
