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
from quotas.replication_claims import Claim, Rate, Reservation, Sharing
from quotas.replication_rate import READY_MS_MAX, PacedRate, WindowRate
from quotas.throttled_replicas import ThrottledReplicas

ReplicationPolicy = Literal["kip73", "schedule"]
BROKERS_MAX: Final = 10_000  # far above any cluster; bounds what a broken peer can make us remember
TOPIC_IDS_MAX: Final = 200_000  # ids without a name that are remembered, to be asked for
# About 500 bytes each. What is beyond passes unthrottled, and is counted.
REPLICAS_MAX: Final = 400_000
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


class Claims:
    """Makes the claims of one follower's replicas at one leader, by the lists and the names of one version.

    Attributes:
        version: which; where the quotas have another one by now, the claims are out of date.
    """

    __slots__ = ("_lists", "_names", "_quotas", "_reservations", "follower", "leader", "version")

    def __init__(self, quotas: "ReplicationQuotas", leader: int, follower: int) -> None:
        self.leader = leader
        self.follower = follower
        self.version = quotas.version
        self._quotas = quotas
        self._lists = quotas.lists
        self._names = quotas.topic_names
        self._reservations: dict[tuple[bool, bool], Reservation] = {}

    def claim(self, topic: bytes, partition: int, now_ms: int) -> Claim | None:
        """Give a new claim of a replica; None where it is not throttled.

        Args:
            topic: its id, or in old versions its name.
        """
        name = self._names.get(topic)
        if name is None:
            unknown = self._quotas.unknown_topics
            if len(topic) == _ID_BYTES and topic not in unknown:
                if len(unknown) < TOPIC_IDS_MAX:
                    unknown.add(topic)
                return None
            name = topic.decode("utf-8", "replace")
        sent = self._lists.sending(name, partition, self.leader, self.follower)
        received = self._lists.receiving(name, partition, self.follower)
        return Claim(self._reservation(sent, received, now_ms)) if sent or received else None

    def give_back(self, now_ms: int) -> None:
        """Give back what was reserved and has not come."""
        for reservation in self._reservations.values():
            reservation.give_back(now_ms)

    def _reservation(self, sent: bool, received: bool, now_ms: int) -> Reservation:
        found = self._reservations.get((sent, received))
        if found is None:
            rates: list[Rate] = []
            if sent:
                rates.append(self._quotas.leader(self.leader, now_ms))
            if received:
                rates.append(self._quotas.follower(self.follower, now_ms))
            found = self._reservations[sent, received] = Reservation(tuple(rates))
        return found


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

    def share_out(self, waiting: int) -> Sharing:
        """Begin to grant bytes to so many replicas that are behind."""
        return Sharing(self._refresh, waiting)

    def arrived(self, follower: int, topic: bytes, partition: int, size: int) -> None:
        """Count what a follower has got of a partition."""
        key = (follower, topic, partition)
        if key in self.bytes_in or len(self.bytes_in) < REPLICAS_MAX:
            self.bytes_in[key] += size

    def ready_in_ms(self, claims: Sequence[Claim], now_ms: int) -> int:
        """Give how long it takes until one of those left out may be asked for."""
        ready = READY_MS_MAX
        for claim in claims[:_LOOKED_AT_MAX]:
            ready = min(ready, max(rate.ready_in_ms(claim.least, now_ms) for rate in claim.reservation.rates))
        return ready

    def _refresh(self, now_ms: int) -> None:
        if self.shares is not None and now_ms >= self._shared_until_ms:
            self.share(now_ms)

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
