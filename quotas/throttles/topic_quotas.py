"""Topic quotas: bytes produced to and fetched from one topic by all clients together. Kafka has no such quota.

A topic is charged with its part of a request or response: its name or id, its partitions, their records. The size is
known only when that part has passed, so a topic is charged afterwards under both policies: the channel that exceeds
the limit is muted until the topic's bytes are within it (KIP-219), and so is every other channel at its next request.
The limiters of both policies have an operation for bytes that they cannot withhold (`Limiter.observe`). As all quotas,
these apply at each broker separately, or with scope `cluster` at all brokers together.

Every topic with a limit has a throttle from its first bytes on, until an hour without traffic. The throttles of topics
with an entry of their own are bounded by the number of entries. The others, limited by the default topic, are at most
`TOPICS_MAX`; further topics share one throttle, `<other>`. `proxy.channel.direction` reads the requests.

Limits are defined by name, and newer requests name topics by id. Bytes of an id without a known name are charged to the
default topic's limit, all together as `<other>`; without a default topic they are stored and charged when the name is
known (`charge_unnamed`, `expire`). The ids of topics with an entry are looked up by name (`TopicNames.limited`), so a
client cannot delay the look-up with many ids of topics that do not exist.

A request may name a topic that does not exist; responses name existing ones. So a throttle of a topic without an entry
is removed when it has no debt and no traffic for a minute (or for the time of all windows, if that is longer), if only
requests have charged it; and any such throttle if there is no room for a new one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Final

from quotas.definitions.entities import BucketKey
from quotas.definitions.kinds import PRODUCER_BYTE_RATE
from quotas.limiters.limiter import ALL_BROKERS, Decision, Flow, Limiter, LimiterKey, ThrottleSource
from quotas.limiters.virtual_time import ConnectionTime
from quotas.throttles.bandwidth import limiter_in_force
from quotas.throttles.figures import ThrottleCounters
from quotas.throttles.prediction import predict_afterwards
from quotas.throttles.topic_names import TopicNames

OTHER: Final = "<other>"  # not a valid topic name: "<" is not allowed
TOPICS_MAX: Final = 20_000
_EXPIRE_MS: Final = 3_600_000  # as clients: Kafka's sensors live as long
_EXPIRE_SOON_MS: Final = 60_000
_EXPIRE_AT_ONCE: Final = 1000  # a second, so that a round takes 20 s at most
_EVICTION_PAUSE_MS: Final = 50  # the shortest time between two searches for idle throttles
_EVICTIONS_AT_ONCE: Final = 500  # a millisecond's work, and 10,000 a second
UNNAMED_MAX: Final = 1000  # ids with stored bytes, in each direction and at each broker
_UNNAMED_MS_MAX: Final = 20_000  # an id without a name after this time belongs to no topic


@dataclass(slots=True, eq=False)
class TopicThrottle(ThrottleCounters):
    """The throttle of the bytes that all clients produce to, or fetch from, one topic at one broker."""

    _source: ThrottleSource
    key: str
    topic: str
    broker: InitVar[int]
    limit: float | None = field(default=None, init=False)  # bytes per second, as of the last refresh
    total: int = field(default=0, init=False)
    last_active_ms: int = field(default=0, init=False)
    _version: object = field(default=None, init=False)
    _limiter: Limiter | None = field(default=None, init=False)
    _limiter_key: LimiterKey = field(init=False)
    _flow: Flow = field(default_factory=Flow, init=False)  # one for all channels together

    def __post_init__(self, broker: int) -> None:
        self._limiter_key = (f"topic_{self.key}", BucketKey(None, self.topic), broker)

    def charge(self, size: int, now_ms: int, connection: ConnectionTime | None = None) -> int:
        """Charge bytes that have passed; returns the mute of the channel, in ms.

        Args:
            connection: the channel's predicted waits, used while quotas are not enforced; None for several channels.
        """
        source = self._source
        if self._version is not source.version or (
            source.lease_until_ms is not None and now_ms >= source.lease_until_ms
        ):
            self._refresh(now_ms)
        self.total += size
        self.last_active_ms = now_ms
        if self._limiter is None:
            return 0
        if not source.enforcing:
            self._predict(self._limiter, size, now_ms, connection or ConnectionTime())
            return 0
        wait_ms = self._limiter.observe(self._flow, size, now_ms, consumes=False)
        if wait_ms <= 0:
            return 0
        wait_ms = min(wait_ms, int(source.options.mute_seconds_max * 1000))
        if source.budgets is not None:
            # Its bytes have passed: the mute stays as long as it is.
            source.budgets.waits(self._limiter, self._flow, Decision(throttle_ms=wait_ms), now_ms)
        self.count(wait_ms)
        return wait_ms

    def _predict(self, limiter: Limiter, size: int, now_ms: int, connection: ConnectionTime) -> None:
        """Count the mute that would have begun if quotas were enforced."""
        mute_ms_max = int(self._source.options.mute_seconds_max * 1000)
        connection.weigh_part(now_ms)

        def charge() -> int:
            return min(limiter.observe(self._flow, size, now_ms, consumes=False), mute_ms_max)

        predict_afterwards(limiter, connection, self, charge, now_ms)

    def idle(self, now_ms: int) -> bool:
        """Whether the throttle has no debt and no recent traffic, so that it may be removed: a new one would be the
        same.
        """
        idle_ms = now_ms - self.last_active_ms
        if idle_ms < _EXPIRE_SOON_MS:
            return False
        options = self._source.options
        return idle_ms >= options.window_samples * options.window_seconds * 1000 and not self.debt_bytes(
            now_ms
        )

    def limit_now(self) -> float | None:
        """Return the limit in force, in bytes/s; None: unlimited."""
        return self._source.definitions.topic_limit(self.key, self.topic)

    def debt_bytes(self, now_ms: int) -> float:
        """Return by how many bytes the topic has exceeded its limit up to now."""
        return 0.0 if self._limiter is None else self._limiter.debt_bytes(now_ms)

    def detach(self) -> None:
        """Remove the limiter, and its share of the topic's limit."""
        if self._limiter is not None and self._source.budgets is not None:
            self._source.budgets.end(self._limiter)
        self._limiter = self._version = None

    def _refresh(self, now_ms: int) -> None:
        source = self._source
        source.end_lease(now_ms)
        self.limit = self.limit_now()
        if self.limit is None:
            self.detach()
        else:
            self._limiter = limiter_in_force(self._limiter, self.limit, source, self._limiter_key, now_ms)
            self._limiter.throttles.add(self)
        self._version = source.version


