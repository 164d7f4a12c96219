"""What the two directions of one channel share. Every change of the mute goes through `ChannelState.mute`."""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from protocol.messages.fetch_session import SessionTable
from proxy.channel.identity import Identity
from proxy.channel.in_flight import REST, Forward, InFlight, Later, Made, Owed, Question, Shared
from proxy.channel.intake import IN_FLIGHT_MAX, Intake
from proxy.channel.mute_limits import MuteLimits
from proxy.channel.observer import Muting, Observer
from proxy.channel.sasl_exchange import SaslExchange
from proxy.channel.settings import ANONYMOUS, ChannelSettings
from proxy.channel.topic_lookup import TopicLookup
from proxy.channel.walks import Charges, TopicWalks, Walks
from proxy.stats import Stats
from quotas.engine import CLIENT_ID_CHARACTERS_MAX, ClientQuota, Engine
from quotas.throttles.bandwidth import Throttle
from quotas.throttles.mutation import MutationThrottle
from quotas.throttles.request import RequestThrottle
from quotas.throttles.user_connections import UserThrottle

__all__ = ["ChannelState"]

AnyThrottle: TypeAlias = Throttle | MutationThrottle | RequestThrottle

# Client ids seen on one connection. Real clients use one, franz-go's admin tools two or three.
_IDENTITIES_MAX: Final = 32
# What each of them but the first takes in memory beside its bytes.
_IDENTITY_BYTES: Final = 512
_LONG: Final = bytes(
    CLIENT_ID_CHARACTERS_MAX + 1
)  # stands for all client ids that are longer than is told apart
_TOPIC_WALKS: Final = TopicWalks()


class Timed(Protocol):
    """A request whose time is measured (`request_time`)."""

    sent_ns: int  # when its last byte was passed on


