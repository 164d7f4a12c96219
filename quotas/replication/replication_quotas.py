"""Replication quotas: the rates of all leaders and followers, and the bytes granted to throttled replicas (KIP-73).

A leader's rate counts the bytes of throttled replicas that it sends to all followers, a follower's rate those that it
receives from all leaders; a replica may count against either, both or none (`ThrottledReplicas`). Replicas in sync
are counted and never delayed (KAFKA-4313); the caller knows which are in sync. Fetch sessions and sockets are not used
here.

`replica.alter.log.dirs.io.max.bytes.per.second` is about disks of one broker, not about traffic, and is not handled.

Non-obvious:

- The bytes that a Fetch reserved and did not get are returned in one step. All claims of a connection on the same
  rates share a reservation, so the end of a response, or of a connection between two portions, costs the same with
  one replica and with 40,000.
- The claim that waits longest is first without a sort: a claim that is granted bytes goes to the end of its
  connection's dict.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, Protocol

from quotas.limiters.rate import NEVER_MS
from quotas.replication.rates import READY_MS_MAX, PacedRate, WindowRate

# ----------------------------------------------------------------------------------------------------
# Claims of throttled replicas on the rates that they count against, and the granting of bytes to them.

Rate = WindowRate | PacedRate

# The estimate of a batch before one was seen: the Java producer's batch.size.
BATCH_BYTES: Final = 16_384


@dataclass(slots=True, eq=False)
class Reservation:
    """The bytes that one Fetch has reserved of the same rates, for any number of replicas.

    Attributes:
        rates: the leader's rate, the follower's, or both.
        number: changes when all bytes are returned; grants with an older number have ended.
    """

    rates: tuple[Rate, ...]
    number: int = 0
    _reserved: int = 0

    def take(self, size: int) -> None:
        """Reserve `size` bytes of all rates."""
        self._reserved += size
        for rate in self.rates:
            rate.reserve(size)

    def settle(self, reserved: int, size: int, now_ms: int) -> None:
        """Count `size` arrived bytes, of which `reserved` were reserved (0 for none)."""
        self._reserved -= reserved
        for rate in self.rates:
            rate.settle(reserved, size, now_ms)

    def give_back(self, now_ms: int) -> None:
        """Return all reserved bytes to the rates, since no more of them will arrive."""
        self.number += 1
        if self._reserved:
            self.settle(self._reserved, 0, now_ms)


@dataclass(slots=True, eq=False)
class Claim:
    """A throttled replica's claim on the rates that it counts against.

    Attributes:
        reservation: the reservation of its rates.
        least: the estimated size of a batch, in bytes; asked for fewer bytes, a leader may send nothing.
    """

    reservation: Reservation
    least: int = BATCH_BYTES
    _reserved: int = 0
    _number: int = 0

    @property
    def reserved(self) -> int:
        """The granted bytes whose response has not arrived yet."""
        return self._reserved if self._number == self.reservation.number else 0

    def reserve(self, size: int) -> None:
        """Reserve `size` bytes, even if there is no room."""
        self._reserved = size
        self._number = self.reservation.number
        self.reservation.take(size)

    def settle(self, size: int, now_ms: int) -> None:
        """Count `size` arrived bytes, granted or not; the grant has ended."""
        reserved = self.reserved
        self._reserved = 0
        self.reservation.settle(reserved, size, now_ms)


class Sharing:
    """Grants bytes to replicas that are behind, one after the other.

    The replica that has waited longest is first. In KIP-73 the order is random, for fairness.

    Args:
        refresh: updates the rates' limits.
        waiting: the number of replicas.
    """

    __slots__ = ("_no_room_from", "_refresh", "_waiting")

    def __init__(self, refresh: Callable[[int], object], waiting: int) -> None:
        self._refresh = refresh
        self._waiting = waiting
        self._no_room_from: dict[Rate, int] = {}  # the smallest size that had no room

    def grant(self, claim: Claim, most: int, now_ms: int) -> int:
        """Grant the next replica at most `most` bytes and reserve them; returns the bytes, 0 to leave it out."""
        self._refresh(now_ms)
        waiting, self._waiting = self._waiting, self._waiting - 1
        least = min(claim.least, most)
        for rate, size in self._no_room_from.items():
            if least >= size and rate in claim.reservation.rates:
                return 0
        granted = self._room(claim, least, most, waiting, now_ms)
        if granted:
            # Whole batches: a leader fills up with the beginning of the next one, which a follower discards.
            granted -= granted % least if granted < most else 0
            claim.reserve(granted)
        return granted

    def _room(self, claim: Claim, least: int, most: int, waiting: int, now_ms: int) -> int:
        for rate in claim.reservation.rates:
            room = rate.room(now_ms)
            # An equal part for each remaining replica, but at least a batch.
            share = most if room is None else min(most, max(least, room // waiting))
            granted = rate.grant(least, share, now_ms)
            if granted < most:
                rate.held_ms = now_ms
            most = granted
            if not most:
                self._no_room_from[rate] = least
                return 0
        return most


# ----------------------------------------------------------------------------------------------------
# The lists of throttled replicas: `[partition]:[replica],…` or `*`, one for each topic and direction (KIP-73).
#
# Kafka's rules (`ThrottledReplicaListValidator`, `ConfigHandler`): entries are separated by commas, spaces around them
# are ignored, an empty entry is ignored, and `*` alone is every replica. In the leaders' list an entry names the
# sending broker, in the followers' list the receiving one. Kafka refuses a malformed list as a whole when it is set;
# here malformed entries are reported and the others apply, since a list may come from a file.
#
# A third source, `adding`, needs no list: exactly the replicas that a reassignment adds, in both directions.

PROBLEMS_MAX: Final = 20  # reported for one list
_INT32_MAX: Final = 2**31 - 1
_PAIR: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10})", re.ASCII)
_PAIR_OF_THE_PROPOSAL: Final = re.compile(r"[0-9]{1,10}-[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReplicaList:
    """The throttled replicas of one topic: all replicas, or pairs of partition and broker."""

    every: bool = False
    pairs: frozenset[tuple[int, int]] = frozenset()

    def holds(self, partition: int, broker: int) -> bool:
        """Whether this replica is throttled."""
        return self.every or (partition, broker) in self.pairs


EVERY_REPLICA: Final = ReplicaList(every=True)


def parse_replicas(text: str) -> tuple[ReplicaList, list[str]]:
    """Parse a list; returns its valid entries and the problems of the others.

    >>> found, problems = parse_replicas("0:1, 2:3, 4-5")
    >>> sorted(found.pairs)
    [(0, 1), (2, 3)]
    >>> problems
    ["entry 3, '4-5': not [partition]:[replica]; did you mean '4:5'?"]
    """
    entries = [entry.strip() for entry in text.split(",")]
    if entries[0] == "*":
        return EVERY_REPLICA, []
    pairs = set()
    problems: list[str] = []
    for number, entry in enumerate(entries, 1):
        match = _PAIR.fullmatch(entry)
        if match is not None and int(match[1]) <= _INT32_MAX and int(match[2]) <= _INT32_MAX:
            pairs.add((int(match[1]), int(match[2])))
        elif entry and len(problems) < PROBLEMS_MAX:
            problems.append(
                f"entry {number}, {entry[:40]!r}: {_wrong(entry, number_too_large=match is not None)}"
            )
    return ReplicaList(pairs=frozenset(pairs)), problems


def _wrong(entry: str, *, number_too_large: bool) -> str:
    if number_too_large:
        return f"a number is over {_INT32_MAX}"
    if entry == "*":
        return '"*" must be the whole list'
    if _PAIR_OF_THE_PROPOSAL.fullmatch(entry):
        return f"not [partition]:[replica]; did you mean {entry.replace('-', ':')!r}?"
    return "not [partition]:[replica]"


def _none() -> Mapping[str, ReplicaList]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledReplicas:
    """All throttled replicas of a cluster.

    Attributes:
        leaders: topic -> the replicas throttled at their leader.
        followers: topic -> the replicas throttled at their follower.
        adding: (topic, partition) -> the brokers that a reassignment adds; throttled in both directions.
    """

    leaders: Mapping[str, ReplicaList] = field(default_factory=_none)
    followers: Mapping[str, ReplicaList] = field(default_factory=_none)
    adding: Mapping[tuple[str, int], frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))

    def brokers(self) -> set[int]:
        """Return all brokers in the lists; an entry of a broker that does not exist has no effect."""
        listed = (*self.leaders.values(), *self.followers.values())
        return {broker for replicas in listed for _, broker in replicas.pairs}.union(*self.adding.values())

    def sending(self, topic: str, partition: int, leader: int, follower: int) -> bool:
        """Whether this leader's bytes to this follower count against the leader's rate."""
        if follower in self.adding.get((topic, partition), ()):
            return True
        listed = self.leaders.get(topic)
        return listed is not None and listed.holds(partition, leader)

    def receiving(self, topic: str, partition: int, follower: int) -> bool:
        """Whether this follower's received bytes count against the follower's rate."""
        if follower in self.adding.get((topic, partition), ()):
            return True
        listed = self.followers.get(topic)
        return listed is not None and listed.holds(partition, follower)


ReplicationPolicy = Literal["kip73", "schedule"]
BROKERS_MAX: Final = 10_000  # far above any cluster; bounds the memory that a faulty peer can occupy
TOPIC_IDS_MAX: Final = 200_000  # stored ids without a name, to be asked for
# About 500 bytes each. Further replicas pass unthrottled, and are counted.
REPLICAS_MAX: Final = 400_000
_READY_CLAIMS_MAX: Final = 16
_ID_BYTES: Final = 16
_NAMES_KEPT: Final = 1000  # without looking which of them are still needed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationOptions:
    """The policy of replication quotas, and the windows of policy `kip73`: Kafka's replication.quota.window.num and
    .size.seconds.
    """

    policy: ReplicationPolicy = "schedule"
    window_samples: int = 11
    window_seconds: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """The limits of brokers in bytes/s, as leaders or as followers; None for unlimited."""

    default: float | None = None
    of_broker: Mapping[int, float | None] = field(default_factory=lambda: MappingProxyType({}))

    def limit(self, broker: int) -> float | None:
        """Return a broker's limit in bytes/s; None for unlimited."""
        return self.of_broker.get(broker, self.default)


