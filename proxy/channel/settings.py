"""What a channel is told when it is made, and never changes afterwards."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from proxy.channel.reassignments import OngoingMoves
from quotas.replication.replication_quotas import ReplicationQuotas

__all__ = [
    "ANONYMOUS",
    "ANY_BROKER",
    "RESPONSE_BYTES_MAX",
    "AddressMap",
    "ChannelSettings",
]


ANY_BROKER: Final = -1  # in place of a broker id: the bootstrap port, behind which any broker will do
ANONYMOUS: Final = "ANONYMOUS"  # Kafka's name for a client that is not authenticated
AddressMap = Callable[[int, str, int], tuple[str, int] | None]

RESPONSE_BYTES_MAX: Final = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """One channel's place: its listener, and what it may do.

    Attributes:
        broker: id of the broker behind the port, -1 where the bootstrap port's broker is not known by id.
        address_map: what to tell the client instead of a broker's address; None in a sidecar, which rewrites nothing.
        frame_bytes_max: the largest request, without its length prefix (Kafka: socket.request.max.bytes).
        response_bytes_max: the largest answer, without its length prefix.
        address: the client's, without its port: what is kept for peers counts by it.
        user: the principal's name before any SASL exchange; ANONYMOUS without a client certificate.
        oauth_claim: the claim of an OAUTHBEARER token that names the principal.
        answers_quotas: whether the quota API is answered here, from Sluice's own quotas, and not by the broker.
        sasl: whether brokers ask for SASL, so that a client has no user before its exchange.
        trusted: whether unauthenticated clients of this listener may alter quotas (`Config.trusts`).
        replication: the quotas of leaders and followers, where brokers connect and not clients.
        reassignments: what is carried out in steps; None where reassignments pass as they are.
    """

    broker: int
    address_map: AddressMap | None
    frame_bytes_max: int
    response_bytes_max: int = RESPONSE_BYTES_MAX
    address: str = ""
    user: str = ANONYMOUS
    oauth_claim: str = "sub"
    answers_quotas: bool = False
    sasl: bool = False
    trusted: bool = False
    replication: ReplicationQuotas | None = None
    reassignments: OngoingMoves | None = None
