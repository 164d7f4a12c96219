"""What the two directions of a channel share: the owed responses, the state, and the base class of a direction.

One module, since each of the three needs the others: a direction decides by the state, the state has the owed
responses, and an owed response decides in a direction when its bytes arrive. In this order:

    Owed ...             the responses owed, oldest first: Kafka responds in request order, and so does Sluice
    Observer             an observer of the channel: none, capture, or a follower's link
    MuteLimits           the bounds of mutes and holds, and which throttle times are reported
    Identity             the quotas of a client id, and the channel's own flows for them
    ChannelState         a mute begins in `mute` and ends early in `reconsider` only
    ChannelDirection     orders of one direction, and work on one frame that continues later

An owed response is a plain tuple, the only object that an ordinary request creates:
    (correlation id, version, owed)
`owed` is None if the broker's response is forwarded unchanged, otherwise one of these:
    LocalResponse      a response made in Sluice, sent in its turn
    PendingResponse    a response that the shell has not made yet
    any other `Owed`, which decides on the broker's response when it arrives; defined in the module of its API
A `PendingResponse` is always the last entry: no further request is taken before its response, and no broker's response
can follow it, so the order is preserved, as in a broker, which handles one request per connection at a time. The shell
replaces it by a `LocalResponse`, or sends another request to the broker first (`Forward`); the API's handler then makes
the owed response. With the correlation id `BARE_TOKEN` the response is a SASL token without a Kafka header; it may be
missing.

Non-obvious:

- Local responses wait their turn. Clients match responses by order, so a response made in Sluice stands in the same
  queue as those that a broker owes.
- A response may be owed later. Another thread responds to the quota API. Until the response is there, no further
  request of that connection is taken (its intake is `AWAIT_SHELL`), so it is the last response owed.
- A connection belongs to a user only from its first real request on. ApiVersions and SASL come before the user is
  known; so the rate of connections is checked where a header's client id is read anyway.
- A large request is shown twice. The first time its handler orders a function's result, and the direction waits; when
  the thread is done the same bytes are shown again, and the same call returns the result. So nothing may be charged
  before it (`ChannelDirection.parse`), and a result belongs to exactly its bytes and arguments.
"""

import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import pack_into, unpack_from
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from protocol import header
from protocol.api import API_NAMES, MAX_VERSION, flexible
from protocol.errors import TruncatedError
from protocol.header import RequestHead
from protocol.messages.fetch_session import SessionTable
from protocol.messages.sasl_exchange import SaslExchange
from protocol.messages.telemetry import ThrottleTimes
from protocol.walks.fetch import FetchWalk
from protocol.walks.produce import ProduceWalk
from protocol.walks.walk import OTHER_TOPICS, TOPIC_SIZE_BYTES, Walk
from proxy.channel.errors import PeerError
from proxy.channel.own import Guarded
from proxy.channel.settings import ANONYMOUS, ChannelSettings
from proxy.channel.verdict import AGAIN, IN_FLIGHT_MAX, MORE, REFUSE, REPLACE, WAIT, Intake, Job, Verdict
from proxy.system.stats import Stats
from quotas.definitions.kinds import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from quotas.engine import CLIENT_ID_CHARACTERS_MAX, Engine
from quotas.limiters.limiter import MS_UNBOUNDED, Flow
from quotas.limiters.virtual_time import ConnectionTime
from quotas.options import GROUP_SESSION_TIMEOUT_MS, capped
from quotas.throttles.bandwidth import Throttle
from quotas.throttles.client import ClientQuota
from quotas.throttles.connections import UserThrottle
from quotas.throttles.mutation import MutationThrottle
from quotas.throttles.request import RequestThrottle
from quotas.throttles.topic_quotas import TopicThrottle

Buffer = bytearray

# The memory of an entry: the tuple, its numbers, and the owed response with that of a measured request.
ENTRY_BYTES: Final = 384

BARE_TOKEN: Final = 1 << 40  # not an int32: no response has this correlation id
RESPONSE_REST: Final = BARE_TOKEN + 1  # the rest of a response whose head has been inserted before it


class Owed:
    """How to handle a response that the broker owes, if it is not just forwarded: `respond` is called for it.

    Not an abstract class: `isinstance` for each response would be several times slower.
    """

    __slots__ = ()
    made: ClassVar[bool] = False  # whether the response is local

    def respond(
        self, direction: "ChannelDirection", buf: Buffer, pos: int, end: int, entry: "Entry", now_ms: int
    ) -> int:
        """Decide on the broker's response at `pos`; returns 0 to forward it, or the order set in the verdict."""
        raise NotImplementedError

    def muted(self, until_ms: int) -> "Owed":  # noqa: ARG002 - only the response to a Produce reports it
        """Return an `Owed` that also writes a mute until `until_ms` into the response, as its throttle time."""
        return self


class Divided(Owed):
    """A Fetch response whose bytes count against two quotas; how much against which is known when it was walked."""

    __slots__ = ()

    def divide(self, direction: "ChannelDirection", buf: "Buffer", now_ms: int) -> None:
        """Charge both quotas, since the sizes of all partitions are known."""
        raise NotImplementedError

    def head_sent(self) -> None:
        """Register that the head of the response was sent: its throttle time stays as it is."""
        raise NotImplementedError

    def abandon(self, direction: "ChannelDirection", now_ms: int) -> None:
        """Charge what is known of the response, since the connection ends before it does."""
        raise NotImplementedError


Entry: TypeAlias = tuple[int, int, Owed | None]
# Not a deque, whose first block alone is 600 bytes. Nearly always it is short.
InFlight: TypeAlias = list[Entry]


@dataclass(slots=True, eq=False)
class LocalResponse(Owed):
    """A response made in Sluice, or a part of one; it is sent after all earlier ones. The broker owes none for it."""

    made: ClassVar[bool] = True
    response: bytes | bytearray | memoryview


