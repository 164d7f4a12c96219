"""The partition mutation quota (KIP-599): the rate at which a client creates, adds and deletes partitions.

Two buckets count every mutation: the identity's (`controller_mutation_rate`, with Kafka's eight levels of
precedence) and one of all clients together (the draft's `quota.partition.mutations.rate` and `.burst`). The
tighter one decides. There is one of each per cluster, whatever the scope of other quotas, as in Kafka's active
controller; an identity's burst is Kafka's, `rate` times all windows.

Strict (`take`) decides topic by topic: while a bucket is overdrawn, a topic is rejected and costs nothing.
Permissive (`record`), for versions without such an error, takes tokens unconditionally. With `observe` the counts are
the same and the caller enforces nothing. Requests and responses are handled in
`proxy.channel.handlers.topic_mutations`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from quotas.definitions.entities import BucketKey
from quotas.definitions.kinds import CONTROLLER_MUTATION_RATE, MUTATION
from quotas.limiters.bucket import TokenBucket
from quotas.limiters.limiter import ALL_BROKERS, Decision, LimiterKey, ThrottleSource
from quotas.limiters.virtual_time import ConnectionTime
from quotas.throttles.figures import ClientThrottle
from quotas.throttles.topic_names import TtlMap


class SharedBucket(TokenBucket):
    """A token bucket of partition mutations, for all clients that share a quota."""

    __slots__ = ("enforced", "key", "users")

    def __init__(
        self, rate: float, burst: float, now_ms: int, key: BucketKey | None, *, enforced: bool
    ) -> None:
        super().__init__(rate, burst, now_ms)
        self.key = key
        self.users = 0
        self.enforced = enforced

    def update(self, rate: float, burst: float, now_ms: int, *, enforced: bool) -> None:
        """Set rate, burst and whether quotas are enforced; when enforcement begins, debt made before is cleared."""
        self.configure(rate, burst)
        if enforced and not self.enforced:
            self.settle(now_ms)
        self.enforced = enforced


class MutationThrottle(ClientThrottle):
    """The throttle of one client's partition mutations at all brokers."""

    __slots__ = ("_bucket", "_cluster", "_quotas", "_version", "users")

    def __init__(self, quotas: "MutationQuotas", user: str, client_id: str) -> None:
        super().__init__(MUTATION, user, client_id)
        self._quotas = quotas
        self._version: object = None
        self._bucket: SharedBucket | None = None
        self._cluster: SharedBucket | None = None
        self.users = 0  # the number of this client's `ClientQuota`s, one for each broker

    @property
    def enforcing(self) -> bool:
        """Whether mutations beyond the quota are rejected, or mute their channel; if False, they are only counted."""
        return self._quotas.source.enforcing

    def limits(self, now_ms: int) -> bool:
        """Whether mutations are counted here; if not, a request need not be decoded."""
        if self._quotas.source.relaying:
            return False
        self._refresh(now_ms)
        return self._bucket is not None or self._cluster is not None

    def take(self, partitions: int, now_ms: int) -> bool:
        """Take the tokens for a topic's partitions unless a bucket is overdrawn; returns whether they were taken.

        For request versions with THROTTLING_QUOTA_EXCEEDED (KIP-599: strict).
        """
        if self.overdrawn(now_ms):
            return False
        self.record(partitions, now_ms)
        return True

    def take_each(self, costs: Sequence[int], now_ms: int) -> list[int]:
        """Do the same as `take` for several topics in one step; returns the indices of the rejected ones.

        A topic without cost is never rejected.
        """
        self._refresh(now_ms)
        left = min(
            (bucket.tokens(now_ms) for bucket in (self._bucket, self._cluster) if bucket is not None),
            default=math.inf,
        )
        refused = []
        taken = 0
        for place, cost in enumerate(costs):
            if left < 0:
                if cost:
                    refused.append(place)
            else:
                left -= cost
                taken += cost
        self.record(taken, now_ms)
        return refused

    def record(self, partitions: int, now_ms: int) -> None:
        """Take tokens even if a bucket is overdrawn; a negative number returns those of failed mutations.

        For request versions without THROTTLING_QUOTA_EXCEEDED (KIP-599: permissive).
        """
        self._refresh(now_ms)
        for bucket in (self._bucket, self._cluster):
            if bucket is not None:
                bucket.record(partitions, now_ms)

    def overdrawn(self, now_ms: int) -> bool:
        """Whether one of the two buckets is overdrawn: that of the clients with this quota, or that of all clients."""
        self._refresh(now_ms)
        own, whole = self._bucket, self._cluster
        return (own is not None and own.overdrawn(now_ms)) or (whole is not None and whole.overdrawn(now_ms))

    def throttle_ms(self, now_ms: int) -> int:
        """Return the time in ms until no bucket is overdrawn; 0 if none is."""
        self._refresh(now_ms)
        longest_ms = 0
        for bucket in (self._bucket, self._cluster):
            throttle_ms = 0 if bucket is None else bucket.throttle_ms(now_ms)
            if bucket is not None and throttle_ms > 0:
                longest_ms = max(longest_ms, self._waits(bucket, throttle_ms, now_ms))
        return longest_ms

    def count_mutations(self, partitions: int) -> None:
        """Add to `total` the partitions that were created, added or deleted."""
        self.total += partitions

    def predict(self, throttle_ms: int, now_ms: int, connection: ConnectionTime) -> None:
        """Count a throttle time that is not enforced; connection and buckets then act as if it had passed."""
        self.would_throttled_total += 1
        connection.weigh(now_ms)
        connection.hold(throttle_ms)
        connection.count(self, throttle_ms)
        for bucket in (self._bucket, self._cluster):
            if bucket is not None:
                bucket.elapse(throttle_ms)

    def limit_now(self) -> float | None:
        """Return the smaller of the rates in force, in mutations/s; None: unlimited."""
        own, _ = self._quotas.source.definitions.limit(self.key, self.user, self.client_id)
        whole = self._quotas.source.options.partition_mutations_rate
        return min((rate for rate in (own, whole) if rate is not None), default=None)

    def tokens(self, now_ms: int) -> float | None:
        """Return the tokens in the bucket of the clients that share this quota; None if it is unlimited."""
        return None if self._bucket is None else self._bucket.tokens(now_ms)

    def in_use(self, now_ms: int) -> bool:
        """Whether the bucket of the clients that share this quota is overdrawn, so that the throttle must be kept."""
        return self._bucket is not None and self._bucket.overdrawn(now_ms)

    def _waits(self, bucket: SharedBucket, throttle_ms: int, now_ms: int) -> int:
        """Count this client in the demand for a bucket that several processes share; returns the wait in ms."""
        budgets = self._quotas.source.budgets
        if budgets is None:
            return throttle_ms
        return budgets.waits(bucket, self, Decision(throttle_ms=throttle_ms), now_ms).throttle_ms

    def detach(self) -> None:
        """Detach from the bucket; the next call attaches again."""
        if self._bucket is not None:
            self._quotas.release(self._bucket)
        self._bucket = self._cluster = self._version = None

    def _refresh(self, now_ms: int) -> None:
        source = self._quotas.source
        source.end_lease(now_ms)
        if self._version is source.version:
            return
        self.begin(now_ms)
        before = self._bucket
        self.limit, self._bucket = self._quotas.attach(self.user, self.client_id, now_ms)
        if before is not None:
            self._quotas.release(before)
        self._cluster = self._quotas.cluster(now_ms)
        self._version = source.version


