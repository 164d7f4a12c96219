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
    """The bytes that a follower's connection has reserved and not received, for all replicas with the same rates.

    Attributes:
        rates: the rates that the replicas count against: the leader's, the follower's, or both.
        number: increases with each `give_back`, which ends the reservation of every `Claim` with an older number.
    """

    rates: tuple[Rate, ...]
    number: int = 0
    _reserved: int = 0

    def take(self, size: int) -> None:
        """Reserve `size` bytes at each of the rates."""
        self._reserved += size
        for rate in self.rates:
            rate.reserve(size)

    def settle(self, reserved: int, size: int, now_ms: int) -> None:
        """Count `size` bytes that have arrived, and end the reservation of `reserved` bytes (0 for none)."""
        self._reserved -= reserved
        for rate in self.rates:
            rate.settle(reserved, size, now_ms)

    def give_back(self, now_ms: int) -> None:
        """End the reservation of all bytes that have not arrived, so that other replicas may ask for them."""
        self.number += 1
        if self._reserved:
            self.settle(self._reserved, 0, now_ms)


@dataclass(slots=True, eq=False)
class Claim:
    """The state of one throttled replica: the bytes that are reserved for its next response.

    Attributes:
        reservation: the reservation that it shares with other replicas, with the rates that it counts against.
        least: the estimated size of a batch, in bytes; if a Fetch asks for fewer bytes, a leader may send nothing.
    """

    reservation: Reservation
    least: int = BATCH_BYTES
    _reserved: int = 0
    _number: int = 0

    @property
    def reserved(self) -> int:
        """The bytes that are reserved for this replica and whose response has not arrived yet."""
        return self._reserved if self._number == self.reservation.number else 0

    def reserve(self, size: int) -> None:
        """Reserve `size` bytes for this replica's next response, without a check of the limits."""
        self._reserved = size
        self._number = self.reservation.number
        self.reservation.take(size)

    def settle(self, size: int, now_ms: int) -> None:
        """Count the `size` bytes of this replica in a response, and end its reservation, if any."""
        reserved = self.reserved
        self._reserved = 0
        self.reservation.settle(reserved, size, now_ms)


class Sharing:
    """Divides the bytes that the rates allow among the throttled replicas of one Fetch that are not in sync.

    The caller passes the replicas one after the other, the one that has waited longest first. In KIP-73 the order is
    random, for fairness.

    Args:
        refresh: called with the time in ms; updates the rates' limits.
        waiting: the number of replicas that will be passed to `grant`.
    """

    __slots__ = ("_no_room_from", "_refresh", "_waiting")

    def __init__(self, refresh: Callable[[int], object], waiting: int) -> None:
        self._refresh = refresh
        self._waiting = waiting
        self._no_room_from: dict[Rate, int] = {}  # the smallest size that had no room

    def grant(self, claim: Claim, most: int, now_ms: int) -> int:
        """Decide on the next replica: reserve and return the bytes to ask for, at most `most`; 0: leave it out."""
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
    """The throttled replicas of one topic in one direction, as in leader.replication.throttled.replicas.

    That is all replicas ("*"), or pairs of partition and broker.
    """

    every: bool = False
    pairs: frozenset[tuple[int, int]] = frozenset()

    def holds(self, partition: int, broker: int) -> bool:
        """Whether the partition's replica at this broker is in the list."""
        return self.every or (partition, broker) in self.pairs


EVERY_REPLICA: Final = ReplicaList(every=True)


def parse_replicas(text: str) -> tuple[ReplicaList, list[str]]:
    """Parse a list of throttled replicas; returns its valid entries, and a message for each of the others.

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
        leaders: by topic, leader.replication.throttled.replicas: bytes that these brokers send are throttled.
        followers: by topic, follower.replication.throttled.replicas: bytes that these brokers receive are throttled.
        adding: by topic and partition, the brokers that a reassignment adds; throttled in both directions.
    """

    leaders: Mapping[str, ReplicaList] = field(default_factory=_none)
    followers: Mapping[str, ReplicaList] = field(default_factory=_none)
    adding: Mapping[tuple[str, int], frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))

    def brokers(self) -> set[int]:
        """Return the ids of all brokers in the lists, so that the caller can find ids that do not exist."""
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
    """The settings of replication quotas.

    Args:
        policy: `kip73` for `WindowRate`, `schedule` for `PacedRate`.
        window_samples: Kafka's replication.quota.window.num, for `kip73`.
        window_seconds: Kafka's replication.quota.window.size.seconds, for `kip73`.
    """

    policy: ReplicationPolicy = "schedule"
    window_samples: int = 11
    window_seconds: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """The replication limits of all brokers in bytes/s, either as leaders or as followers; None for unlimited.

    Args:
        default: the limit of brokers without an own one.
        of_broker: the limits by broker id.
    """

    default: float | None = None
    of_broker: Mapping[int, float | None] = field(default_factory=lambda: MappingProxyType({}))

    def limit(self, broker: int) -> float | None:
        """Return a broker's limit in bytes/s, its own or else the default; None for unlimited."""
        return self.of_broker.get(broker, self.default)


