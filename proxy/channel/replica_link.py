"""What one follower fetches from one leader through Sluice, and which of it is left out of the next Fetch (KIP-73).

A replica is left out when it is throttled, behind, and one of its rates has no room: then the leader's session forgets
it, once, and it is named again as soon as there is room. A replica of which no high watermark was seen yet may be in
sync, and one that is in sync must never be left out (KAFKA-4313): it is asked for a single byte, which brings its high
watermark, and of all that are asked so at most one brings a batch. The same holds for a full request, whose answer has
to name everything.

A replica that a follower has just begun to fetch may be throttled though nobody here knows it yet: it was created a
moment ago, or is being added. Unless it is in sync it is left out until the cluster was asked (`ReplicationSource`).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from protocol.messages.fetch import FetchFields, TopicPartition
from protocol.messages.replica_session import WRONG_EPOCH, ReplicaSession
from protocol.messages.replica_walk import Standing
from proxy.stats import Stats
from quotas.replication import REPLICAS_MAX, Claim, ReplicationQuotas

__all__ = ["ReplicaLink"]

# Asked for where a replica may be in sync: it has an answer with the high watermark, and hardly any bytes.
_PROBE_BYTES: Final = 1
# A leader that is asked to wait for less would be asked all the time.
_WAIT_MS_MIN: Final = 5
# How soon an answer is looked for that says whether a new replica is throttled, and how long it is waited for.
_NEWS_MS: Final = 30
_NEWS_MS_MAX: Final = 2000
# A follower that wants no waiting (replica.fetch.wait.max.ms) still waits so long for nothing.
_EMPTY_WAIT_MS_MIN: Final = 100


class ReplicaLink:
    """One connection's session and claims.

    Attributes:
        follower: the broker that fetches; -1 before its first Fetch.
        session: what it wants, and what its leader was told.
        taken: the request at hand was taken over already and waits.
        plain: nothing is left out on this connection: there are too many replicas to remember.
    """

    __slots__ = (
        "_asked",
        "_claims",
        "_counted",
        "_new",
        "_quotas",
        "_stats",
        "_version",
        "_waits_until_ms",
        "follower",
        "leader",
        "plain",
        "session",
        "taken",
        "under_way",
    )

    def __init__(self, quotas: ReplicationQuotas, leader: int, stats: Stats) -> None:
        self._quotas = quotas
        self._stats = stats
        self.leader = leader
        self.follower = -1
        self.session = ReplicaSession()
        self.taken = False
        self.plain = False
        self.under_way = False  # a Fetch is with the leader
        self._waits_until_ms = 0
        self._claims: dict[TopicPartition, Claim] = {}
        self._asked: list[Claim] = []  # of the Fetch that is with the leader
        self._counted = 0
        # How often the cluster had been asked when, and since when; whether it is throttled is being asked.
        self._new: dict[TopicPartition, tuple[int, int]] = {}
        self._version = -1

    def take(self, fields: FetchFields, frame: bytes, fields_at: int, version: int, now_ms: int) -> int:
        """Take a request over; gives the error to answer it with, or 0.

        Raises:
            WireError: it is malformed.
        """
        error = self.session.take(fields, frame, fields_at, version)
        if error:
            return error
        self.follower = fields.replica_id
        self._waits_until_ms = now_ms + max(fields.max_wait_ms, _EMPTY_WAIT_MS_MIN)
        count = len(self.session.replicas)
        self._quotas.replicas += count - self._counted
        self._counted = count
        self._quotas.links.add(self)
        if self._quotas.replicas <= REPLICAS_MAX:
            self.taken = True
            return 0
        self._stats.replication_unmirrored += 1
        self.plain = self.session.full
        self.close(now_ms)
        return 0 if self.plain else WRONG_EPOCH

    def decide(self, now_ms: int) -> tuple[dict[TopicPartition, int], int | None]:
        """Choose what the leader is asked for: limits by partition, and when more may be asked for (None: all is).

        Every partition being left out, nothing is granted, and the request must not be forwarded.
        """
        quotas = self._quotas
        self._claim(now_ms)
        limits: dict[TopicPartition, int] = {}
        if not quotas.enforcing:
            return limits, None
        ready_ms = self._wait_for_news(limits, now_ms) if self._new else None
        if not self._claims:
            return limits, ready_ms
        replicas = self.session.replicas
        behind = [
            (key, claim)
            for key, claim in self._claims.items()
            if not (replicas[key].in_sync or key in limits)
        ]
        grants = quotas.share_out([(claim, replicas[key].max_bytes) for key, claim in behind], now_ms)
        left_out = []
        for (key, claim), granted in zip(behind, grants, strict=True):
            if not granted and (self.session.full or replicas[key].high_watermark < 0):
                quotas.reserve(claim, _PROBE_BYTES)
                granted = _PROBE_BYTES  # noqa: PLW2901 - a grant like any other
            limits[key] = granted
            if granted:
                self._asked.append(claim)
            else:
                left_out.append(claim)
        if not left_out:
            return limits, ready_ms
        self._stats.replicas_left_out += len(left_out)
        room_ms = now_ms + max(quotas.ready_in_ms(left_out, now_ms), _WAIT_MS_MIN)
        return limits, room_ms if ready_ms is None else min(room_ms, ready_ms)

    def nothing_left(self, limits: dict[TopicPartition, int]) -> bool:
        """Whether every partition is left out."""
        return len(limits) == len(self.session.replicas) and bool(limits) and not any(limits.values())

    def wait_until(self, ready_ms: int, now_ms: int) -> int:
        """Give until when a request for nothing waits; 0 when it has waited long enough."""
        return min(ready_ms, self._waits_until_ms) if now_ms < self._waits_until_ms else 0

    def forwarded(self) -> None:
        """The request is with the leader."""
        self.taken = False
        self.under_way = True

    def seen(self, standings: Sequence[Standing], now_ms: int) -> None:
        """Take what an answer says of some partitions."""
        for key, error_code, high_watermark, size, batch_bytes in standings:
            replica = self.session.replicas.get(key)
            if replica is not None and not error_code:
                replica.high_watermark = high_watermark
            if size:
                self._quotas.arrived(self.follower, *key, size)
            claim = self._claims.get(key)
            if claim is None:
                continue
            granted = claim.reserved
            claim.settle(size, now_ms)
            if batch_bytes:
                claim.least = batch_bytes
            elif granted > _PROBE_BYTES and replica is not None and not replica.in_sync:
                # It asked for less than a batch, and was not the first: such a one is left empty.
                claim.least = min(2 * granted, replica.max_bytes)

    def answered(self, now_ms: int) -> None:
        """The answer is over: what it did not name has brought nothing."""
        self.under_way = False
        for claim in self._asked:
            if claim.reserved:
                claim.settle(0, now_ms)
        self._asked.clear()

    def standings(self) -> Iterator[tuple[bytes, int, int, int]]:
        """Give each replica whose standing is known: topic, partition, fetch offset, high watermark."""
        for (topic, partition), replica in list(self.session.replicas.items()):
            if replica.high_watermark >= 0:
                yield topic, partition, replica.fetch_offset, replica.high_watermark

    def topics(self) -> set[bytes]:
        """Give the topics of all replicas, by id, or by name where a version has names."""
        return {topic for topic, _ in self.session.replicas}

    def close(self, now_ms: int) -> None:
        """The connection is over."""
        self.answered(now_ms)
        self._quotas.links.discard(self)
        self._quotas.replicas -= self._counted
        self._counted = 0
        self._claims.clear()
        self._new.clear()
        self.session = ReplicaSession()

    def _claim(self, now_ms: int) -> None:
        """Bring the claims up to date with the lists and with what the follower wants."""
        if self._version != self._quotas.version:
            self._version = self._quotas.version
            self._claims.clear()
            added: Sequence[TopicPartition] = list(self.session.replicas)
        else:
            added = self.session.added
        for key in self.session.removed:
            self._claims.pop(key, None)
            self._new.pop(key, None)
        if self._quotas.told is not None and self.session.added:
            # A request may name a partition and forget it again.
            replicas, met = self.session.replicas, (self._quotas.asked, now_ms)
            self._new.update((key, met) for key in self.session.added if key in replicas)
            self._quotas.waited_for = True
        for key in added:
            if key in self.session.replicas and key not in self._claims:
                claim = self._quotas.claim(*key, self.leader, self.follower, now_ms)
                if claim is not None:
                    self._claims[key] = claim
        self.session.added, self.session.removed = [], []

    def _wait_for_news(self, limits: dict[TopicPartition, int], now_ms: int) -> int | None:
        """Leave new replicas out that are behind; gives when to look for the news that says whether they may pass."""
        answered = self._quotas.told
        for key, (asked, since_ms) in list(self._new.items()):
            # Only a question that was asked after the replica was met can have been about it.
            told = answered is not None and answered > asked and self._quotas.is_named(key[0])
            if told or answered is None or now_ms - since_ms > _NEWS_MS_MAX:
                del self._new[key]
                self._stats.replicas_passed_unasked += not told
        waiting = False
        for key in self._new:
            replica = self.session.replicas[key]
            if self.session.full or replica.high_watermark < 0:
                limits[key] = _PROBE_BYTES
            elif not replica.in_sync:
                limits[key] = 0
                waiting = True
        return now_ms + _NEWS_MS if waiting else None