# ----------------------------------------------------------------------------------------------------
# All partition mutation quotas of one process: throttles, buckets, and recently learned sizes of topics (KIP-599).
#
# There is one bucket for each identity and one for all clients together, for all brokers. Both are updated at their
# next use after a change of definitions or options. Kafka's buckets live in the active controller and are lost with it;
# these live as long as this process.

# Topics that were created or grown moments ago, whose size a broker may not know yet.
_SIZES_MAX: Final = 4096
# KRaft brokers hear of a topic within milliseconds; one that is busy or far away, within this time.
_SIZE_MS: Final = 10_000
# Topics that clients ask brokers to create by asking for them, until they are there.
_AUTO_CREATING_MAX: Final = 4096
# Clients ask again every 100 ms or so; Java's producer gives up after 60 s (max.block.ms).
_AUTO_CREATING_MS: Final = 60_000


# The bucket of all clients together; no identity's, whose parts are names.
_CLUSTER_KEY: Final[LimiterKey] = ("partition_mutations_rate", BucketKey(None, None), ALL_BROKERS)


@dataclass(slots=True, eq=False)
class InternalTopic:
    """An internal topic of a streams group that a member was charged for (KIP-1071).

    Attributes:
        partitions: the number of partitions that were charged for it, by this member and those before.
        shared: whether another member was not charged for it because of this charge, which then is not returned.
    """

    partitions: int
    shared: bool = False