NO_LIMITS: Final = BrokerLimits()


class FollowerLink(Protocol):
    """A follower's connection to a leader, as metrics see it."""

    @property
    def follower(self) -> int:
        """The id of the broker that fetches."""

    def replica_offsets(self) -> Iterable[tuple[bytes, int, int, int]]:
        """Yield (topic, partition, fetch offset, high watermark) of each replica whose offsets are known.

        Topics are ids, or in old versions of Fetch names, as bytes.
        """

    def topics(self) -> set[bytes]:
        """Return the topics of all replicas that are fetched here, as ids or, in old versions of Fetch, names."""


Side = Literal["leader", "follower"]
"""Whose rate it is: of the broker that sends, or of the one that receives."""


class Shares(Protocol):
    """The bytes/s of each broker's replication that this process may use (`sharing.replication`).

    A follower fetches from several leaders, which may be behind several processes of Sluice; these share its quota.
    """

    def limit(self, side: Side, broker: int, quota: float, now_ms: int) -> tuple[float, float]:
        """Return the bytes/s that this process may use now, and what of them is not lent; 0 if nothing can be lent.

        Args:
            quota: the whole rate.
        """

    def changes_ms(self, now_ms: int) -> int:
        """Return the time, in ms, until which the present limits are valid if no new ones arrive."""