class ChannelState:
    """Shared by a channel's two sides.

    Attributes:
        mute_until_ms: no further request is handled before this time (KIP-219); 0 when not muted.
        mute_limits: what bounds every mute and hold.
        intake: whether requests are taken; `enter` changes it.
        in_flight_max: with so many responses owed no further request is handled; 0 unless the intake is OPEN.
        awaits_responses: the next request waits for responses, so nothing is read; the responses' side signals when
            enough have come.
        lookup: sizes that were asked of the broker for the request that waits; None where none does.
        mutations_owed: answers owed to topic mutations that are counted: one at a time, as brokers take them.
        counted: whether the connection was counted against its user's rate of connections.
        now_ns: when the shell read what it showed to a side last, in nanoseconds of the clock that `now_ms` is of.
        unmeasured: the engine's version for which it is known that the current identity has no request quota.
        requests, requests_version: the request quota of the current identity, and the engine's version then.
        measured: the request sent last of those that are measured, until its answer comes.
        would_mute_until_ms: until when a request quota would have muted the channel, if anything were enforced.
        charges: says whether Produce and Fetch have to be walked: the engine, for topics' sake, or a capture.
        walks: makes those walks.
        observer: looks on; None where nothing does.
        authenticated: whether a SASL exchange has said who `user` is.
        acks_zero: a Produce without answer was seen: what the client sent before closing must still be delivered.
        user: the principal's name; "" where there is one that can not be read. `become` changes it.
        sasl: the SASL exchange under way.
        fetch_owed: a limited Fetch or ShareFetch is with the broker: the next one waits for its answer, or pipelined
            ones would all be forwarded before the first one is charged.
        kept_bytes: of client ids, answers made here that wait for their turn, and the request that the shell answers.
        question: a request for the shell to answer, which takes it from here.
        shares: whether a ShareFetch or ShareAcknowledge was seen: then a mute is for all but acknowledgements.
        share_held_until_ms: until when the ShareFetch that comes next waits at its header at most; 0 before that.
        forward: what the shell has to say to the broker, until the requests' side puts it in.
    """

    __slots__ = (
        "_asked_bytes",
        "_identities",
        "_muted_at",
        "_muted_by",
        "_names_bytes",
        "acks_zero",
        "authenticated",
        "awaits_responses",
        "charges",
        "counted",
        "engine",
        "fetch_owed",
        "forward",
        "identity",
        "in_flight",
        "in_flight_max",
        "intake",
        "kept_bytes",
        "lookup",
        "measured",
        "mutations_owed",
        "mute_limits",
        "mute_until_ms",
        "now_ns",
        "observer",
        "question",
        "requests",
        "requests_version",
        "sasl",
        "sessions",
        "settings",
        "share_held_until_ms",
        "shares",
        "stats",
        "unmeasured",
        "user",
        "walks",
        "would_mute_until_ms",
    )

    def __init__(
        self, settings: ChannelSettings, engine: Engine, sessions: SessionTable, stats: Stats
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.charges: Charges = engine
        self.walks: Walks = _TOPIC_WALKS
        self.observer: Observer | None = None
        self.sessions = sessions
        self.stats = stats
        self.in_flight: InFlight = deque()
        self.intake = Intake.OPEN
        self.in_flight_max = IN_FLIGHT_MAX
        self.mute_until_ms = 0
        self._muted_by: Muting | None = None
        self._muted_at: float | None = None  # its limit then
        self.mute_limits = MuteLimits(engine)
        self.acks_zero = False
        self.counted = False
        self.awaits_responses = False
        self.fetch_owed = False
        self.lookup: TopicLookup | None = None
        self.mutations_owed = 0
        self.now_ns = 0
        self.unmeasured: object = None
        self.requests: RequestThrottle | None = None
        self.requests_version: object = None
        self.measured: Timed | None = None
        self.would_mute_until_ms = 0
        self.shares = False
        self.share_held_until_ms = 0
        self.user = settings.user
        self.authenticated = False
        self.sasl: SaslExchange | None = None
        self.kept_bytes = 0
        self._names_bytes = 0  # of client ids
        self._asked_bytes = 0  # of the request that the shell answers
        self.question: Question | None = None
        self.forward: bytes | None = None
        self._identities: dict[bytes, Identity] = {}
        self.identity: Identity | None = None

    def identify(self, client_id: bytes, now_ms: int) -> Identity:
        """Make `client_id` the one who is speaking."""
        key = client_id if len(client_id) <= CLIENT_ID_CHARACTERS_MAX else _LONG
        identity = self._identities.get(key)
        if identity is None or key is _LONG:
            name = client_id.decode("utf-8", "replace")
            quota = self.engine.client(self.user, name, self.settings.broker)
            if identity is None or identity.quota is not quota:
                identity = self._speaks(key, quota, now_ms)
        self.identity = identity
        self.unmeasured = self.requests_version = None
        return identity

    def _speaks(self, key: bytes, quota: ClientQuota, now_ms: int) -> Identity:
        """Take a place at the quota of another client."""
        if key in self._identities or len(self._identities) >= _IDENTITIES_MAX:
            self.leave(now_ms)
        if self._identities:
            self._names_bytes += len(key) + _IDENTITY_BYTES
            self.kept_bytes += len(key) + _IDENTITY_BYTES
        identity = self._identities[key] = Identity(quota)
        identity.produce.hold_ms_max = self.mute_limits.turn_hold_ms_max
        return identity

    def become(self, user: str, now_ms: int) -> None:
        """SASL has told the principal, as far as it can be known: if it is another one, all is identified anew."""
        self.authenticated = True
        if user != self.user:
            self.leave(now_ms)
            self.user = user

    def begin_session(self, lifetime_ms: int, now_ms: int) -> None:
        """The client has to authenticate again within this time, 0 for never (KIP-368): no mute outlasts a session."""
        self.mute_limits.begin_session(lifetime_ms, now_ms)
        self._limit_holds()

    def name_session_timeout(self, session_timeout_ms: int) -> None:
        """A group request has passed; 0 where it names no session timeout."""
        self.mute_limits.name_session_timeout(session_timeout_ms)
        self._limit_holds()

    def _limit_holds(self) -> None:
        hold_ms_max = self.mute_limits.turn_hold_ms_max
        for identity in self._identities.values():
            identity.produce.hold_ms_max = hold_ms_max

    def leave(self, now_ms: int) -> None:
        """Give back every turn: the channel closes, or has used too many names."""
        for identity in self._identities.values():
            identity.leave(now_ms)
        self._identities.clear()
        self.kept_bytes -= self._names_bytes
        self._names_bytes = 0
        self.identity = None

    def mute(self, throttle: Muting, throttle_ms: int, now_ms: int) -> int:
        """Mute the channel from now on; returns the time to tell the client, in ms (KIP-219 steps 1 and 2)."""
        told_ms = self.mute_limits.told(throttle_ms, now_ms)
        if now_ms + told_ms > self.mute_until_ms:
            self.mute_until_ms = now_ms + told_ms
            self._muted_by = throttle
            self._muted_at = self._limit(throttle)
        if self.observer is not None:
            self.observer.muted(throttle, throttle_ms, told_ms)
        return told_ms

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
    def mutes_all(self) -> bool:
        """Whether the mute is for a quota that every request counts against, acknowledgements of records too."""
        return isinstance(self._muted_by, RequestThrottle | UserThrottle)

    def muted_by(self, throttle: AnyThrottle, now_ms: int) -> int:
        """How long the channel is still muted because of this very throttle."""
        return max(0, self.mute_until_ms - now_ms) if self._muted_by is throttle else 0

    def enter(self, intake: Intake) -> None:
        """Take other things from the client, or nothing; once it is ENDED it stays so."""
        if self.intake is not Intake.ENDED:
            self.intake = intake
            self.in_flight_max = IN_FLIGHT_MAX if intake is Intake.OPEN else 0

    def answer_here(self, correlation_id: int, version: int, answer: bytes | bytearray | memoryview) -> None:
        """Owe an answer that is made already; it is given in its turn."""
        self.kept_bytes += len(answer)
        self.in_flight.append((correlation_id, version, Made(answer)))

    def answer_later(self, question: Question, forwarded: Callable[[Forward], Owed] | None = None) -> None:
        """Owe an answer that the shell makes; until it is there, no further request is taken.

        Args:
            forwarded: makes what is owed of the broker's response, if the shell has one asked first.
        """
        self.question = question
        self._asked_bytes = len(question.frame)
        self.kept_bytes += self._asked_bytes
        self.in_flight.append((question.correlation_id, question.version, Later(forwarded)))
        self.enter(Intake.AWAIT_SHELL)

    def answered(self, answer: bytes | bytearray | Shared) -> None:
        """The answer that was owed later is there, and is given in its turn."""
        correlation_id, version, owed = self.in_flight.pop()
        assert isinstance(owed, Later), "nothing follows a response that is owed later"
        if isinstance(answer, Shared):
            self.answer_here(correlation_id, version, answer.head)
            self.answer_here(REST, version, answer.rest)
        else:
            self.answer_here(correlation_id, version, answer)
        self.kept_bytes -= self._asked_bytes
        self._asked_bytes = 0
        self.enter(Intake.OPEN)

    def ask_first(self, forward: Forward) -> None:
        """The shell wants a broker's answer before it gives its own."""
        correlation_id, version, owed = self.in_flight[-1]
        assert isinstance(owed, Later), "nothing follows a response that is owed later"
        assert owed.forwarded is not None, "the API has a use for the broker's response"
        self.in_flight[-1] = (correlation_id, version, owed.forwarded(forward))
        self.forward = forward.frame

    def reconsider(self) -> None:
        """Quotas have changed: end a mute that the new ones would not have begun, or not for so long.

        A client that comes back early is weighed again at its next request, so nothing passes that should not.
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
