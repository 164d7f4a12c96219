"""The shared state of a channel's two directions. A mute begins in `ChannelState.mute`; `reconsider` ends it early.

Non-obvious:

- A connection belongs to a user only from its first real request on. ApiVersions and SASL come before the user is
  known; so the rate of connections is checked where a header's client id is read anyway.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from protocol.messages.fetch_session import SessionTable
from proxy.channel.in_flight import (
    RESPONSE_REST,
    Forward,
    InFlight,
    LocalResponse,
    Owed,
    PendingResponse,
    Question,
    SharedResponse,
)
from proxy.channel.observer import Muting, Observer
from proxy.channel.own import Guarded
from proxy.channel.probe import Probe, ProbedLog
from proxy.channel.sasl_exchange import SaslExchange
from proxy.channel.settings import ANONYMOUS, ChannelSettings
from proxy.channel.verdict import IN_FLIGHT_MAX, Intake
from proxy.channel.walks import Charges, TopicWalks, Walks
from proxy.system.stats import Stats
from quotas.engine import CLIENT_ID_CHARACTERS_MAX, Engine
from quotas.limiters.flow import MS_UNBOUNDED, Flow
from quotas.limiters.virtual_time import ConnectionTime
from quotas.options import GROUP_SESSION_TIMEOUT_MS, capped
from quotas.throttles.bandwidth import Throttle
from quotas.throttles.client import ClientQuota
from quotas.throttles.connections import UserThrottle
from quotas.throttles.mutation import MutationThrottle
from quotas.throttles.request import RequestThrottle

# ----------------------------------------------------------------------------------------------------
# The bounds of a channel's mutes and holds, in addition to the throttle time.
#
# `quotas.mute_seconds_max`      of every mute (`quotas.options.capped`); the rest of a throttle time stays as debt
# group's session timeout       a fifth of it, if the connection had group requests: heartbeats wait too
# end of the SASL session        a broker closes the connection for a later request, in time or not; KIP-368


_SESSION_TIMEOUT_MS_MIN: Final = 6_000
# The last part of a session, without mutes: requests that were sent in it must reach the broker before its end.
# Clients authenticate again after 85 to 95 % of the session (Java), or later still.
_SESSION_END_SHARE: Final = 10
_SESSION_END_MS_MAX: Final = 20_000
# Several held requests may wait one after the other.
_SESSION_HOLD_SHARE: Final = 20


class MuteLimits:
    """The bounds of one channel's mutes and holds.

    Attributes:
        group_session_timeout_ms: the shortest session timeout named here; 0 where a group request named none;
            None where no group request was seen.
    """

    __slots__ = ("_engine", "_session_ms", "_session_until_ms", "group_session_timeout_ms")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session_ms = 0  # the duration of the principal's session; 0 = unlimited (KIP-368)
        self._session_until_ms = 0  # the latest end of a mute
        self.group_session_timeout_ms: int | None = None

    def bounded(self, throttle_ms: int, now_ms: int) -> int:
        """Return the part of a throttle time that is enforced from now on and sent to the client, in ms."""
        mute_ms = self._capped(throttle_ms)
        return min(mute_ms, max(0, self._session_until_ms - now_ms)) if self._session_ms else mute_ms

    @property
    def hold_ms_max(self) -> int:
        """The longest hold of a Produce, in ms: heartbeats and the session's end limit a hold like a mute."""
        hold_ms_max = MS_UNBOUNDED
        if self.group_session_timeout_ms is not None:
            hold_ms_max = self._capped(MS_UNBOUNDED)
        if self._session_ms:
            hold_ms_max = min(hold_ms_max, self._session_ms // _SESSION_HOLD_SHARE)
        return hold_ms_max

    def begin_session(self, lifetime_ms: int, now_ms: int) -> None:
        """Note that the client must authenticate again within this time, in ms; 0 for never (KIP-368)."""
        self._session_ms = max(lifetime_ms, 0)
        end_ms = min(self._session_ms // _SESSION_END_SHARE, _SESSION_END_MS_MAX)
        self._session_until_ms = now_ms + self._session_ms - end_ms

    def note_session_timeout(self, session_timeout_ms: int) -> None:
        """Note a group request; 0 if it has no session timeout.

        Brokers accept none below 6 s (group.min.session.timeout.ms): a client cannot avoid mutes with a shorter one.
        """
        if session_timeout_ms:
            session_timeout_ms = max(session_timeout_ms, _SESSION_TIMEOUT_MS_MIN)
        known = self.group_session_timeout_ms
        if known is None or known == 0:
            self.group_session_timeout_ms = session_timeout_ms
        elif session_timeout_ms:
            self.group_session_timeout_ms = min(known, session_timeout_ms)

    def _capped(self, throttle_ms: int) -> int:
        mute_ms_max = self._engine.options.mute_seconds_max * 1000
        group_ms = self.group_session_timeout_ms
        return capped(throttle_ms, int(mute_ms_max), GROUP_SESSION_TIMEOUT_MS if group_ms == 0 else group_ms)


# ----------------------------------------------------------------------------------------------------
# Decides which throttle times are reported in responses (KIP-219); the channel is muted for all of them.
#
# By KIP-219 a broker mutes the channel and tells the client for how long; the quota holds even if the client
# is not told.
# Policy `schedule` throttles each request for a short time, while Kafka lets several pass and then throttles
# for a long
# one; and several clients write a log line for each reported time (a Java 4.4 client at WARN). So under
# `schedule` a
# short time is reported only if none was reported for a while on this connection. A time that was not
# reported is not
# added to a later one, since a client that waits by itself would wait for it twice.
#
# Always reported are long times, so that a client does not run into its request timeout; the time in an empty
# response to
# a Fetch, which would be invalid without one if the Fetch is full; and the time of a partition mutation,
# since a client
# that returns sooner is refused again. Under `kip13` all times are reported, as in Kafka.


# A tenth of the shortest default of a client's timeout (franz-go's 10 s): five requests sent together wait for half.
REPORTED_ALWAYS_MS: Final = 1000
REPORT_EVERY_MS: Final = 5000
_NEVER_MS: Final = 0  # no time was reported yet


def is_reported(throttle_ms: int, reported_at_ms: int, now_ms: int) -> bool:
    """Whether a response reports a throttle time under `schedule`.

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


# ----------------------------------------------------------------------------------------------------
# The topic sizes that a waiting request has asked for (KIP-599); requests and responses are in `topic_sizes`.


class TopicLookup:
    """Sizes of topics, filled in as responses arrive.

    Attributes:
        pending: the number of responses still owed.
        sizes: number of partitions by name or id; topics that the broker does not know are not in it.
    """

    __slots__ = ("pending", "sizes")

    def __init__(self) -> None:
        self.pending = 0
        self.sizes: dict[str | bytes, int] = {}


# ----------------------------------------------------------------------------------------------------
# The identity of a channel: the quotas of a client id, and the channel's own flows for them.
#
# Kafka uses the client id in each request's header, not one per connection (kafka-quotas.md §1.3), so a
# channel may have
# several identities; `ChannelState` keeps them in a bounded map.


class Identity:
    """One client id on one channel.

    Attributes:
        key: the client id as sent.
        quota: the throttles, shared with every other channel of the same quota entity.
        produce, fetch: this channel's flows for the throttles.
        fetched: the owed response of an unlimited Fetch; None before the first one.
    """

    __slots__ = ("fetch", "fetched", "key", "produce", "quota")

    def __init__(self, key: bytes, quota: ClientQuota) -> None:
        self.key = key
        self.quota = quota
        self.produce: Flow = quota.produce.flow()
        self.fetch: Flow = quota.fetch.flow()
        self.fetched: Owed | None = None

    def leave(self, now_ms: int) -> None:
        """Remove both flows: the channel sends no more requests with this client id."""
        self.quota.produce.leave(self.produce, now_ms)
        self.quota.fetch.leave(self.fetch, now_ms)
        self.fetched = None  # it refers to this object


AnyThrottle: TypeAlias = Throttle | MutationThrottle | RequestThrottle

# The most client ids on one connection. Real clients use one, franz-go's admin tools two or three.
_IDENTITIES_MAX: Final = 32
# The memory of each of them but the first, in addition to its bytes.
_IDENTITY_BYTES: Final = 512
_LONG_CLIENT_ID: Final = bytes(CLIENT_ID_CHARACTERS_MAX + 1)  # stands for all longer client ids
_TOPIC_WALKS: Final = TopicWalks()


class Timed(Protocol):
    """A request whose time is measured (`request_time`)."""

    sent_ns: int  # when its last byte was forwarded


class ChannelState:
    """The state that a channel's two directions share.

    Attributes:
        mute_until_ms: no further request is handled before this time (KIP-219); past, or 0, when not muted.
        mute_limits: the bounds of every mute and hold.
        intake: whether requests are taken; `enter` changes it.
        in_flight_max: with this many owed responses no further request is handled; 0 unless the intake is OPEN.
        awaits_responses: the next request waits for responses, so nothing is read; the response direction signals when
            enough have come.
        lookup: the sizes requested from the broker for the waiting request; None if there is none.
        mutations_owed: owed responses of counted topic mutations: one at a time, as in brokers.
        counted: whether the connection was counted against its user's rate of connections.
        now_ns: when the shell last read bytes for a direction, in nanoseconds of the clock of `now_ms`.
        unmeasured_version: the engine's version for which it is known that the current identity has no request quota.
        request_throttle, request_throttle_version: the current identity's request quota, and the engine's version then.
        measured: the last measured request, until its response arrives.
        virtual_time: the connection's waits if quotas were enforced; used while they are not.
        reported_at_ms: when a response has last reported a throttle time; 0 for never.
        charges: whether Produce and Fetch must be walked: the engine, for topic quotas, or a capture.
        walks: creates the walks.
        probe: the last timed request (`proxy.channel.probe`); None before the first.
        probe_armed: whether requests are timed.
        probed: timed requests whose responses have begun, since they were last taken.
        observer: the channel's observer; None without one.
        authenticated: whether `user` comes from a SASL exchange.
        library: the name and version of the client's software, as sent in ApiVersions; "" if unknown.
        user: the principal's name; "" if it cannot be read. `set_user` changes it.
        sasl: the SASL exchange under way.
        fetch_owed: whether a limited Fetch or ShareFetch is with the broker: the next one waits for its response;
            otherwise pipelined ones would all be forwarded before the first one is charged.
        kept_bytes: of client ids, local responses that wait for their turn, and the request at the shell.
        question: a request for the shell to respond to; the shell takes it from here.
        uses_share_fetch: whether a ShareFetch or ShareAcknowledge was seen; if so, acknowledgements pass a mute.
        share_held_until_ms: the latest end of the next ShareFetch's wait at its header; 0 before it begins.
        forward: the shell's request to the broker, until the request direction inserts it.
        guarded: what was found in the request being decided on, where something is Sluice's own (`guard`).
        passed_front, passed_version: the last Produce with one topic that is not Sluice's own, to the end of the name,
            and its version; -1 before the first.
    """

    __slots__ = (
        "_client_ids_bytes",
        "_identities",
        "_muted_at",
        "_muted_by",
        "_question_bytes",
        "authenticated",
        "awaits_responses",
        "charges",
        "counted",
        "engine",
        "fetch_owed",
        "forward",
        "guarded",
        "identity",
        "in_flight",
        "in_flight_max",
        "intake",
        "kept_bytes",
        "library",
        "lookup",
        "measured",
        "mutations_owed",
        "mute_limits",
        "mute_until_ms",
        "now_ns",
        "observer",
        "passed_front",
        "passed_version",
        "probe",
        "probe_armed",
        "probed",
        "question",
        "reported_at_ms",
        "request_throttle",
        "request_throttle_version",
        "sasl",
        "sessions",
        "settings",
        "share_held_until_ms",
        "stats",
        "unmeasured_version",
        "user",
        "uses_share_fetch",
        "virtual_time",
        "walks",
    )

    def __init__(
        self, settings: ChannelSettings, engine: Engine, sessions: SessionTable, stats: Stats
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.charges: Charges = engine
        self.walks: Walks = _TOPIC_WALKS
        self.observer: Observer | None = None
        self.probe: Probe | None = None
        self.probe_armed = False
        self.probed = ProbedLog()
        self.sessions = sessions
        self.stats = stats
        self.in_flight: InFlight = []
        self.intake = Intake.OPEN
        self.in_flight_max = IN_FLIGHT_MAX
        self.mute_until_ms = 0
        self._muted_by: Muting | None = None
        self._muted_at: float | None = None  # its limit at that time
        self.mute_limits = MuteLimits(engine)
        self.library = ""
        self.counted = False
        self.awaits_responses = False
        self.fetch_owed = False
        self.lookup: TopicLookup | None = None
        self.mutations_owed = 0
        self.now_ns = 0
        self.unmeasured_version: object = None
        self.request_throttle: RequestThrottle | None = None
        self.request_throttle_version: object = None
        self.measured: Timed | None = None
        self.virtual_time = ConnectionTime(self.in_flight)
        self.reported_at_ms = 0
        self.uses_share_fetch = False
        self.share_held_until_ms = 0
        self.user = settings.user
        self.authenticated = False
        self.sasl: SaslExchange | None = None
        self.kept_bytes = 0
        self._client_ids_bytes = 0  # of client ids
        self._question_bytes = 0  # of the request at the shell
        self.question: Question | None = None
        self.forward: bytes | None = None
        self.guarded: Guarded | None = None
        self.passed_front = b""
        self.passed_version = -1
        self._identities: tuple[Identity, ...] = ()  # nearly always one
        self.identity: Identity | None = None

    def identify(self, client_id: bytes, now_ms: int) -> Identity:
        """Make `client_id` the current identity."""
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
            self.kept_bytes += len(key) + _IDENTITY_BYTES
        identity = Identity(key, quota)
        self._identities = (*self._identities, identity)
        identity.produce.connection = identity.fetch.connection = self.virtual_time
        identity.produce.hold_ms_max = self.mute_limits.hold_ms_max
        return identity

    def set_user(self, user: str, now_ms: int) -> None:
        """Set the SASL exchange's principal, as far as known; if it is a new one, identities are looked up again."""
        self.authenticated = True
        if user != self.user:
            self.leave(now_ms)
            self.user = user

    def begin_session(self, lifetime_ms: int, now_ms: int) -> None:
        """Note that the client must authenticate again within this time, in ms; 0 for never. Mutes end before."""
        self.mute_limits.begin_session(lifetime_ms, now_ms)
        self._limit_holds()

    def note_session_timeout(self, session_timeout_ms: int) -> None:
        """Note a group request; 0 if it has no session timeout."""
        self.mute_limits.note_session_timeout(session_timeout_ms)
        self._limit_holds()

    def _limit_holds(self) -> None:
        hold_ms_max = self.virtual_time.mute_ms_max = self.mute_limits.hold_ms_max
        for identity in self._identities:
            identity.produce.hold_ms_max = hold_ms_max

    def leave(self, now_ms: int) -> None:
        """Remove the flows of all identities: the channel closes, or has used too many client ids."""
        for identity in self._identities:
            identity.leave(now_ms)
        self._identities = ()
        self.virtual_time.settle(now_ms)
        self.kept_bytes -= self._client_ids_bytes
        self._client_ids_bytes = 0
        self.identity = None

    def mute(self, throttle: Muting, throttle_ms: int, now_ms: int) -> int:
        """Mute the channel from now on; returns the throttle time for the response, in ms (KIP-219 steps 1 and 2)."""
        mute_ms = self.mute_limits.bounded(throttle_ms, now_ms)
        if now_ms + mute_ms > self.mute_until_ms:
            self.mute_until_ms = now_ms + mute_ms
            self._muted_by = throttle
            self._muted_at = self._limit(throttle)
        if self.observer is not None:
            self.observer.muted(throttle, throttle_ms, mute_ms)
        return mute_ms

    def reported_ms(self, mute_ms: int, now_ms: int) -> int:
        """Return the throttle time that a response reports for a mute: all of it, or 0 if it is not reported."""
        if not mute_ms:
            return 0
        schedule = self.engine.options.policy == "schedule"
        if schedule and not is_reported(mute_ms, self.reported_at_ms, now_ms):
            self.stats.throttle_times_untold += 1
            return 0
        self.reported_at_ms = now_ms
        return mute_ms

    def count_connection(self, now_ms: int) -> None:
        """Count the connection, once, against its user's rate; over it the channel is muted (`user_connections`).

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
        """Whether the mute is for a quota that counts every request, also acknowledgements of records."""
        return isinstance(self._muted_by, RequestThrottle | UserThrottle)

    @property
    def muting(self) -> Muting | None:
        """The throttle of the present or last mute."""
        return self._muted_by

    def muted_by(self, throttle: AnyThrottle, now_ms: int) -> int:
        """Return the rest of the mute by this throttle, in ms."""
        return max(0, self.mute_until_ms - now_ms) if self._muted_by is throttle else 0

    def enter(self, intake: Intake) -> None:
        """Change the intake; ENDED is final."""
        if self.intake is not Intake.ENDED:
            self.intake = intake
            self.in_flight_max = IN_FLIGHT_MAX if intake is Intake.OPEN else 0

    def respond_locally(
        self, correlation_id: int, version: int, response: bytes | bytearray | memoryview
    ) -> None:
        """Owe a local response; it is sent in its turn."""
        self.kept_bytes += len(response)
        self.in_flight.append((correlation_id, version, LocalResponse(response)))

    def respond_later(self, question: Question, forwarded: Callable[[Forward], Owed] | None = None) -> None:
        """Owe a response of the shell; no further request is taken before it.

        Args:
            forwarded: makes the owed response if the shell sends a request to the broker first.
        """
        self.question = question
        self._question_bytes = len(question.frame)
        self.kept_bytes += self._question_bytes
        self.in_flight.append((question.correlation_id, question.version, PendingResponse(forwarded)))
        self.enter(Intake.AWAIT_SHELL)

    def responded(self, response: bytes | bytearray | SharedResponse) -> None:
        """Take the response of the shell; it is sent in its turn."""
        correlation_id, version, owed = self.in_flight.pop()
        assert isinstance(owed, PendingResponse), "nothing follows a response that is owed later"
        if isinstance(response, SharedResponse):
            self.respond_locally(correlation_id, version, response.head)
            self.respond_locally(RESPONSE_REST, version, response.rest)
        else:
            self.respond_locally(correlation_id, version, response)
        self.kept_bytes -= self._question_bytes
        self._question_bytes = 0
        self.enter(Intake.OPEN)

    def forward_first(self, forward: Forward) -> None:
        """Send a request to the broker before the shell's own response."""
        correlation_id, version, owed = self.in_flight[-1]
        assert isinstance(owed, PendingResponse), "nothing follows a response that is owed later"
        assert owed.forwarded is not None, "the API has a use for the broker's response"
        self.in_flight[-1] = (correlation_id, version, owed.forwarded(forward))
        self.forward = forward.frame

    def reconsider(self) -> None:
        """End a mute that the changed quotas would not have begun, or not for so long.

        The client's next request is checked again, so no quota is exceeded.
        """
        throttle = self._muted_by
        if throttle is None:
            return
        limit = self._limit(throttle)
        raised = limit is None or self._muted_at is None or limit > self._muted_at
        if raised or not self.engine.enforcing:
            self.mute_until_ms = 0
            self._muted_by = None

    def _limit(self, throttle: Muting) -> float | None:
        if not isinstance(throttle, Throttle | RequestThrottle):
            return throttle.limit_now()
        limit, _ = self.engine.definitions.limit(throttle.key, throttle.user, throttle.client_id)
        return limit
