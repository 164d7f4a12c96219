"""Replication quotas: the rates of all leaders and followers, and who may be asked for how much (KIP-73).

A leader's rate is what it sends of throttled replicas to all followers, a follower's what it receives from all
leaders; a replica may count against either, both or none (`throttled_replicas`). Replicas that are in sync are counted
and never slowed down (KAFKA-4313); who is in sync the caller knows. Nothing here knows a fetch session or a socket.

Not here: `replica.alter.log.dirs.io.max.bytes.per.second`, which is about disks of one broker and no traffic.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, Protocol

from quotas.rate import NEVER_MS
from quotas.replication_rate import READY_MS_MAX, PacedRate, WindowRate
from quotas.throttled_replicas import ThrottledReplicas

ReplicationPolicy = Literal["kip73", "schedule"]
Rate = WindowRate | PacedRate

BROKERS_MAX: Final = 10_000  # far above any cluster; bounds what a broken peer can make us remember
TOPIC_IDS_MAX: Final = 200_000  # ids without a name that are remembered, to be asked for
# About 500 bytes each. What is beyond passes unthrottled, and is counted.
REPLICAS_MAX: Final = 400_000
# What a batch is taken for before one was seen: the Java producer's batch.size.
BATCH_BYTES: Final = 16_384
_LOOKED_AT_MAX: Final = 16
_ID_BYTES: Final = 16
_NAMES_KEPT: Final = 1000  # without looking which of them are still needed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationOptions:
    """How replication is measured; Kafka's replication.quota.window.num and .size.seconds are for `kip73`."""

    policy: ReplicationPolicy = "schedule"
    window_samples: int = 11
    window_seconds: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """Bytes/s of each broker, as leader or as follower; None where nothing limits it."""

    default: float | None = None
    of_broker: Mapping[int, float | None] = field(default_factory=lambda: MappingProxyType({}))

    def limit(self, broker: int) -> float | None:
        """Give a broker's limit."""
        return self.of_broker.get(broker, self.default)

    def knows(self, broker: int) -> bool:
        """Tell whether anybody has said what a broker's limit is, be it none."""
        return broker in self.of_broker or self.default is not None


NO_LIMITS: Final = BrokerLimits()


class Followed(Protocol):
    """A follower's connection to a leader, as far as the figures need it."""

    @property
    def follower(self) -> int:
        """The broker that fetches."""

    def standings(self) -> Iterable[tuple[bytes, int, int, int]]:
        """Give each replica whose standing is known: topic, partition, fetch offset, high watermark."""

    def topics(self) -> set[bytes]:
        """Give the topics of all replicas."""


class Shares(Protocol):
    """What part of a follower's quota is this process's: others front other leaders of it (`lease_peer`)."""

    def rate(self, follower: int, own: float | None, known: bool, now_ms: int) -> float | None:
        """Give the bytes/s for a quota as it is known here."""

    def changes_ms(self, now_ms: int) -> int:
        """Give when that changes by itself."""


class Claim:
    """A throttled replica's claim on the rates it counts against.

    Attributes:
        rates: one or two.
        least: a batch of it, as far as is known: asked for less a leader may send nothing.
        reserved: what it was granted and has not been answered.
        turn: when it was granted something last; who waits longest is first.
    """

    __slots__ = ("least", "rates", "reserved", "turn")

    def __init__(self, rates: tuple[Rate, ...]) -> None:
        self.rates = rates
        self.least = BATCH_BYTES
        self.reserved = 0
        self.turn = 0

    def settle(self, size: int, now_ms: int) -> None:
        """Take what came, granted or not."""
        reserved, self.reserved = self.reserved, 0
        for rate in self.rates:
            rate.settle(reserved, size, now_ms)


