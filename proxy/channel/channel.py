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

`Direction` and `Machine` are all that the shell (`proxy.net`) knows: mypy finds every other access, and a test
(tests/unit/proxy/channel/test_contract.py) finds every write, and counts. The shell's rules:

    1. Read bytes, pass them to `receive`, and carry out the verdict: forward, keep, replace, wait or refuse.
    2. Forward passthrough bytes in portions of any size and report them with `passed`; if the verdict says
       `charged_ahead`, call `recharge_due` before. Report with a count of 0 when pending output has been written, and
       when the source is connected.
    3. If the verdict has a signal, take it, and pass the other direction its kept bytes again, unless it is within a
       frame or its output is blocked.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from protocol.messages.fetch_session import SessionTable
from proxy.channel.capture import Capture, Tap
from proxy.channel.direction import (
    NS_PER_MS,
    ChannelState,
    Forward,
    Muting,
    Question,
    SharedResponse,
    Telemetry,
)
from proxy.channel.follower import ReplicaLink, ReplicaRequests, ReplicaThrottle
from proxy.channel.request_time import NONE_PROBED, Probe, Probed, RequestTimes
from proxy.channel.requests import RequestDirection
from proxy.channel.responses import ResponseDirection
from proxy.channel.settings import ChannelSettings
from proxy.channel.verdict import REFUSE, Intake, Verdict
from proxy.system.stats import Stats
from quotas.engine import Engine
from quotas.limiters.virtual_time import ConnectionTime
from quotas.throttles.client import ClientQuota

UNREAD: Final = "unread"  # the client does not read its responses
AT_CLIENT: Final = "client"  # a request of it is partly here
IN_SLUICE: Final = "sluice"  # a thread, or another process, has its request
AT_BROKER: Final = "broker"  # the broker connection is being opened, or takes no bytes
ASKED: Final = "asked"  # a broker owes a response
UNASKED: Final = "unasked"


class Condition(NamedTuple):
    """A snapshot of one connection. The channel sets all but `activity` and the waits, which the shell knows.

    Args:
        quota: its client's quotas; None before the first request, and for a follower.
        broker: the id of its broker; -1 if that is unknown.
        activity: what it waits for (a constant above); during a hold or mute, whether a response is owed.
        held_ms, muted_ms: the time that it has been held and muted since it began.
        muting: the throttle of the present or last mute.
        asked_ms: for how many ms, at least, its broker has owed a response; -1 if it owes none.
        probe: the last timed request; None if there is none.
        probed: the timed requests whose responses have begun since the last call.
        follower: the id of the broker that fetches as a follower; -1 for a client.
        leaving_out: the limit because of which a follower's present Fetch leaves out replicas; None if it does not.
        virtual_time: its waits if quotas were enforced; None if there are none.
        waits_until_ms: when the present hold or mute ends; 0 without one.
        owed: the number of responses owed.
        library: the name and version of its client's software.
        telemetry: what its client's library says of its throttle times; None if it says nothing.
    """

    quota: ClientQuota | None
    broker: int
    activity: str
    held_ms: int
    muted_ms: int
    muting: Muting | None
    asked_ms: int = -1
    probe: Probe | None = None
    probed: Probed = NONE_PROBED
    follower: int = -1
    leaving_out: ReplicaThrottle | None = None
    virtual_time: ConnectionTime | None = None
    waits_until_ms: int = 0
    owed: int = 0
    library: str = ""
    telemetry: Telemetry | None = None


class Direction(Protocol):
    """The interface of one direction of a channel for the shell (`proxy.net`)."""

    @property
    def verdict(self) -> Verdict:
        """The direction's verdict on the bytes received last: always the same object, changed by the calls below."""

    def receive(self, buf: bytearray, start: int, end: int, now_ns: int) -> Verdict:
        """Decide what to do with the received bytes buf[start:end]; those to forward may be patched in place.

        Raises:
            PeerError, WireError: the peer has broken the protocol, and the connection ends.
        """

    def passed(self, count: int, now_ns: int) -> None:
        """Register progress: `count` passthrough bytes were forwarded.

        With 0, pending output was written, or the source of the bytes was connected.
        """

    def recharge_due(self, now_ms: int) -> bool:
        """Whether the shell must call `receive` before it forwards more of a partly forwarded request.

        True if its missing bytes are late: their charge was given back, and has to be made again.
        """

    def mid_frame(self) -> bool:
        """Whether a frame has been forwarded in part."""

    def take_signal(self) -> Question | None:
        """Clear `Verdict.signal`; return the `Question` for which the shell must call `responded`; None without one."""


