"""The states of a channel's intake: whether it takes requests, and if not, the event that it waits for.

    OPEN ──── SaslHandshake, SaslAuthenticate ──► AWAIT_BROKER ── the exchange is over ──► OPEN
     │                                             │      ▲
     │               response to SaslHandshake 0   │      │ a bare token that can be read
     │                                             ▼      │
     │                                           BARE_TOKENS ── a request begins ──► OPEN
     ├──── a request for the shell ──► AWAIT_SHELL ── response of the shell ──► OPEN
     └──── end_intake, from any state ──► ENDED, the final state

In every state except OPEN, requests only wait: `ChannelState.in_flight_max` is 0, so that the check of every request is
one comparison.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

# The most requests in flight on one connection. A broker reads one at a time; librdkafka's own bound is 1,000,000 and
# Java's 5 (max.in.flight.requests.per.connection). At this limit the client's socket is not read.
IN_FLIGHT_MAX: Final = 4096

# The most bare tokens in flight. An exchange proceeds step by step, so clients send one; empty tokens would each take
# an entry for four bytes.
BARE_TOKENS_MAX: Final = 16


class Intake(Enum):
    """The input that is taken from the client."""

    OPEN = auto()  # requests, until IN_FLIGHT_MAX responses are owed
    AWAIT_BROKER = auto()  # nothing before the broker's response to a step of a SASL exchange
    BARE_TOKENS = auto()  # SASL tokens without a Kafka header, at most BARE_TOKENS_MAX in flight
    AWAIT_SHELL = auto()  # nothing before the shell's response
    ENDED = auto()  # no more input: owed responses are sent, then the connection ends

    @property
    def in_exchange(self) -> bool:
        """Whether a SASL exchange is under way."""
        return self is Intake.AWAIT_BROKER or self is Intake.BARE_TOKENS


# A waiting client is read again when this many responses or fewer are owed. AWAIT_BROKER ends by itself.
RESUMED_AT: Final[Mapping[Intake, int]] = MappingProxyType(
    {
        Intake.OPEN: IN_FLIGHT_MAX // 2,
        Intake.AWAIT_BROKER: -1,
        Intake.BARE_TOKENS: BARE_TOKENS_MAX // 2,
        Intake.AWAIT_SHELL: 0,
        Intake.ENDED: 0,
    }
)