class ReplicationQuotas:
    """The rates by broker, the lists, and the topics' names.

    Attributes:
        enforcing: False: everything is counted and nothing left out.
        shares: what part of followers' quotas is for this process; None: all of it.
        lists: which replicas are throttled.
        version: changes with the lists and the names; claims of another version are out of date.
        topic_names: id -> name, as far as is known.
        unknown_topics: ids that followers have named and nobody knows; whoever asks the cluster takes them.
        asked: how often the cluster was asked what is throttled.
        told: which of these questions it has answered last; None where it is not asked, or does not answer.
        waited_for: somebody waits for it to be asked again.
        asked_in_vain: how often it has not answered, or not told; what was known holds on.
        replicas: how many are followed through this process, by all followers together; bounded by REPLICAS_MAX.
        links: who fetches from whom now.
        bytes_in: (follower, topic, partition) -> bytes of records, throttled or not (PartitionBytesInRate).
    """

    def __init__(self, options: ReplicationOptions) -> None:
        self._options = options
        self._leaders: dict[int, Rate] = {}
        self._followers: dict[int, Rate] = {}
        self.leader_limits = NO_LIMITS
        self.follower_limits = NO_LIMITS
        self.enforcing = True
        self.shares: Shares | None = None
        self._shared_until_ms = NEVER_MS  # when the followers' limits have to be looked at again
        self.lists = ThrottledReplicas()
        self.version = 0
        self.topic_names: dict[bytes, str] = {}
        self.unknown_topics: set[bytes] = set()
        self.replicas = 0
        self.asked = 0
        self.told: int | None = None
        self.waited_for = False
        self.asked_in_vain = 0
        self.links: set[Followed] = set()
        self.bytes_in: Counter[tuple[int, bytes, int]] = Counter()
        self._names_max = _NAMES_KEPT
        self._turn = 0

    @property
    def options(self) -> ReplicationOptions:
        """How it is measured."""
        return self._options

    def configure(self, options: ReplicationOptions) -> None:
        """Measure otherwise: rates begin anew, claims on the old ones are out of date."""
        if options != self._options:
            self._options = options
            self._leaders, self._followers = {}, {}
            self.version += 1

    def limit(self, leaders: BrokerLimits, followers: BrokerLimits) -> bool:
        """Set the rates; tell whether any differs. What was counted stays counted."""
        if (leaders, followers) == (self.leader_limits, self.follower_limits):
            return False
        self.leader_limits, self.follower_limits = leaders, followers
        for broker, rate in self._leaders.items():
            rate.limit = leaders.limit(broker)
        self._shared_until_ms = NEVER_MS
        if self.shares is None:
            for broker, rate in self._followers.items():
                rate.limit = followers.limit(broker)
        return True

    def share(self, now_ms: int) -> bool:
        """Set the followers' limits to this process's shares of them; tell whether any differs."""
        shares = self.shares
        if shares is None:
            return False
        differs = False
        for broker, rate in self._followers.items():
            limit = self._shared(shares, broker, now_ms)
            differs = differs or limit != rate.limit
            rate.limit = limit
        self._shared_until_ms = shares.changes_ms(now_ms)
        return differs

    def throttle(self, lists: ThrottledReplicas) -> bool:
        """Set which replicas are throttled; tell whether anything differs."""
        if lists == self.lists:
            return False
        self.lists = lists
        self.version += 1
        return True

    def name_topics(self, names: Mapping[bytes, str]) -> None:
        """Replace what is known of topics' names; those that nobody replicates any more are forgotten now and then."""
        if names == self.topic_names:
            return
        if len(names) > self._names_max:
            followed = set[bytes]().union(*(link.topics() for link in self.links))
            names = {topic: name for topic, name in names.items() if topic in followed}
            self._names_max = max(_NAMES_KEPT, 2 * len(names))
        self.topic_names = dict(names)
        self.version += 1

    def is_named(self, topic: bytes) -> bool:
        """Whether it can be told if a topic is listed: it came with its name, or its id's name is known."""
        return len(topic) != _ID_BYTES or topic in self.topic_names

    def leader(self, broker: int, now_ms: int) -> Rate:
        """Give the rate of what a broker sends."""
        found = self._leaders.get(broker)
        if found is not None:
            return found
        return self._begin(self._leaders, broker, self.leader_limits.limit(broker), now_ms)

    def follower(self, broker: int, now_ms: int) -> Rate:
        """Give the rate of what a broker receives."""
        found = self._followers.get(broker)
        if found is not None:
            return found
        shares = self.shares
        limit = self.follower_limits.limit(broker) if shares is None else self._shared(shares, broker, now_ms)
        return self._begin(self._followers, broker, limit, now_ms)

    def rates(self) -> Iterable[tuple[str, int, Rate]]:
        """Give every rate that was ever needed: ("leader" or "follower", broker, rate)."""
        return [
            (side, broker, rate)
            for side, rates in (("leader", self._leaders), ("follower", self._followers))
            for broker, rate in sorted(rates.items())
        ]

    def claim(self, topic: bytes, partition: int, leader: int, follower: int, now_ms: int) -> Claim | None:
        """Give a new claim of a replica; None where it is not throttled.

        Args:
            topic: its id, or in old versions its name.
        """
        name = self.topic_names.get(topic)
        if name is None:
            if len(topic) == _ID_BYTES and topic not in self.unknown_topics:
                if len(self.unknown_topics) < TOPIC_IDS_MAX:
                    self.unknown_topics.add(topic)
                return None
            name = topic.decode("utf-8", "replace")
        rates: list[Rate] = []
        if self.lists.sending(name, partition, leader, follower):
            rates.append(self.leader(leader, now_ms))
        if self.lists.receiving(name, partition, follower):
            rates.append(self.follower(follower, now_ms))
        return Claim(tuple(rates)) if rates else None

    def share_out(self, wanted: Sequence[tuple[Claim, int]], now_ms: int) -> list[int]:
        """Grant bytes to replicas that are behind, who waits longest first (KIP-73: randomised, for fairness).

        Args:
            wanted: claims, and what each asks for at most.

        Returns:
            The grants in the same order; 0 for who is to be left out.
        """
        if self.shares is not None and now_ms >= self._shared_until_ms:
            self.share(now_ms)
        grants = [0] * len(wanted)
        order = sorted(range(len(wanted)), key=lambda index: wanted[index][0].turn)
        hopeless: dict[Rate, int] = {}
        for place, index in enumerate(order):
            claim, most = wanted[index]
            least = min(claim.least, most)
            if any(least >= hopeless.get(rate, least + 1) for rate in claim.rates):
                continue
            granted = self._grant(claim, least, most, len(order) - place, hopeless, now_ms)
            if granted:
                # Whole batches: a leader fills up with the beginning of the next one, which a follower throws away.
                granted -= granted % least if granted < most else 0
                self._turn += 1
                claim.turn = self._turn
                claim.reserved = grants[index] = granted
                for rate in claim.rates:
                    rate.reserve(granted)
        return grants

    def arrived(self, follower: int, topic: bytes, partition: int, size: int) -> None:
        """Count what a follower has got of a partition."""
        key = (follower, topic, partition)
        if key in self.bytes_in or len(self.bytes_in) < REPLICAS_MAX:
            self.bytes_in[key] += size

    def reserve(self, claim: Claim, size: int) -> None:
        """Ask for a little without room for it: to learn where a replica stands."""
        claim.reserved = size
        for rate in claim.rates:
            rate.reserve(size)

    def ready_in_ms(self, claims: Sequence[Claim], now_ms: int) -> int:
        """Give how long it takes until one of those left out may be asked for."""
        ready = READY_MS_MAX
        for claim in claims[:_LOOKED_AT_MAX]:
            ready = min(ready, max(rate.ready_in_ms(claim.least, now_ms) for rate in claim.rates))
        return ready

    def _grant(
        self, claim: Claim, least: int, most: int, waiting: int, hopeless: dict[Rate, int], now_ms: int
    ) -> int:
        for rate in claim.rates:
            room = rate.room(now_ms)
            # An equal part for everybody who is left, but a batch at least.
            share = most if room is None else min(most, max(least, room // waiting))
            granted = rate.grant(least, share, now_ms)
            if granted < most:
                rate.held_ms = now_ms
            most = granted
            if not most:
                hopeless[rate] = least
                return 0
        return most

    def _shared(self, shares: Shares, follower: int, now_ms: int) -> float | None:
        limits = self.follower_limits
        return shares.rate(follower, limits.limit(follower), limits.knows(follower), now_ms)

    def _begin(self, rates: dict[int, Rate], broker: int, limit: float | None, now_ms: int) -> Rate:
        options = self._options
        found: Rate
        if options.policy == "schedule":
            found = PacedRate(limit, now_ms)
        else:
            found = WindowRate(limit, options.window_samples, options.window_seconds * 1000)
        if len(rates) < BROKERS_MAX:
            rates[broker] = found
        return found
