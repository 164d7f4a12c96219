"""One client channel: a client's connection and the broker connection that belongs to it.

Rules for changes to this package: a direction never reads a clock and never calls the shell; a mute begins in
`ChannelState.mute` and ends early in `ChannelState.reconsider` only; every change of the intake goes through
`ChannelState.enter`; a response is owed exactly when it has an entry in `in_flight`.

    client ──► RequestDirection ──► broker        in_flight: one entry a response owed, oldest first
                  │   ▲                           mute_until_ms: no further request is handled before (KIP-219)
          in_flight   mute_until_ms
                  ▼   │
    client ◄── ResponseDirection ◄── broker

    request    Produce over the quota ──► forwarded, mute now ─────► its response carries the throttle time
    request    Fetch over the quota ────► local response, in order, mute now; not forwarded
    request    DescribeClientQuotas ──► passed to the shell; no further request is taken before its response
    request    Produce before its slot ─► WAIT (hold), payload unread ─► decided on again ─► forwarded
    response   Fetch that used up the quota ─► forwarded with the throttle time, mute now

A mute begins at the next frame boundary: a frame that is partly forwarded is forwarded to its end.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from protocol.messages.fetch_session import SessionTable
from proxy.channel.in_flight import ENTRY_BYTES, Forward, LocalResponse, Question, SharedResponse
from proxy.channel.observer import Muting
from proxy.channel.probe import Probe, Probed
from proxy.channel.replica_link import ReplicaThrottle
from proxy.channel.requests import RequestDirection, RequestReader
from proxy.channel.responses import ResponseDirection
from proxy.channel.settings import ChannelSettings
from proxy.channel.state import ChannelState
from proxy.channel.verdict import Intake
from proxy.system.stats import Stats
from quotas.engine import Engine
from quotas.limiters.virtual_time import ConnectionTime
from quotas.throttles.client import ClientQuota

_ENTRIES_COUNTED_MIN: Final = 16  # from this number of owed responses on, their entries count as kept bytes


class Channel:
    """The two directions of one connection and their shared state."""

    __slots__ = ("requests", "responses", "state")

    def __init__(
        self, settings: ChannelSettings, engine: Engine, sessions: SessionTable, stats: Stats
    ) -> None:
        self.state = ChannelState(settings, engine, sessions, stats)
        self.requests: RequestReader = RequestDirection(self.state)
        self.responses = ResponseDirection(self.state)

    def mute_left_ms(self, now_ms: int) -> int:
        """The rest of the channel's mute in ms; 0 if it is not muted."""
        return max(0, self.state.mute_until_ms - now_ms)

    def has_local_response(self) -> bool:
        """Whether the next response is a local one and no broker's response is partly forwarded."""
        in_flight = self.state.in_flight
        return (
            bool(in_flight) and isinstance(in_flight[0][2], LocalResponse) and not self.responses.mid_frame()
        )

    @property
    def owed(self) -> int:
        """The number of responses owed to the client."""
        return len(self.state.in_flight)

    @property
    def user(self) -> str:
        """The principal's name; "" if it cannot be read from the client's SASL exchange."""
        return self.state.user

    @property
    def broker(self) -> int:
        """The id of its broker; -1 if that is unknown."""
        return self.state.settings.broker

    @property
    def quota(self) -> ClientQuota | None:
        """The quotas of its present client; None before the first request."""
        return None if self.state.identity is None else self.state.identity.quota

    @property
    def library(self) -> str:
        """The name and version of the client's software; "" if it has not sent them (KIP-511)."""
        return self.state.library

    @property
    def muting(self) -> Muting | None:
        """The throttle of the present or last mute."""
        return self.state.muting

    @property
    def follower(self) -> int:
        """The id of the broker that fetches as a follower; -1 for a client."""
        return -1

    @property
    def leaving_out(self) -> ReplicaThrottle | None:
        """The limit for which the present Fetch of a follower leaves replicas out."""
        return None

    @property
    def virtual_time(self) -> ConnectionTime:
        """The waits that the connection would have had with enforcement, while quotas were only observed."""
        return self.state.virtual_time

    @property
    def probe(self) -> Probe | None:
        """The last timed request."""
        return self.state.probe

    @property
    def asked_ns(self) -> int:
        """The time, in ns, of the one request whose response is owed; if several are, when bytes last moved; else 0."""
        return self.state.now_ns if self.state.in_flight else 0

    def time_requests(self, on: bool) -> None:
        """Begin to time requests, a bounded number of them, or stop."""
        self.state.probe_armed = on
        if on:
            self.state.probed.arm()
            self.state.unmeasured_version = None

    def take_probed(self) -> Probed:
        """Return the timed requests whose responses have begun, once."""
        return self.state.probed.take(self.state.now_ns)

    @property
    def acks_zero(self) -> bool:
        """Whether a Produce with acks=0 was seen: it is delivered even if its client has closed."""
        return self.state.acks_zero

    @property
    def kept_bytes(self) -> int:
        """The bytes kept here for the client, without the entries of owed responses."""
        return self.state.kept_bytes + self.requests.kept_bytes + self.responses.kept_bytes

    @property
    def counted_bytes(self) -> int:
        """All bytes that count against the budget of kept bytes; includes the entries if many responses are owed."""
        owed = len(self.state.in_flight)
        if owed < _ENTRIES_COUNTED_MIN:
            return self.kept_bytes
        observer = self.state.observer
        return self.kept_bytes + owed * (ENTRY_BYTES if observer is None else observer.entry_bytes)

    def take_question(self) -> Question | None:
        """Return a request that the shell responds to (`responded`), once."""
        question, self.state.question = self.state.question, None
        return question

    def responded(self, response: bytes | bytearray | SharedResponse) -> None:
        """Take the response to a question; it is then a local response."""
        self.state.responded(response)

    def forward_first(self, forward: Forward) -> None:
        """Send a request to the broker before the response to a question; the request direction inserts it."""
        self.state.forward_first(forward)

    def broker_changed(self, broker: int) -> None:
        """Note that the connection goes to a different broker than intended; the first request's charge stays."""
        self.state.settings = replace(self.state.settings, broker=broker)
        if self.state.observer is not None:
            self.state.observer.broker_changed(broker)

    def idle(self) -> bool:
        """Whether no response is owed and no frame is partly forwarded: the connection may be closed without loss."""
        return not self.state.in_flight and not self.requests.mid_frame() and not self.responses.mid_frame()

    def reconsider(self) -> None:
        """Apply changed quotas, or the switch of all enforcement: end a mute that they would not have begun."""
        self.state.reconsider()

    def finished(self) -> bool:
        """Whether the channel takes no further requests and owes no response."""
        return self.state.intake is Intake.ENDED and self.idle()

    def all_responses_sent(self) -> bool:
        """Whether all responses that can still come were sent; a request that is partly forwarded gets none."""
        owed = len(self.state.in_flight) - (self.requests.mid_frame() and self.requests.response_owed)
        return owed <= 0 and not self.responses.mid_frame()

    def end_intake(self) -> None:
        """Handle no further request. The requests under way are completed, and the channel is idle when all responses
        were sent.
        """
        self.state.enter(Intake.ENDED)

    def close(self, now_ms: int) -> Iterator[None]:
        """End the channel: remove its flows; iterate over the result to free memory in portions."""
        exchange = self.state.sasl
        if exchange is not None and exchange.readable and exchange.tokens:
            self.state.stats.sasl[exchange.label, "failed"] += 1  # a broker refuses a token by closing
            self.state.sasl = None
        self.state.leave(now_ms)
        observer = self.state.observer
        return iter(()) if observer is None else observer.close(now_ms)