class MutationQuotas:
    """The partition mutation quotas of one process (KIP-599): throttles of clients, and the buckets that they share.

    Attributes:
        default_partitions: the number of partitions of a topic created with the broker's default (-1), as brokers'
            responses show it; before the first one 1, Kafka's own default.
        sizes: the partition counts of topics that were recently created or extended through Sluice, by name and by id.
        internal_topics: the internal topics of streams groups that members were recently charged for, by name. Whether
            and with how many partitions they exist is not known.
        auto_creating: by name of a topic that is being auto-created, the throttle of the client that requested it.
    """

    def __init__(self, source: ThrottleSource) -> None:
        self.source = source
        self.default_partitions = 1
        self._clients: dict[tuple[str, str], MutationThrottle] = {}
        self._buckets: dict[BucketKey, SharedBucket] = {}
        self._cluster: SharedBucket | None = None
        self._cluster_version: object = None
        self._limiting: tuple[object, bool] = (None, False)
        self.sizes = TtlMap[str | bytes, int](_SIZES_MAX, _SIZE_MS)
        self.internal_topics = TtlMap[str, InternalTopic](_SIZES_MAX, _SIZE_MS)
        self.auto_creating = TtlMap[str, MutationThrottle](_AUTO_CREATING_MAX, _AUTO_CREATING_MS)

    def limiting(self) -> bool:
        """Whether any partition mutation quota is in force."""
        version, found = self._limiting
        if version is not self.source.version:
            whole = self.source.options.partition_mutations_rate is not None
            found = whole or self.source.definitions.has(CONTROLLER_MUTATION_RATE)
            self._limiting = (self.source.version, found)
        return found

    def client(self, user: str, client_id: str) -> MutationThrottle:
        """Return this client's throttle, the same for all brokers; the caller must release it with `leave`."""
        found = self._clients.get((user, client_id))
        if found is None:
            found = self._clients[user, client_id] = MutationThrottle(self, user, client_id)
        found.users += 1
        return found

    def leave(self, throttle: MutationThrottle) -> None:
        """Detach one `ClientQuota` from its throttle, which is removed with the last of them."""
        throttle.users -= 1
        if throttle.users <= 0:
            throttle.detach()
            del self._clients[throttle.user, throttle.client_id]

    def clients(self) -> Iterator[MutationThrottle]:
        """Iterate over the throttles of all clients whose partition mutations are counted."""
        return iter(list(self._clients.values()))

    def __len__(self) -> int:
        return len(self._clients)

    def attach(self, user: str, client_id: str, now_ms: int) -> tuple[float | None, SharedBucket | None]:
        """Attach a client: return its limit in partitions/s, and the bucket of all clients that share it.

        Both are None if the client is unlimited.
        """
        source = self.source
        limit, key = source.definitions.limit(CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is None:
            return None, None
        burst = self._burst(limit)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = SharedBucket(limit, burst, now_ms, key, enforced=source.enforcing)
            self._begin(bucket, (CONTROLLER_MUTATION_RATE, key, ALL_BROKERS), now_ms)
        else:
            self._update(bucket, limit, burst, now_ms)
        bucket.users += 1
        return limit, bucket

    def release(self, bucket: SharedBucket) -> None:
        """Detach one client from this bucket; the bucket is removed with its last client."""
        bucket.users -= 1
        if bucket.users <= 0 and bucket.key is not None and self._buckets.get(bucket.key) is bucket:
            del self._buckets[bucket.key]
            if self.source.budgets is not None:
                self.source.budgets.end(bucket)

    def cluster(self, now_ms: int) -> SharedBucket | None:
        """Return the bucket for the mutations of all clients together; None if no such limit is configured."""
        source = self.source
        if self._cluster_version is source.version:
            return self._cluster
        self._cluster_version = source.version
        rate = source.options.partition_mutations_rate
        if rate is None:
            self._cluster = None
            return None
        burst = source.options.partition_mutations_burst
        burst = self._burst(rate) if burst is None else burst
        if self._cluster is None:
            self._cluster = SharedBucket(rate, burst, now_ms, None, enforced=source.enforcing)
            self._begin(self._cluster, _CLUSTER_KEY, now_ms)
        else:
            self._update(self._cluster, rate, burst, now_ms)
        return self._cluster

    def cluster_tokens(self, now_ms: int) -> float | None:
        """Return the tokens left for all clients together; None without such a limit."""
        bucket = self.cluster(now_ms)
        return None if bucket is None else bucket.tokens(now_ms)

    def _begin(self, bucket: SharedBucket, limiter_key: LimiterKey, now_ms: int) -> None:
        bucket.limiter_key = limiter_key
        if self.source.budgets is not None:
            self.source.budgets.begin(bucket, limiter_key, now_ms)

    def _update(self, bucket: SharedBucket, rate: float, burst: float, now_ms: int) -> None:
        bucket.update(rate, burst, now_ms, enforced=self.source.enforcing)
        if self.source.budgets is not None and bucket.limiter_key is not None:
            self.source.budgets.lend(bucket, bucket.limiter_key, now_ms)

    def _burst(self, rate: float) -> float:
        """Return Kafka's burst in partitions: `rate` times all windows (controller.quota.window.num, .size.seconds)."""
        options = self.source.options
        return rate * options.window_samples * options.window_seconds
