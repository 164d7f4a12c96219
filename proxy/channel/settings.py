"""What a channel is told when it is made, and never changes afterwards."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from proxy.channel.reassignments import OngoingMoves
from quotas.replication import ReplicationQuotas

__all__ = [
    "ANONYMOUS",
    "ANY_BROKER",
    "AWAIT_VERDICT",
    "IN_FLIGHT_MAX",
    "RAW_TOKENS",
    "RAW_TOKENS_MAX",
    "RESPONSE_BYTES_MAX",
    "AddressMap",
    "ChannelSettings",
]


ANY_BROKER: Final = -1  # in place of a broker id: the bootstrap port, behind which any broker will do
ANONYMOUS: Final = "ANONYMOUS"  # Kafka's name for whoever is not authenticated
AddressMap = Callable[[int, str, int], tuple[str, int] | None]

RESPONSE_BYTES_MAX: Final = 1024**3

# Requests on their way on one connection. A broker reads one at a time; librdkafka's own bound is 1,000,000
# and Java's 5 (max.in.flight.requests.per.connection). Beyond this the client's socket is simply not read.
IN_FLIGHT_MAX: Final = 4096

# In its place during a SASL exchange, so that the check of every request stays one comparison: nothing is
# handled before the broker's verdict is here; or what comes next may be a token without a Kafka header.
AWAIT_VERDICT: Final = -1
RAW_TOKENS: Final = -2

# Bare tokens on their way. An exchange goes step by step, so one is what a client sends; who sends empty ones would
# have an entry kept for every four bytes.
RAW_TOKENS_MAX: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """One channel's place: whose door it stands at, and what it may do.

    Attributes:
        broker: id of the broker behind the port, -1 where the bootstrap port's broker is not known by id.
        address_map: what to tell the client instead of a broker's address; None in a sidecar, which rewrites nothing.
        frame_bytes_max: the largest request, without its length prefix (Kafka: socket.request.max.bytes).
        response_bytes_max: the largest answer, without its length prefix.
        address: the client's, without its port: what is kept for peers counts by it.
        user: the principal's name before any SASL exchange; ANONYMOUS without a client certificate.
        oauth_claim: the claim of an OAUTHBEARER token that names the principal.
        answers_quotas: whether the quota API is answered here, from Sluice's own quotas, and not by the broker.
        sasl: whether brokers ask for SASL, so that who has not said who he is, is nobody yet.
        trusted: whether whoever reaches this listener unauthenticated may alter quotas (`Config.trusts`).
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