class Machine(Protocol):
    """The interface of a channel for the shell (`proxy.net`): its two directions, and the calls that concern both."""

    @property
    def requests(self) -> Direction:
        """The direction from the client to the broker."""

    @property
    def responses(self) -> Direction:
        """The direction from the broker to the client."""

    @property
    def kept_bytes(self) -> int:
        """The memory in bytes that counts against the limit for kept bytes; many owed responses count as well."""

    def condition(self, now_ms: int, *, time_requests: bool) -> Condition:
        """Return a snapshot of the connection, and begin or stop timing requests.

        Args:
            time_requests: whether to time some of the next requests; until a first one was timed, True is assumed.
        """

    def responded(self, response: bytes | bytearray | SharedResponse | Forward) -> None:
        """Accept what the shell returns for a `Question`: the response for the client, or a request for the broker."""

    def broker_changed(self, broker: int) -> None:
        """Register that the connection leads to a different broker than intended."""

    def reconsider(self, *, ending: bool = False) -> None:
        """End the present mute if its limit was raised or removed, quotas are no longer enforced, or with `ending`."""

    def end_intake(self, *, after_next: bool = False) -> None:
        """Take no further request from the client, or only the next one; owed responses are still sent."""

    def idle(self) -> bool:
        """Whether no response is owed and no frame is partly forwarded: the connection may be closed without loss.

        A partly forwarded request that was refused does not count: it gets no response.
        """

    def close(self, now_ms: int) -> Iterator[None]:
        """End the channel, and detach it from its throttles; iterate over the result to free its memory in portions."""


class Channel(ChannelState):
    """One client channel: the two directions of a connection through Sluice, and their shared state.

    Args:
        tap: the destination of captured requests; None without capture.
    """

    __slots__ = ("_link", "_times")

    def __init__(
        self,
        settings: ChannelSettings,
        engine: Engine,
        sessions: SessionTable,
        stats: Stats,
        tap: Tap | None = None,
    ) -> None:
        self._link: ReplicaLink | None = None
        self._times = times = RequestTimes()
        if settings.replication is not None:
            self._link = link = ReplicaLink(settings.replication, settings.broker, stats)
            super().__init__(settings, engine, sessions, stats, link)
            self.requests = ReplicaRequests(self, link)
        elif tap is not None:
            capture = Capture(self, tap, times)
            super().__init__(settings, engine, sessions, stats, capture)
            self.requests = capture.request_direction()
        else:
            super().__init__(settings, engine, sessions, stats)
            self.requests = RequestDirection(self, times.measure)
        self.responses = ResponseDirection(self)

    def condition(self, now_ms: int, *, time_requests: bool) -> Condition:
        """Return a snapshot of the connection, and begin or stop timing requests."""
        times, link = self._times, self._link
        # The first request is timed as soon as possible: before it a Fetch that waits looks like a slow broker.
        unknown = times.probe is None and not self.requests.verdict.acks_zero
        return Condition(
            quota=None if self.identity is None else self.identity.quota,
            broker=self.settings.broker,
            activity=UNASKED,
            held_ms=0,
            muted_ms=0,
            muting=self.muting,
            asked_ms=max(0, now_ms - self.now_ns // NS_PER_MS) if self.in_flight else -1,
            probe=times.probe,
            probed=times.visit(self, time_requests=time_requests or unknown),
            follower=-1 if link is None else link.follower,
            leaving_out=None if link is None else link.leaving_out(),
            virtual_time=self.virtual_time,
            owed=len(self.in_flight),
            library=self.library,
            telemetry=None if self.identity is None else self.identity.telemetry,
        )

    def broker_changed(self, broker: int) -> None:
        """Register that the connection goes to a different broker than intended.

        What was already charged to the quotas of the intended broker stays there.
        """
        self.settings = replace(self.settings, broker=broker)
        if self.observer is not None:
            self.observer.broker_changed(broker)

    def end_intake(self, *, after_next: bool = False) -> None:
        """Take no further request, or only the next one; the channel is idle when all owed responses have been sent."""
        self.enter(Intake.ENDED)
        self.in_flight_max = len(self.in_flight) + 1 if after_next else 0

    def idle(self) -> bool:
        """Whether no response is owed and no frame is partly forwarded: the connection may be closed without loss."""
        owed, requests = len(self.in_flight), self.requests
        if requests.mid_frame():
            if requests.verdict.order != REFUSE:
                return False
            owed -= requests.response_owed
        return owed <= 0 and not self.responses.mid_frame()

    def close(self, now_ms: int) -> Iterator[None]:
        """End the channel, and detach it from its throttles; iterate over the result to free its memory in portions."""
        exchange = self.sasl
        if exchange is not None and exchange.readable and exchange.tokens:
            self.stats.sasl[exchange.label, "failed"] += 1  # a broker refuses a token by closing
            self.sasl = None
        dividing = self.responses.dividing
        if dividing is not None:
            dividing.abandon(self.responses, now_ms)
        self.leave(now_ms)
        return iter(()) if self.observer is None else self.observer.close(now_ms)