class Claims:
    """Creates the claims (`Claim`) of the replicas that one follower fetches from one leader.

    Attributes:
        version: `ReplicationQuotas.version` at the creation; when that has changed, the caller replaces this object and
            its claims.
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
        """Return a new claim for a replica; None if it is not throttled, or the name of its topic is not known yet.

        An unknown topic id is added to `ReplicationQuotas.unknown_topics`, to be looked up.

        Args:
            topic: the topic's id, or in old versions of Fetch its name.
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
        """End the reservations of all claims; called when the bytes that have not arrived are not expected any more."""
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
    """The replication quotas of one process: limits and rates of leaders and followers, and the throttled replicas.

    Attributes:
        options: the settings in force; `configure` replaces them.
        enforcing: whether replicas are left out of requests; if False, bytes are only counted.
        shares: what this process may use of the rates; None: all.
        unthrottled: bytes of replicas that are not throttled, by side and broker.
        lists: the throttled replicas.
        version: changes with the options, lists and names; claims of an older version are to be replaced.
        topic_names: the known names of topics by id.
        unknown_topics: topic ids in followers' requests whose names are not known; the replication source looks them
            up.
        polls_started: how often the cluster was asked for lists and limits.
        last_completed_poll: the number of the last poll if it got a response; None before the first one and after a
            failed one.
        poll_requested: whether a connection waits for the next poll, which should then begin at once.
        failed_polls: the number of polls without a response; lists and limits then stay in force.
        replicas: the number of replicas that all followers fetch through this process; bounded by REPLICAS_MAX.
        links: the current connections of followers to leaders.
        bytes_in: bytes of records by follower, topic and partition, throttled or not (PartitionBytesInRate).
    """

    def __init__(self, options: ReplicationOptions) -> None:
        self.options = options
        self._leaders: dict[int, Rate] = {}
        self._followers: dict[int, Rate] = {}
        self.leader_limits = NO_LIMITS
        self.follower_limits = NO_LIMITS
        self.enforcing = True
        self.shares: Shares | None = None
        self._shared_until_ms = NEVER_MS  # when the limits have to be computed again
        self.unthrottled: Counter[tuple[Side, int]] = Counter()
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
        """Replace the options; if they differ, all rates start anew, and existing claims are out of date."""
        if options != self.options:
            self.options = options
            self._leaders, self._followers = {}, {}
            self.version += 1

    def limit(self, leaders: BrokerLimits, followers: BrokerLimits) -> bool:
        """Set the limits of all leaders and followers; returns whether any has changed. Rates keep their counts."""
        if (leaders, followers) == (self.leader_limits, self.follower_limits):
            return False
        self.leader_limits, self.follower_limits = leaders, followers
        self._shared_until_ms = NEVER_MS
        if self.shares is None:
            for side, broker, rate in self.rates():
                rate.limit = self.quota(side, broker)
        return True

    def share(self, now_ms: int) -> bool:
        """Set each rate's limit to what this process may use of it now; returns whether any has changed."""
        shares = self.shares
        if shares is None:
            return False
        differs = False
        for side, broker, rate in self.rates():
            limit, floor = self._allowed(side, broker, now_ms)
            differs = differs or limit != rate.limit
            rate.allow(limit, floor, now_ms)
        self._shared_until_ms = shares.changes_ms(now_ms)
        return differs

    def throttle(self, lists: ThrottledReplicas) -> bool:
        """Replace the lists of throttled replicas; returns whether they differ: old claims are then out of date."""
        if lists == self.lists:
            return False
        self.lists = lists
        self.version += 1
        return True

    def name_topics(self, names: Mapping[bytes, str]) -> None:
        """Replace the names of topics by id; if there are many, only those that followers fetch are kept."""
        if names == self.topic_names:
            return
        if len(names) > self._names_max:
            followed = set[bytes]().union(*(link.topics() for link in self.links))
            names = {topic: name for topic, name in names.items() if topic in followed}
            self._names_max = max(_NAMES_KEPT, 2 * len(names))
        self.topic_names = dict(names)
        self.version += 1

    def is_named(self, topic: bytes) -> bool:
        """Whether the topic's name is known: `topic` is a name itself, or an id with a known name."""
        return len(topic) != _ID_BYTES or topic in self.topic_names

    def leader(self, broker: int, now_ms: int) -> Rate:
        """Return the rate of the bytes that a broker sends as a leader; it is created at the first call."""
        found = self._leaders.get(broker)
        if found is not None:
            return found
        return self._create_rate(self._leaders, "leader", broker, now_ms)

    def follower(self, broker: int, now_ms: int) -> Rate:
        """Return the rate of the bytes that a broker receives as a follower; it is created at the first call."""
        found = self._followers.get(broker)
        if found is not None:
            return found
        return self._create_rate(self._followers, "follower", broker, now_ms)

    def rates(self) -> Iterable[tuple[Side, int, Rate]]:
        """Return side, broker and rate of every rate that was used so far."""
        sides: tuple[tuple[Side, dict[int, Rate]], ...] = (
            ("leader", self._leaders),
            ("follower", self._followers),
        )
        return [(side, broker, rate) for side, rates in sides for broker, rate in sorted(rates.items())]

    def quota(self, side: Side, broker: int) -> float | None:
        """Return a broker's whole rate in bytes/s as a leader or follower; None for unlimited."""
        return (self.leader_limits if side == "leader" else self.follower_limits).limit(broker)

    def begin_sharing(self, waiting: int) -> Sharing:
        """Begin to divide the allowed bytes among `waiting` replicas of one Fetch that are not in sync."""
        return Sharing(self._refresh, waiting)

    def record_arrived(self, follower: int, topic: bytes, partition: int, size: int) -> None:
        """Count bytes of a partition that a follower has received, for metrics only."""
        key = (follower, topic, partition)
        if key in self.bytes_in or len(self.bytes_in) < REPLICAS_MAX:
            self.bytes_in[key] += size

    def record_unthrottled(self, leader: int, follower: int, size: int) -> None:
        """Count bytes of replicas that are not throttled, which have passed from one broker to another."""
        places: tuple[tuple[Side, int], ...] = ("leader", leader), ("follower", follower)
        for place in places:
            known = place in self.unthrottled or len(self.unthrottled) < 2 * BROKERS_MAX
            if place[1] >= 0 and known:  # behind a port for several brokers, the leader is unknown
                self.unthrottled[place] += size

    def ready_in_ms(self, claims: Sequence[Claim], now_ms: int) -> int:
        """Return the time in ms until bytes for one of these claims may be asked for; a minute at most."""
        ready = READY_MS_MAX
        for claim in claims[:_READY_CLAIMS_MAX]:
            ready = min(ready, max(rate.ready_in_ms(claim.least, now_ms) for rate in claim.reservation.rates))
        return ready

    def _refresh(self, now_ms: int) -> None:
        if self.shares is not None and now_ms >= self._shared_until_ms:
            self.share(now_ms)

    def _allowed(self, side: Side, broker: int, now_ms: int) -> tuple[float | None, float]:
        """Return what this process may use of a rate: its limit, and the floor."""
        quota = self.quota(side, broker)
        if quota is None or self.shares is None:
            return quota, 0.0
        return self.shares.limit(side, broker, quota, now_ms)

    def _create_rate(self, rates: dict[int, Rate], side: Side, broker: int, now_ms: int) -> Rate:
        options = self.options
        limit, floor = self._allowed(side, broker, now_ms)
        found: Rate
        if options.policy == "schedule":
            found = PacedRate(limit, now_ms)
        else:
            found = WindowRate(limit, options.window_samples, options.window_seconds * 1000)
        found.allow(limit, floor, now_ms)
        if len(rates) < BROKERS_MAX:
            rates[broker] = found
        return found
