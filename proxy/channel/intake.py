"""Whether a channel takes requests, and if not, what it waits for.

    OPEN ──── SaslHandshake, SaslAuthenticate ──► AWAIT_BROKER ── the exchange is over ──► OPEN
     │                                             │      ▲
     │                        SaslHandshake 0 is answered  a bare token that can be read
     │                                             ▼      │
     │                                           BARE_TOKENS ── a request begins ──► OPEN
     ├──── a request for the shell ──► AWAIT_SHELL ── it has answered ──► OPEN
     └──── take_no_more, from anywhere ──► ENDED, which nothing follows

In every state but OPEN a request is looked at only to wait: `ChannelState.in_flight_max` is 0 then, so that the check
of every request is one comparison.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

__all__ = ["IN_FLIGHT_MAX", "RAW_TOKENS_MAX", "RESUMED_AT", "Intake"]

# Requests on their way on one connection. A broker reads one at a time; librdkafka's own bound is 1,000,000
# and Java's 5 (max.in.flight.requests.per.connection). Beyond this the client's socket is simply not read.
IN_FLIGHT_MAX: Final = 4096

# Bare tokens on their way. An exchange goes step by step, so one is what a client sends; who sends empty ones would
# have an entry kept for every four bytes.
RAW_TOKENS_MAX: Final = 16


class Intake(Enum):
    """What is taken from the client."""

    OPEN = auto()  # requests, until IN_FLIGHT_MAX responses are owed
    AWAIT_BROKER = auto()  # nothing before the broker's response to a step of a SASL exchange
    BARE_TOKENS = auto()  # SASL tokens without a Kafka header, of which RAW_TOKENS_MAX may be on their way
    AWAIT_SHELL = auto()  # nothing before the response that the shell makes
    ENDED = auto()  # nothing any more: what is owed is answered, and the connection ends

    @property
    def in_exchange(self) -> bool:
        """Whether a SASL exchange is under way."""
        return self is Intake.AWAIT_BROKER or self is Intake.BARE_TOKENS


# A client that waits is read again when no more responses are owed than this. AWAIT_BROKER ends by itself.
RESUMED_AT: Final[Mapping[Intake, int]] = MappingProxyType(
    {
        Intake.OPEN: IN_FLIGHT_MAX // 2,
        Intake.AWAIT_BROKER: -1,
        Intake.BARE_TOKENS: RAW_TOKENS_MAX // 2,
        Intake.AWAIT_SHELL: 0,
        Intake.ENDED: 0,
    }
)