@dataclass(slots=True, eq=False)
class PendingResponse(Owed):
    """A response that the shell (`proxy.net`) has yet to make.

    Attributes:
        forwarded: creates the `Owed` that takes its place if the shell first sends a request to the broker; None if the
            shell never does so.
    """

    forwarded: "Callable[[Forward], Owed] | None"

    def respond(
        self, _direction: "ChannelDirection", _buf: Buffer, _pos: int, _end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Refuse a broker's response, since none is owed.

        Raises:
            PeerError: always.
        """
        raise PeerError(
            "broker_out_of_order", f"a response with correlation id {entry[0]}, which belongs to no request"
        )


class Question(NamedTuple):
    """A client's request to which the shell (`proxy.net`) makes the response, not the broker.

    Args:
        body_at: the offset of the fields in the frame, which begins with its length prefix.
        user: the requesting principal.
        trusted: whether no permission is needed, since only users of this machine reach the listener.
        plan: if `frame` is the broker's response to a `Forward`, that one's plan; None if it is a client's request.
        address: the client's address, as in `ChannelSettings`.
        peer: the client's address and port, for the audit log; the shell fills it in.
    """

    api_key: int
    version: int
    correlation_id: int
    frame: bytes
    body_at: int
    user: str
    trusted: bool
    plan: object = None
    address: str = ""
    peer: str = ""


class SharedResponse(NamedTuple):
    """A response whose rest may be shared with other responses, so that it is in memory once.

    Args:
        head: the length prefix and the correlation id.
        rest: all bytes after the head.
    """

    head: bytes
    rest: memoryview

    def __bytes__(self) -> bytes:
        return self.head + bytes(self.rest)


class Forward(NamedTuple):
    """A request that the shell sends to the broker before it makes the response to a `Question`.

    Args:
        frame: a whole request with the client's own correlation id.
        plan: any object; the shell gets it back with the broker's response.
    """

    api_key: int
    frame: bytes
    plan: object


# Any throttle that may mute a channel.
Muting: TypeAlias = Throttle | MutationThrottle | TopicThrottle | UserThrottle | RequestThrottle


class Observer:
    """Receives a channel's events, and creates its walks (`protocol.walks`); a subclass overrides some methods.

    A channel has one if its requests are captured (`capture`) or if it belongs to a follower (`follower`). It makes no
    decisions about bytes. A plain client's channel has none, which costs one comparison per response.

    Attributes:
        entry_bytes: the most memory that one owed response takes, with the observer's data for it.
        walks_all: whether all Produce requests and Fetch responses are walked, not only those with topic quotas.
    """

    __slots__ = ()

    entry_bytes: ClassVar[int] = ENTRY_BYTES
    walks_all: ClassVar[bool] = False

    def waits(self, held: bool) -> None:
        """Called when the next request begins to wait: it is held at its header, or the channel is muted."""

    def muted(self, throttle: Muting, throttle_ms: int, mute_ms: int) -> None:
        """Called when the channel is muted for `mute_ms`; `throttle` had asked for `throttle_ms`."""

    def produce_walk(self, _buf: Buffer, _pos: int, _end: int, _body: int, head: RequestHead) -> Walk | None:
        """Return a walk that counts the bytes of each topic of a Produce; None if it need not be walked after all."""
        return ProduceWalk(head[2], head[0], {})

    def fetch_walk(
        self, direction: "ChannelDirection", _buf: Buffer, _pos: int, _end: int, version: int
    ) -> Walk | None:
        """Return a walk that counts the bytes of each topic of a Fetch response, and finds the addresses at its end."""
        return FetchWalk(version, direction.frame_bytes - 4, {})

    def walked(self, direction: "ChannelDirection", walk: Walk, now_ms: int) -> None:
        """Called when a part of a frame was walked; after the last part, `direction.walk` is None."""

    def response_begun(self, direction: "ChannelDirection", entry: Entry) -> None:
        """Called when a broker's response begins to pass; it is no longer owed."""

    def divided(self) -> None:
        """Called when a `Divided` response has been charged while its throttle time could still be written."""

    def local_response_sent(self, entry: Entry, response: bytes | bytearray | memoryview) -> None:
        """Called when a local response is sent to the client."""

    def broker_changed(self, broker: int) -> None:
        """Called when the connection turns out to lead to a different broker than intended."""

    def reconsidered(self) -> None:
        """Called when quotas, or whether they are enforced, have changed."""

    def close(self, now_ms: int) -> Iterator[None]:  # noqa: ARG002 - a subclass gives back what it has reserved
        """Called when the connection has ended; iterate over the result to free the observer's memory in portions."""
        return iter(())


# The bounds of a channel's mutes and holds, in addition to the throttle time:
#
#     quotas.mute_seconds_max     of every mute (`quotas.options.capped`); the rest of a throttle time stays as debt
#     group's session timeout     a fifth of it, if the connection had group requests: heartbeats wait too
#     end of the SASL session     a broker closes the connection for a later request, in time or not; KIP-368

_SESSION_TIMEOUT_MS_MIN: Final = 6_000
# The last part of a session, without mutes: requests that were sent in it must reach the broker before its end.
# Clients authenticate again after 85 to 95 % of the session (Java), or later still.
_SESSION_END_SHARE: Final = 10
_SESSION_END_MS_MAX: Final = 20_000
# Several held requests may wait one after the other.
_SESSION_HOLD_SHARE: Final = 20


@dataclass(slots=True, eq=False)
class MuteLimits:
    """The bounds of the time for which one channel is muted, or a request is held.

    Attributes:
        group_session_timeout_ms: the shortest session timeout of a consumer group on this channel; 0 if its group
            requests named none; None without group requests.
    """

    _engine: Engine
    _version: object = None  # of the engine, when its options were read
    _schedules: bool = False
    _mute_ms_max: int = 0
    _session_ms: int = 0  # the duration of the principal's session; 0 = unlimited (KIP-368)
    _session_until_ms: int = 0  # the latest end of a mute
    group_session_timeout_ms: int | None = None

    def bounded(self, throttle_ms: int, now_ms: int) -> int:
        """Return for how many ms a throttle time mutes the channel from now on: all of it, up to the bounds."""
        mute_ms = max(0, min(throttle_ms, self._longest_ms()))
        return min(mute_ms, max(0, self._session_until_ms - now_ms)) if self._session_ms else mute_ms

    @property
    def hold_ms_max(self) -> int:
        """The longest hold of a Produce, in ms. A hold delays heartbeats and re-authentication as a mute does."""
        hold_ms_max = MS_UNBOUNDED
        if self.group_session_timeout_ms is not None:
            hold_ms_max = self._longest_ms()
        if self._session_ms:
            hold_ms_max = min(hold_ms_max, self._session_ms // _SESSION_HOLD_SHARE)
        return hold_ms_max

    def begin_session(self, lifetime_ms: int, now_ms: int) -> None:
        """Limit mutes to the client's session, which ends in `lifetime_ms`; 0: it has no end (KIP-368)."""
        self._session_ms = max(lifetime_ms, 0)
        end_ms = min(self._session_ms // _SESSION_END_SHARE, _SESSION_END_MS_MAX)
        self._session_until_ms = now_ms + self._session_ms - end_ms

    def note_session_timeout(self, session_timeout_ms: int) -> None:
        """Limit mutes by the session timeout of a group request, in ms; 0 if the request has none.

        The shortest timeout counts. One below 6 s, which brokers do not accept by default, counts as 6 s.
        """
        if session_timeout_ms:
            session_timeout_ms = max(session_timeout_ms, _SESSION_TIMEOUT_MS_MIN)
        known = self.group_session_timeout_ms
        self._version = None
        if known is None or known == 0:
            self.group_session_timeout_ms = session_timeout_ms
        elif session_timeout_ms:
            self.group_session_timeout_ms = min(known, session_timeout_ms)

    def schedules(self) -> bool:
        """Whether the policy in force is `schedule`; if not, it is `kip13`."""
        if self._version is not self._engine.version:
            self._read_options()
        return self._schedules

    def _longest_ms(self) -> int:
        """Return the longest mute, in ms, by all limits except the session's end."""
        if self._version is not self._engine.version:
            self._read_options()
        return self._mute_ms_max

    def _read_options(self) -> None:
        options, self._version = self._engine.options, self._engine.version
        self._schedules = options.policy == "schedule"
        group_ms = self.group_session_timeout_ms
        if group_ms == 0:
            group_ms = GROUP_SESSION_TIMEOUT_MS
        self._mute_ms_max = capped(MS_UNBOUNDED, int(options.mute_seconds_max * 1000), group_ms)


# Which throttle times are reported in responses (KIP-219); the channel is muted for all of them, and the quota holds
# even if the client is not told. Policy `schedule` throttles each request for a short time, while Kafka lets several
# pass and then throttles for a long one; and several clients write a log line for each reported time (a Java 4.4
# client at WARN). So under `schedule` a short time is reported only if none was reported for a while on this
# connection. A time that was not reported is not added to a later one, since a client that waits by itself would wait
# for it twice.
#
# Always reported are long times, so that a client does not run into its request timeout; the time in an empty response
# to a Fetch, which would be invalid without one if the Fetch is full; and the time of a partition mutation, since a
# client that returns sooner is refused again. Under `kip13` all times are reported, as in Kafka.

# A tenth of the shortest default of a client's timeout (franz-go's 10 s): five requests sent together wait for half.
REPORTED_ALWAYS_MS: Final = 1000
REPORT_EVERY_MS: Final = 5000
_NEVER_MS: Final = 0  # no time was reported yet


def is_reported(throttle_ms: int, reported_at_ms: int, now_ms: int) -> bool:
    """Whether a response contains this throttle time under policy `schedule`: long ones always, short ones rarely.

    Args:
        reported_at_ms: when one was last reported on this connection; 0 for never.

    >>> is_reported(15, 0, 7_000), is_reported(15, 7_000, 11_999), is_reported(15, 7_000, 12_000)
    (True, False, True)
    >>> is_reported(1000, 7_000, 7_300)
    True
    """
    if throttle_ms >= REPORTED_ALWAYS_MS or reported_at_ms == _NEVER_MS:
        return True
    # A response may be decided on twice, by two quotas.
    return now_ms - reported_at_ms >= REPORT_EVERY_MS or now_ms == reported_at_ms


@dataclass(slots=True, eq=False)
class TopicLookup:
    """The partition counts that Sluice requests from the broker for a topic mutation that waits for them (KIP-599).

    Attributes:
        pending: the number of responses to these requests that have not arrived.
        sizes: partition counts by topic name or id; topics that the broker does not know are not in it.
    """

    pending: int = 0
    sizes: dict[str | bytes, int] = field(default_factory=dict)


class Telemetry(NamedTuple):
    """What a client's last PushTelemetry that was read says of its throttle times (KIP-714).

    Args:
        times: by kind of request; empty if it says nothing of them.
    """

    at_ms: int
    times: Mapping[str, ThrottleTimes]


class Identity:
    """One client id on one channel; a channel has several if its requests differ in theirs (kafka-quotas.md §1.3).

    Attributes:
        key: the client id as sent.
        quota: the throttles, shared with every other channel of the same quota entity.
        produce, fetch: this channel's state at the throttles of Produce and Fetch.
        fetched: the `Owed` of all unlimited Fetches; None before the first one.
        behind: whether the next Fetch counts as a catch-up read: the last response had records behind the log's end,
            or there was none yet.
        mixed: whether that response had records at the log's end as well, or there was none yet.
        catch_up_flow: this channel's state at the throttle of catch-up reads; None before its first use.
        telemetry: what its client library says of its throttle times; None before the first time.
    """

    __slots__ = (
        "_catch_up",
        "behind",
        "catch_up_flow",
        "fetch",
        "fetched",
        "key",
        "mixed",
        "produce",
        "quota",
        "telemetry",
    )

    def __init__(self, key: bytes, quota: ClientQuota) -> None:
        self.key = key
        self.quota = quota
        self.produce: Flow = quota.produce.flow()
        self.fetch: Flow = quota.fetch.flow()
        self.fetched: Owed | None = None
        self.behind = True
        self.mixed = True
        self.catch_up_flow: Flow | None = None
        self._catch_up: Throttle | None = None
        self.telemetry: Telemetry | None = None

    def catch_up(self, now_ms: int) -> Throttle | None:
        """Return the throttle of catch-up reads, and attach the channel to it; None if the client has no such limit."""
        throttle = self.quota.catch_up(now_ms)
        if throttle is not None and self.catch_up_flow is None:
            self._catch_up = throttle
            self.catch_up_flow = throttle.flow()
            self.catch_up_flow.connection = self.fetch.connection
        return throttle

    def leave(self, now_ms: int) -> None:
        """Detach the channel from the throttles, since it sends no more requests with this client id."""
        self.quota.produce.leave(self.produce, now_ms)
        self.quota.fetch.leave(self.fetch, now_ms)
        if self._catch_up is not None and self.catch_up_flow is not None:
            self._catch_up.leave(self.catch_up_flow, now_ms)
            self._catch_up = self.catch_up_flow = None
        self.fetched = None  # it refers to this object


AnyThrottle: TypeAlias = Throttle | MutationThrottle | RequestThrottle

# The most client ids on one connection. Real clients use one, franz-go's admin tools two or three.
_IDENTITIES_MAX: Final = 32
# The memory of each of them but the first, in addition to its bytes: half of it what its client library says.
_IDENTITY_BYTES: Final = 1024
_ENTRIES_COUNTED_MIN: Final = 16  # from this number of owed responses on, their entries count as kept bytes
_LONG_CLIENT_ID: Final = bytes(CLIENT_ID_CHARACTERS_MAX + 1)  # stands for all longer client ids
_PLAIN: Final = Observer()  # makes the walks of channels without an observer


@dataclass(slots=True, eq=False)
class ChannelState:
    """The state that a channel's two directions share.

    Attributes:
        mute_until_ms: no further request is handled before this time (KIP-219); past, or 0, when not muted.
        telemetry_from_ms: no PushTelemetry is read before this time, of any client id.
        muting: the throttle of the present or last mute; None before the first.
        mute_limits: the bounds of every mute and hold.
        intake: whether requests are taken; `enter` changes it.
        in_flight_max: while this many responses are owed, no further request is handled; 0 unless the intake is OPEN,
            or has ended but for the next request.
        awaits_responses: the next request waits for responses, so nothing is read; the response direction signals when
            enough have come.
        lookup: the partition counts that the waiting request needs; None if no request waits for any.
        mutations_owed: how many owed responses are of topic mutations with a quota; another such request waits for
            them.
        counted: whether the connection was counted against its user's rate of connections.
        now_ns: when the shell last read bytes for a direction, in nanoseconds of the clock of `now_ms`.
        unmeasured_version: the engine's version at which the current identity was found to have no request quota; None
            if that is not known.
        request_throttle, request_throttle_version: the current identity's request quota, and the engine's version then.
        virtual_time: the connection's waits if quotas were enforced; used while they are not.
        reported_at_ms: when a response has last reported a throttle time; 0 for never.
        requests, responses: the two directions; set once, by the constructor of `Channel`.
        walks: makes the walks through Produce requests and Fetch responses.
        walks_all: whether all of these are walked, as for a capture, and not only where topics have quotas.
        observer: the channel's observer; None without one.
        authenticated: whether `user` comes from a SASL exchange.
        library: the name and version of the client's software, as sent in ApiVersions; "" if unknown.
        user: the principal's name; "" if it cannot be read. `set_user` changes it.
        sasl: the SASL exchange under way.
        fetch_owed: whether a limited Fetch or ShareFetch is with the broker: the next one waits for its response;
            otherwise pipelined ones would all be forwarded before the first one is charged.
        queued_bytes: the memory of client ids, of local responses to be sent, and of the request at the shell.
        question: a request for the shell to respond to; the shell takes it from here.
        uses_share_fetch: whether a ShareFetch or ShareAcknowledge was seen; if so, acknowledgements pass a mute.
        share_held_until_ms: the latest end of the next ShareFetch's wait at its header; 0 before it begins.
        forward: the shell's request to the broker, until the request direction inserts it.
        guarded: Sluice's own names found in the request being decided on (`guard`); None if it was not searched.
        passed_front, passed_version: the beginning (to the end of the topic's name) of the last Produce whose only
            topic is not Sluice's own, and its version; -1 before the first.
    """

    settings: ChannelSettings
    engine: Engine
    sessions: SessionTable
    stats: Stats
    observer: Observer | None = None
    requests: "ChannelDirection" = field(init=False)
    responses: "ChannelDirection" = field(init=False)
    walks: Observer = field(init=False)
    walks_all: bool = field(init=False)
    mute_limits: MuteLimits = field(init=False)
    virtual_time: ConnectionTime = field(init=False)
    user: str = field(init=False)
    in_flight: InFlight = field(default_factory=list)
    intake: Intake = Intake.OPEN
    in_flight_max: int = IN_FLIGHT_MAX
    mute_until_ms: int = 0
    telemetry_from_ms: int = 0
    muting: Muting | None = None
    _muted_at: float | None = None  # its limit at that time
    _limit_version: object = None  # of the engine, at that time
    library: str = ""
    counted: bool = False
    awaits_responses: bool = False
    fetch_owed: bool = False
    lookup: TopicLookup | None = None
    mutations_owed: int = 0
    now_ns: int = 0
    unmeasured_version: object = None
    request_throttle: RequestThrottle | None = None
    request_throttle_version: object = None
    reported_at_ms: int = 0
    uses_share_fetch: bool = False
    share_held_until_ms: int = 0
    authenticated: bool = False
    sasl: SaslExchange | None = None
    queued_bytes: int = 0
    _client_ids_bytes: int = 0  # of client ids
    _question_bytes: int = 0  # of the request at the shell
    question: Question | None = None
    forward: bytes | None = None
    guarded: Guarded | None = None
    passed_front: bytes = b""
    passed_version: int = -1
    _identities: tuple[Identity, ...] = ()  # nearly always one
    identity: Identity | None = None

    def __post_init__(self) -> None:
        self.walks = _PLAIN if self.observer is None else self.observer
        self.walks_all = self.walks.walks_all
        self.mute_limits = MuteLimits(self.engine)
        self.virtual_time = ConnectionTime(self.in_flight)
        self.user = self.settings.user

    @property
    def kept_bytes(self) -> int:
        """The memory in bytes that counts against the limit for kept bytes; many owed responses count as well."""
        kept = self.queued_bytes + self.requests.kept_bytes + self.responses.kept_bytes
        owed = len(self.in_flight)
        if owed >= _ENTRIES_COUNTED_MIN:
            kept += owed * (ENTRY_BYTES if self.observer is None else self.observer.entry_bytes)
        return kept

    def identify(self, client_id: bytes, now_ms: int) -> Identity:
        """Make the identity of this client id the current one, and return it; a new one is created if necessary."""
        key = client_id if len(client_id) <= CLIENT_ID_CHARACTERS_MAX else _LONG_CLIENT_ID
        identity = next((identity for identity in self._identities if identity.key == key), None)
        if identity is None or key is _LONG_CLIENT_ID:
            name = client_id.decode("utf-8", "replace")
            quota = self.engine.client(self.user, name, self.settings.broker)
            if identity is None or identity.quota is not quota:
                if identity is not None or len(self._identities) >= _IDENTITIES_MAX:
                    self.leave(now_ms)
                identity = self._create_identity(key, quota)
        self.identity = identity
        self.unmeasured_version = self.request_throttle_version = None
        return identity

    def _create_identity(self, key: bytes, quota: ClientQuota) -> Identity:
        """Create the identity of a client id that is new on this channel."""
        if self._identities:
            self._client_ids_bytes += len(key) + _IDENTITY_BYTES
            self.queued_bytes += len(key) + _IDENTITY_BYTES
        identity = Identity(key, quota)
        self._identities = (*self._identities, identity)
        identity.produce.connection = identity.fetch.connection = self.virtual_time
        identity.produce.hold_ms_max = self.mute_limits.hold_ms_max
        return identity

    def set_user(self, user: str, now_ms: int) -> None:
        """Set the principal that SASL has authenticated, "" if unreadable; its quotas apply from now on."""
        self.authenticated = True
        if user != self.user:
            self.leave(now_ms)
            self.user = user

    def begin_session(self, lifetime_ms: int, now_ms: int) -> None:
        """Limit mutes to the client's session, which ends in `lifetime_ms`; 0: it has no end."""
        self.mute_limits.begin_session(lifetime_ms, now_ms)
        self._limit_holds()

    def note_session_timeout(self, session_timeout_ms: int) -> None:
        """Limit mutes by the session timeout of a group request, in ms; 0 if the request has none."""
        self.mute_limits.note_session_timeout(session_timeout_ms)
        self._limit_holds()

    def _limit_holds(self) -> None:
        hold_ms_max = self.virtual_time.mute_ms_max = self.mute_limits.hold_ms_max
        for identity in self._identities:
            identity.produce.hold_ms_max = hold_ms_max

    def leave(self, now_ms: int) -> None:
        """Detach all identities from their throttles, as the channel closes, or its user or client ids change."""
        for identity in self._identities:
            identity.leave(now_ms)
        self._identities = ()
        self.virtual_time.settle(now_ms)
        self.queued_bytes -= self._client_ids_bytes
        self._client_ids_bytes = 0
        self.identity = None

    def mute(self, throttle: Muting, throttle_ms: int, now_ms: int) -> int:
        """Mute the channel from now on; returns the throttle time for the response, in ms (KIP-219 steps 1 and 2)."""
        mute_ms = self.mute_limits.bounded(throttle_ms, now_ms)
        if now_ms + mute_ms > self.mute_until_ms:
            self.mute_until_ms = now_ms + mute_ms
            if self.muting is not throttle or self._limit_version is not self.engine.version:
                self.muting = throttle
                self._muted_at = self._limit(throttle)
                self._limit_version = self.engine.version
        if self.observer is not None:
            self.observer.muted(throttle, throttle_ms, mute_ms)
        return mute_ms

    def reports(self, mute_ms: int, now_ms: int) -> bool:
        """Whether the throttle time of a mute is written into the response; False if it is 0."""
        if not mute_ms:
            return False
        return not self.mute_limits.schedules() or is_reported(mute_ms, self.reported_at_ms, now_ms)

    def reported_ms(self, mute_ms: int, now_ms: int) -> int:
        """Return the throttle time to write into the response for a mute: all of it, or 0 (`is_reported`)."""
        if self.reports(mute_ms, now_ms):
            self.reported_at_ms = now_ms
            return mute_ms
        self.stats.throttle_times_untold += mute_ms > 0
        return 0

    def count_connection(self, now_ms: int) -> None:
        """Count the connection, once, against its user's rate of connections; beyond it the channel is muted.

        A client that has not authenticated is ANONYMOUS, to which the default user's rate does not apply.
        """
        self.counted = True
        over = self.engine.connections.connect(
            self.user, self.settings.broker, self.stats, now_ms, exactly=self.user == ANONYMOUS
        )
        if over is not None:
            self.mute(*over, now_ms)

    @property
    def mutes_acknowledgements(self) -> bool:
        """Whether the present mute also delays requests in which share consumers acknowledge records.

        True for a mute by a request quota or a connection rate; other mutes let them pass.
        """
        return isinstance(self.muting, RequestThrottle | UserThrottle)

    def muted_by(self, throttle: AnyThrottle, now_ms: int) -> int:
        """Return for how many ms from now the channel is muted because of this throttle; 0 if it is not."""
        return max(0, self.mute_until_ms - now_ms) if self.muting is throttle else 0

    def enter(self, intake: Intake) -> None:
        """Set the intake, which decides whether requests are taken; no effect after ENDED."""
        if self.intake is not Intake.ENDED:
            self.intake = intake
            self.in_flight_max = IN_FLIGHT_MAX if intake is Intake.OPEN else 0

    def respond_locally(
        self, correlation_id: int, version: int, response: bytes | bytearray | memoryview
    ) -> None:
        """Add a local response to the owed ones; it is sent when all earlier ones have been sent."""
        self.queued_bytes += len(response)
        self.in_flight.append((correlation_id, version, LocalResponse(response)))

    def respond_later(self, question: Question, forwarded: Callable[[Forward], Owed] | None = None) -> None:
        """Give a request to the shell, which makes the response; no further request is taken before that.

        Args:
            forwarded: creates the `Owed` for the broker's response if the shell first sends a request to the broker.
        """
        self.question = question
        self._question_bytes = len(question.frame)
        self.queued_bytes += self._question_bytes
        self.in_flight.append((question.correlation_id, question.version, PendingResponse(forwarded)))
        self.enter(Intake.AWAIT_SHELL)

    def responded(self, response: bytes | bytearray | SharedResponse | Forward) -> None:
        """Accept what the shell returns for a `Question`: the response for the client, or a request for the broker."""
        if isinstance(response, Forward):
            self._forward_first(response)
            return
        correlation_id, version, owed = self.in_flight.pop()
        assert isinstance(owed, PendingResponse), "nothing follows a response that is owed later"
        if isinstance(response, SharedResponse):
            self.respond_locally(correlation_id, version, response.head)
            self.respond_locally(RESPONSE_REST, version, response.rest)
        else:
            self.respond_locally(correlation_id, version, response)
        self.queued_bytes -= self._question_bytes
        self._question_bytes = 0
        self.enter(Intake.OPEN)

    def _forward_first(self, forward: Forward) -> None:
        correlation_id, version, owed = self.in_flight[-1]
        assert isinstance(owed, PendingResponse), "nothing follows a response that is owed later"
        assert owed.forwarded is not None, "the API has a use for the broker's response"
        self.in_flight[-1] = (correlation_id, version, owed.forwarded(forward))
        self.forward = forward.frame

    def reconsider(self, *, ending: bool = False) -> None:
        """End the present mute if its limit was raised or removed, or if quotas are no longer enforced.

        The client's next request is checked again, so no quota is exceeded.

        Args:
            ending: the connection ends; end the mute also if nothing has changed.
        """
        if self.observer is not None:
            self.observer.reconsidered()
        throttle = self.muting
        if throttle is None:
            return
        limit = self._limit(throttle)
        raised = limit is None or self._muted_at is None or limit > self._muted_at
        if raised or ending or not self.engine.enforcing:
            self.mute_until_ms = 0
            self.muting = None

    def _limit(self, throttle: Muting) -> float | None:
        if not isinstance(throttle, Throttle | RequestThrottle):
            return throttle.limit_now()
        limit, _ = self.engine.definitions.limit(throttle.key, throttle.user, throttle.client_id)
        return limit


# The smallest elements have two or three bytes, and one costs up to 0.5 us: at most about 3 ms.
AT_ONCE_BYTES_MAX: Final = 16 * 1024


NS_PER_MS: Final = 1_000_000

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class ChannelDirection(ABC):
    """One direction of a channel. `proxy.channel.channel` defines its interface for the shell.

    Attributes:
        verdict: read by the shell after each `receive`.
        moved_ns: the time of the last progress, in ns: a part of a large frame after its head has passed, pending
            output was written, or the source was connected. In the response direction also the beginning of the last
            measured response.
        frame_bytes: the size of the response being decided on, with its length prefix.
        walk: the walk through the frame under way; None if it is not walked.
        response_owed: whether the broker will respond to the Produce under way, which is walked or partly forwarded.
        dividing: the response under way that is divided between a consumer's two quotas; None if it is not.
    """

    state: ChannelState
    verdict: Verdict = field(default_factory=Verdict, init=False)
    moved_ns: int = field(default=0, init=False)
    frame_bytes: int = field(default=0, init=False)
    walk: Walk | None = field(default=None, init=False)
    response_owed: bool = field(default=False, init=False)
    dividing: "Divided | None" = field(default=None, init=False)
    _charged_flow: Flow | None = field(default=None, init=False)
    _parsing: Job | None = field(default=None, init=False)  # the job whose result is awaited

    # The cause of the error for frames that are too long.
    too_long: ClassVar[str]

    @abstractmethod
    def receive(self, buf: Buffer, start: int, end: int, now_ns: int) -> Verdict:
        """Decide what to do with the received bytes buf[start:end]; those to forward may be patched in place.

        Returns `verdict`, the one object of this direction: the next call overwrites it.
        """

    def mid_frame(self) -> bool:
        """Whether a frame has been forwarded in part."""
        return self.verdict.passthrough > 0 or self.walk is not None

    def recharge_due(self, now_ms: int) -> bool:  # noqa: ARG002 - requests are
        """Whether the shell must call `receive` before it forwards more of a partly forwarded request.

        True if its missing bytes are late: their charge was given back, and has to be made again.
        """
        return False

    def skip_passthrough(self, start: int, end: int) -> int:
        """Return where the passthrough bytes in buf[start:end] end, and count these as forwarded."""
        count = min(self.verdict.passthrough, end - start)
        self.verdict.passthrough -= count
        self.moved_ns = self.state.now_ns
        return start + count

    def passed(self, count: int, now_ns: int) -> None:
        """Register progress: `count` passthrough bytes were forwarded.

        With 0, pending output was written, or the source of the bytes was connected.
        """
        self.verdict.passthrough -= count
        self.moved_ns = now_ns

    def report_mute(self, buf: "Buffer", throttle_at: int, mute_ms: int, now_ms: int) -> None:
        """Write a mute into the head of a response at `throttle_at`, as far as it is reported, and if it is longer."""
        reported_ms = self.state.reported_ms(mute_ms, now_ms)
        (broker_ms,) = unpack_from(">i", buf, throttle_at)
        if reported_ms > broker_ms:
            pack_into(">i", buf, throttle_at, reported_ms)
            self.verdict.patches += 1

    def order_more(self, have: int, length: int) -> int:
        """Set the order MORE, since the part of the frame that has arrived is too short; returns the order.

        Args:
            have: the number of bytes that have arrived, the length prefix included.
            length: the frame's length without the prefix.

        Raises:
            PeerError: the frame is complete, so its fields end too early.
        """
        if have >= length + 4:
            raise PeerError("malformed", f"a frame of {length} bytes ends before its contents do")
        self.verdict.need = min(length + 4, 2 * have + 64)
        self.verdict.order = MORE
        return MORE

    def order_more_until(self, need: int) -> int:
        """Order MORE until `need` bytes of the frame have arrived, its length prefix included; returns the order."""
        self.verdict.need = need
        self.verdict.order = MORE
        return MORE

    def whole(self, have: int, length: int, most: int) -> bool:
        """Whether a frame that must be complete has arrived completely; if not, the order is MORE.

        Args:
            have: the number of bytes that have arrived, the prefix included.
            length: the frame's length without the prefix.
            most: the largest `length` that is accepted (`proxy.channel.errors`).

        Raises:
            PeerError: the frame is longer.
        """
        if length > most:
            raise PeerError(self.too_long, f"a message of {length} bytes, at most {most} are kept")
        if have >= length + 4:
            return True
        self.verdict.need = length + 4
        self.verdict.order = MORE
        return False

    def parse(self, function: Callable[..., T], frame: bytes, *arguments: Any, weight: int = 0) -> T | None:
        """Return `function(frame, *arguments)`; None with an order while it runs in a thread.

            read = direction.parse(fetch.read_whole, frame, fields_at, version)
            if read is None:
                return direction.verdict.order

        A frame of at most AT_ONCE_BYTES_MAX is parsed in this call. A larger one becomes the verdict's `job`, with the
        order WAIT: the shell runs the job in a thread and passes the same bytes again; then the same call returns the
        function's result, or raises its exception. Until then nothing after the frame is handled. Before the result, a
        handler must only take steps that can be repeated.

        The function must belong to a module (no lambda, no bound method made for the call), must not return None, and
        depends on its arguments only, which do not change meanwhile. A result belongs to exactly these arguments: if
        the handler asks for something else, the result is discarded, and never used for another frame.

        Args:
            weight: bytes to add to the frame's size for the arguments.

        Raises:
            WireError: the function raised it.
        """
        if len(frame) + weight <= AT_ONCE_BYTES_MAX:
            return function(frame, *arguments)
        job = self._parsing
        if job is None or not job.matches(function, (frame, *arguments)):
            job = self._parsing = Job(function, (frame, *arguments))
            self.wait(0, held=False, job=job)
            return None
        if not job.done:
            self.wait(0, held=False)
            return None
        self._parsing = self.verdict.job = None
        parsed: T = job.result()
        return parsed

    def next_turn(self) -> int:
        """Set the order WAIT until the event loop's next turn, so that a long walk does not block it.

        Returns the order.
        """
        return self.wait(0, held=False, job=AGAIN)

    @property
    def kept_bytes(self) -> int:
        """The memory used in addition to the frame, in bytes: that of a job and of a walk."""
        kept = 0 if self._parsing is None else self._parsing.kept_bytes
        if self.walk is not None and self.walk.sizes:
            kept += len(self.walk.sizes) * TOPIC_SIZE_BYTES
        return kept

    def charge_ahead(self, flow: Flow | None) -> None:
        """Store to which flow the present request was charged before all of its bytes arrived; None when it is over.

        Args:
            flow: the state of this channel at the throttle.
        """
        self._charged_flow = flow
        self.verdict.charged_ahead = flow is not None

    def take_signal(self) -> Question | None:
        """Clear `Verdict.signal`; return the `Question` for which the shell must call `responded`; None without one."""
        self.verdict.signal = False
        question, self.state.question = self.state.question, None
        return question

    def replace(self, drop: int, insert: bytes | bytearray | memoryview, passthrough: int = 0) -> int:
        """Order REPLACE: drop `drop` bytes, send `insert` instead; then pass `passthrough` bytes of the frame."""
        self.verdict.drop = drop
        self.verdict.insert = insert
        self.verdict.passthrough = passthrough
        self.verdict.order = REPLACE
        return REPLACE

    def refuse(self, label: str) -> int:
        """Set the order REFUSE, since a Produce was held for as long as it may be; returns the order.

        Args:
            label: the reason under which it is counted.
        """
        self.state.stats.produce_refused[label] += 1
        self.state.awaits_responses = (
            True  # the other direction signals when all owed responses have been sent
        )
        self.verdict.order = REFUSE
        return REFUSE

    def await_responses(self) -> int:
        """Order WAIT until enough owed responses have arrived, which the other direction signals; returns the order."""
        self.state.awaits_responses = True
        return self.wait(0, held=False)

    def wait(self, until_ms: int, *, held: bool, job: Job | None = None) -> int:
        """Set the order WAIT until `until_ms`, or until a signal or the job's end if that is 0; returns the order.

        With a time, the result of `parse` is not kept, and the frame is parsed again later.

        Args:
            held: whether the request is held before its payload is read; otherwise the channel is muted.
        """
        if until_ms:
            self._parsing = None
            if self.state.observer is not None:
                self.state.observer.waits(held)
        self.verdict.until_ms = until_ms
        self.verdict.held = held
        self.verdict.job = job
        self.verdict.order = WAIT
        return WAIT


def copied(buf: Buffer, start: int, stop: int) -> bytes:
    """Return buf[start:stop] as bytes, copied only once; `bytes(buf[start:stop])` copies it twice."""
    with memoryview(buf)[start:stop] as part:
        return bytes(part)


def skip_header_tags(buf: Buffer | bytes, pos: int, end: int, *, flexible: bool = True) -> int | None:
    """Return where a request's fields begin, after its header; None if the header is not complete before `end`.

    Args:
        pos: where the client id ends.
        flexible: whether the header has a tag section.

    Raises:
        OversizedError: it has more tags than any valid header.
    """
    if not flexible:
        return pos
    try:
        return header.skip_header_tags(buf, pos, end)
    except TruncatedError:
        return None


def check_version(head: RequestHead, oldest: int = 0, newest: int | None = None) -> None:
    """Check that Sluice supports a request's version: one that its ApiVersions responses may offer.

    Args:
        newest: the newest supported version; None for the newest one that Kafka has.

    Raises:
        PeerError: the version is not from `oldest` to `newest`.
    """
    _, key, version, _, _ = head
    if not oldest <= version <= (MAX_VERSION[key] if newest is None else newest):
        raise PeerError("unsupported_version", f"{API_NAMES[key]} version {version}")


def fields_of(buf: Buffer | bytes, body: int, frame_end: int, head: RequestHead) -> int:
    """Return where a complete request's fields begin, after its header.

    Args:
        body: where the client id ends.

    Raises:
        PeerError: the request ends within its header.
    """
    length, key, version, _, _ = head
    fields_at = skip_header_tags(buf, body, frame_end, flexible=flexible(key, version))
    if fields_at is None:
        raise PeerError(
            "malformed", f"{API_NAMES[key]} version {version} of {length} bytes ends in its header"
        )
    return fields_at


# A walk's bytes are charged to topics; the topic with the longest throttle time mutes the channel. Kafka has no topic
# quotas; the rest is KIP-219: the channel is muted at the end of the frame that exceeded the quota. A Produce's
# response, which comes later, contains the throttle time. Nothing is returned for records that the broker refused:
# with acks=0 there is no response, and otherwise every request's topics would be kept until it arrives. A Fetch
# response has its throttle time in its head, before the topics are known: only the mute delays the next request. A
# frame of many topics is charged in parts of 250 while it passes, each in a turn of the loop of its own, so that a
# frame of millions delays nothing, and a topic's position in it does not matter.
#
# A topic id without a known name is charged when its name is known (`TopicQuotas.charge_unnamed`). Counted but not
# charged are impossible names, which brokers refuse, and ids beyond those that can be looked up at once. If no topic
# is limited, no walk is begun (`Engine.charges_produced_topics`, `charges_fetched_topics`).

# The characters of a Kafka topic name. A client may send any bytes, and a name may become a throttle.
_NAME_BYTES: Final = (string.ascii_letters + string.digits + "._-").encode()


def charge_produced(state: ChannelState, walk: Walk, now_ms: int, *, response_owed: bool) -> None:
    """Charge the topics of a walked Produce with their bytes; beyond a topic's quota, the channel is muted.

    Args:
        response_owed: whether it has a response, which then is the last one owed, and gets the throttle time.
    """
    until_ms = _charge(state, PRODUCER_BYTE_RATE, walk, now_ms)
    if until_ms and response_owed and state.in_flight:
        correlation_id, version, owed = state.in_flight[-1]
        assert owed is not None, "the response to a walked Produce reports its throttle time"
        state.in_flight[-1] = (correlation_id, version, owed.muted(until_ms))


def charge_fetched(state: ChannelState, walk: Walk, now_ms: int) -> bool:
    """Charge the topics of a walked Fetch or ShareFetch response with their bytes; returns whether a mute has begun."""
    return _charge(state, CONSUMER_BYTE_RATE, walk, now_ms) > 0


def _charge(state: ChannelState, key: str, walk: Walk, now_ms: int) -> int:
    """Charge all walked topics; returns the end of the mute for them, in ms; 0 if there is none."""
    topics = state.engine.topics
    broker = state.settings.broker
    found: dict[str, int] = {}
    for raw, size in walk.take_sizes().items():
        if raw == OTHER_TOPICS:
            name = None
        elif walk.by_id:
            name = topics.names.name(raw, now_ms) or topics.charge_unnamed(key, broker, raw, size, now_ms)
        elif raw.translate(None, _NAME_BYTES):
            name = None
        else:
            name = raw.decode("ascii")
        if name is None:
            state.stats.topic_bytes_uncharged += size
        elif name:
            found[name] = found.get(name, 0) + size
    longest = topics.charge(key, broker, found, now_ms, state.virtual_time)
    return 0 if longest is None else now_ms + state.mute(*longest, now_ms)