class TopicQuotas:
    """The topic quotas of one process.

    Attributes:
        names: the names of topics by id.
    """

    def __init__(self, source: ThrottleSource) -> None:
        self._source = source
        self.names = TopicNames()
        self.names.limited = lambda: source.definitions.limited_topics
        self._throttles: dict[tuple[str, str, int], TopicThrottle] = {}
        self._expiry_round: list[tuple[str, str, int]] = []  # of the round of expiry under way
        self._evicted_ms: int | None = None
        self._eviction_candidates: list[tuple[str, str, int]] = []  # what is still to be looked at for room
        # Bytes, and the time of the first of them, by direction, broker and id.
        self._unnamed: dict[tuple[str, int, bytes], tuple[int, int]] = {}

    def charge(
        self,
        key: str,
        broker: int,
        sizes: Mapping[str, int],
        now_ms: int,
        connection: ConnectionTime | None = None,
    ) -> tuple[TopicThrottle, int] | None:
        """Charge the bytes of several topics; returns the throttle with the longest mute, and that mute in ms.

        None if there is no mute.

        >>> from quotas.definitions.definitions import Definitions
        >>> from quotas.definitions.kinds import PRODUCER_BYTE_RATE as KEY
        >>> from quotas.engine import Engine
        >>> from quotas.options import EngineOptions
        >>> from quotas.definitions.entities import Entity
        >>> limits = {Entity(topic=topic): {KEY: 1_000_000} for topic in "abc"}
        >>> topics = Engine(EngineOptions(), Definitions(limits)).topics
        >>> topics.charge(KEY, 1, dict.fromkeys("abcd", 10_000_000), 0)  # windows of 10 s; d has no limit
        >>> throttle, ms = topics.charge(KEY, 1, {"a": 1_000_000, "b": 2_000_000, "c": 1_000_000}, 0)
        >>> throttle.topic, ms
        ('b', 2000)
        """
        longest: tuple[TopicThrottle, int] | None = None
        for topic, size in sizes.items():
            throttle = self._throttle(key, topic, broker, now_ms)
            if throttle is None:
                continue
            wait_ms = throttle.charge(size, now_ms, connection)
            if wait_ms > 0 and (longest is None or wait_ms > longest[1]):
                longest = throttle, wait_ms
        return longest

    def charge_unnamed(self, key: str, broker: int, topic_id: bytes, size: int, now_ms: int) -> str | None:
        """Handle bytes of a topic whose name is not known: returns the topic to charge instead, or stores the bytes.

        Returns:
            OTHER if the default topic has a limit; "" if the bytes are stored until the name is known; None if too many
            ids are stored already.
        """
        if self._source.definitions.topic_limit(key, OTHER) is not None:
            return OTHER
        place = (key, broker, topic_id)
        before = self._unnamed.get(place)
        if before is None:
            if len(self._unnamed) >= UNNAMED_MAX:
                return None
            before = 0, now_ms
        self._unnamed[place] = before[0] + size, before[1]
        return ""

    def throttles(self) -> Iterator[TopicThrottle]:
        """Yield the throttles of all charged topics, in each direction and at each broker."""
        return iter(list(self._throttles.values()))

    def expire(self, now_ms: int) -> None:
        """Remove topics without traffic, and charge stored bytes of topics whose names are known by now.

        Call it about once a second: each call checks a bounded number of topics.
        """
        self._charge_named(now_ms)
        if not self._expiry_round:
            self._expiry_round = list(self._throttles)
        for _ in range(min(len(self._expiry_round), _EXPIRE_AT_ONCE)):
            place = self._expiry_round.pop()
            throttle = self._throttles.get(place)
            if throttle is None:  # gone, to make room
                continue
            soon = place[0] == PRODUCER_BYTE_RATE and not self._has_own_entry(place)
            if now_ms - throttle.last_active_ms >= _EXPIRE_MS or (soon and throttle.idle(now_ms)):
                self._throttles.pop(place).detach()

    def __len__(self) -> int:
        return len(self._throttles)

    def _charge_named(self, now_ms: int) -> None:
        """Charge stored bytes whose topic's name is known now, and discard those of unknown ids."""
        for place, (size, since_ms) in list(self._unnamed.items()):
            key, broker, topic_id = place
            name = self.names.known(topic_id)
            if name is not None:
                self.charge(key, broker, {name: size}, now_ms)
            if name is not None or now_ms - since_ms >= _UNNAMED_MS_MAX:
                del self._unnamed[place]

    def _has_own_entry(self, place: tuple[str, str, int]) -> bool:
        """Whether this topic has an entry of its own."""
        return self._source.definitions.names_topic(place[0], place[1])

    def _has_room(self, now_ms: int) -> bool:
        """Whether there is room for another throttle; removes idle ones if there is not."""
        if len(self._throttles) < TOPICS_MAX:
            return True
        if self._evicted_ms is None or now_ms - self._evicted_ms >= _EVICTION_PAUSE_MS:
            self._evicted_ms = now_ms
            self._eviction_candidates = self._eviction_candidates or list(reversed(self._throttles))
            for _ in range(min(len(self._eviction_candidates), _EVICTIONS_AT_ONCE)):
                place = self._eviction_candidates.pop()
                throttle = self._throttles.get(place)
                if throttle is not None and throttle.idle(now_ms) and not self._has_own_entry(place):
                    self._throttles.pop(place).detach()
        return len(self._throttles) < TOPICS_MAX

    def _throttle(self, key: str, topic: str, broker: int, now_ms: int) -> TopicThrottle | None:
        """Return the throttle of a topic; None if it has no limit."""
        place = (key, topic, ALL_BROKERS if self._source.options.scope == "cluster" else broker)
        found = self._throttles.get(place)
        if found is not None:
            return found
        definitions = self._source.definitions
        if definitions.topic_limit(key, topic) is None:
            return None
        if topic != OTHER and not definitions.names_topic(key, topic) and not self._has_room(now_ms):
            return self._throttle(key, OTHER, broker, now_ms)
        found = self._throttles[place] = TopicThrottle(self._source, *place)
        return found