NO_LIMITS: Final = BrokerLimits()


class FollowerLink(Protocol):
    """A follower's connection to a leader, as metrics see it."""

    @property
    def follower(self) -> int:
        """The id of the broker that fetches."""

    def replica_offsets(self) -> Iterable[tuple[bytes, int, int, int]]:
        """Yield (topic, partition, fetch offset, high watermark) of each replica with known offsets."""

    def topics(self) -> set[bytes]:
        """Return the topics of all replicas."""


class Shares(Protocol):
    """This process's shares of followers' quotas; a follower's other leaders may be behind other processes
    (`sharing.followers`).
    """

    def share(self, follower: int, now_ms: int) -> float:
        """Return this process's share of a follower's quota, 0 to 1."""

    def changes_ms(self, now_ms: int) -> int:
        """Return the next time, in ms, at which a share changes without a grant: the end of the lease."""


class Claims:
    """Creates the claims of one follower's replicas at one leader, for one version of lists and names.

    Attributes:
        version: the version; the claims are out of date if the quotas have another one.
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
        """Return a new claim for a replica; None if the replica is not throttled, or its topic's name is not known yet.

        Args:
            topic: the topic's id, or in old versions its name.
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
        """Return all reserved bytes that have not arrived to the rates."""
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
        options: those in force; `configure` replaces them.
        enforcing: if False, all bytes are counted and no replica is left out of requests.
        shares: this process's shares of followers' quotas; None: the whole quotas.
        lists: the throttled replicas.
        version: changes with the lists and the names; claims of another version are out of date.
        topic_names: id -> name, as far as known.
        unknown_topics: ids of followers' requests without a known name; the replication source takes them and asks.
        polls_started: how often the cluster has been asked for lists and limits.
        last_completed_poll: the number of the last poll, if it had a response; None before the first one and after a
            failure.
        poll_requested: whether a connection waits for the next poll.
        failed_polls: the number of polls without a response; known lists and limits stay in force.
        replicas: the number of replicas fetched through this process, by all followers; bounded by REPLICAS_MAX.
        links: the current connections of followers to leaders.
        bytes_in: (follower, topic, partition) -> bytes of records, throttled or not (PartitionBytesInRate).
    """

    def __init__(self, options: ReplicationOptions) -> None:
        self.options = options
        self._leaders: dict[int, Rate] = {}
        self._followers: dict[int, Rate] = {}
        self.leader_limits = NO_LIMITS
        self.follower_limits = NO_LIMITS
        self.enforcing = True
        self.shares: Shares | None = None
        self._shared_until_ms = NEVER_MS  # when the followers' limits have to be computed again
        self.lists = ThrottledReplicas()
        self.version = 0
        self.topic_names: dict[bytes, str] = {}
        self.unknown_topics: set[bytes] = set()
        self.replicas = 0
        self.polls_started = 0
        self.last_completed_poll: int | None = None
        self.poll_requested = False
        self.failed_polls = 0
        self.links: set[FollowerLink] = set()
        self.bytes_in: Counter[tuple[int, bytes, int]] = Counter()
        self._names_max = _NAMES_KEPT

    def configure(self, options: ReplicationOptions) -> None:
        """Replace the options: all rates start with no records, and claims on the old ones are out of date."""
        if options != self.options:
            self.options = options
            self._leaders, self._followers = {}, {}
            self.version += 1

    def limit(self, leaders: BrokerLimits, followers: BrokerLimits) -> bool:
        """Set the limits; returns whether any has changed. Counted bytes stay counted."""
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
        """Set the followers' limits by this process's current shares; returns whether any limit has changed."""
        shares = self.shares
        if shares is None:
            return False
        differs = False
        for broker, rate in self._followers.items():
            limit = self._share_of(shares, broker, now_ms)
            differs = differs or limit != rate.limit
            rate.limit = limit
        self._shared_until_ms = shares.changes_ms(now_ms)
        return differs

    def throttle(self, lists: ThrottledReplicas) -> bool:
        """Replace the lists of throttled replicas; returns whether they differ."""
        if lists == self.lists:
            return False
        self.lists = lists
        self.version += 1
        return True

    def name_topics(self, names: Mapping[bytes, str]) -> None:
        """Replace the names of topics; unused names are removed when there are more than `_NAMES_KEPT`."""
        if names == self.topic_names:
            return
        if len(names) > self._names_max:
            followed = set[bytes]().union(*(link.topics() for link in self.links))
            names = {topic: name for topic, name in names.items() if topic in followed}
            self._names_max = max(_NAMES_KEPT, 2 * len(names))
        self.topic_names = dict(names)
        self.version += 1

    def is_named(self, topic: bytes) -> bool:
        """Whether the topic's name is known, so that it can be looked up in the lists."""
        return len(topic) != _ID_BYTES or topic in self.topic_names

    def leader(self, broker: int, now_ms: int) -> Rate:
        """Return the rate of a broker as a leader."""
        found = self._leaders.get(broker)
        if found is not None:
            return found
        return self._create_rate(self._leaders, broker, self.leader_limits.limit(broker), now_ms)

    def follower(self, broker: int, now_ms: int) -> Rate:
        """Return the rate of a broker as a follower."""
        found = self._followers.get(broker)
        if found is not None:
            return found
        shares = self.shares
        limit = (
            self.follower_limits.limit(broker) if shares is None else self._share_of(shares, broker, now_ms)
        )
        return self._create_rate(self._followers, broker, limit, now_ms)

    def rates(self) -> Iterable[tuple[str, int, Rate]]:
        """Yield ("leader" or "follower", broker, rate) of every rate in use so far."""
        return [
            (side, broker, rate)
            for side, rates in (("leader", self._leaders), ("follower", self._followers))
            for broker, rate in sorted(rates.items())
        ]

    def begin_sharing(self, waiting: int) -> Sharing:
        """Return an object that grants bytes to `waiting` replicas that are behind."""
        return Sharing(self._refresh, waiting)

    def record_arrived(self, follower: int, topic: bytes, partition: int, size: int) -> None:
        """Count bytes of a partition that a follower has received, for metrics only."""
        key = (follower, topic, partition)
        if key in self.bytes_in or len(self.bytes_in) < REPLICAS_MAX:
            self.bytes_in[key] += size

    def ready_in_ms(self, claims: Sequence[Claim], now_ms: int) -> int:
        """Return the time in ms until one of these claims may be granted bytes."""
        ready = READY_MS_MAX
        for claim in claims[:_READY_CLAIMS_MAX]:
            ready = min(ready, max(rate.ready_in_ms(claim.least, now_ms) for rate in claim.reservation.rates))
        return ready

    def _refresh(self, now_ms: int) -> None:
        if self.shares is not None and now_ms >= self._shared_until_ms:
            self.share(now_ms)

    def _share_of(self, shares: Shares, follower: int, now_ms: int) -> float | None:
        limit = self.follower_limits.limit(follower)
        return None if limit is None else limit * shares.share(follower, now_ms)

    def _create_rate(self, rates: dict[int, Rate], broker: int, limit: float | None, now_ms: int) -> Rate:
        options = self.options
        found: Rate
        if options.policy == "schedule":
            found = PacedRate(limit, now_ms)
        else:
            found = WindowRate(limit, options.window_samples, options.window_seconds * 1000)
        if len(rates) < BROKERS_MAX:
            rates[broker] = found
        return found
