"""The shared state of a channel's two directions. A mute begins in `ChannelState.mute`; `reconsider` ends it early.

Non-obvious:

- A connection belongs to a user only from its first real request on. ApiVersions and SASL come before the user is
  known; so the rate of connections is checked where a header's client id is read anyway.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from protocol.messages.fetch_session import SessionTable
from proxy.channel.identity import Identity
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
from proxy.channel.intake import IN_FLIGHT_MAX, Intake
from proxy.channel.mute_limits import MuteLimits
from proxy.channel.observer import Muting, Observer
from proxy.channel.own import Guarded
from proxy.channel.probe import Probe, ProbedLog
from proxy.channel.reported_times import is_reported
from proxy.channel.sasl_exchange import SaslExchange
from proxy.channel.settings import ANONYMOUS, ChannelSettings
from proxy.channel.topic_lookup import TopicLookup
from proxy.channel.walks import Charges, TopicWalks, Walks
from proxy.stats import Stats
from quotas.engine import CLIENT_ID_CHARACTERS_MAX, Engine
from quotas.limiters.virtual_time import ConnectionTime
from quotas.throttles.bandwidth import Throttle
from quotas.throttles.client import ClientQuota
from quotas.throttles.connections import UserThrottle
from quotas.throttles.mutation import MutationThrottle
from quotas.throttles.request import RequestThrottle

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
        acks_zero: whether a Produce with acks=0 was seen: it must be delivered even if the client closes.
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
        "acks_zero",
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
        self.acks_zero = False
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
            return throttle.rate()
        limit, _ = self.engine.definitions.limit(throttle.key, throttle.user, throttle.client_id)
        return limit
