"""The partition mutation quota (KIP-599): who may create, add and delete how many partitions.

Two buckets count every mutation: the identity's (`controller_mutation_rate`, with Kafka's eight levels of
precedence) and one of all clients together (the draft's `quota.partition.mutations.rate` and `.burst`). The
tighter one decides. Both are one per cluster whatever the scope of other quotas, as Kafka's live in the one
active controller; an identity's burst is Kafka's, `rate` times all windows.

Strict (`take`) asks for each topic by itself: while a bucket is overdrawn the topic is rejected and costs
nothing. Permissive (`record`), for versions that know no such error, takes whatever there is. `observe`
counts the same and the caller enforces nothing. What a message asks for, and what an answer says about it,
is `proxy.channel.handlers.topic_mutations`; auto-created topics are `auto_created`.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from quotas.bucket import TokenBucket
from quotas.definitions import CONTROLLER_MUTATION_RATE, Definitions
from quotas.entities import BucketKey
from quotas.options import EngineOptions

__all__ = ["MutationQuotas", "MutationThrottle", "Source"]

# Topics that were created or grown moments ago, whose size a broker may not know yet.
_SIZES_MAX: Final = 4096
# KRaft brokers hear of a topic within milliseconds; one that is busy or far away, within this time.
_SIZE_MS: Final = 10_000


class Source(Protocol):
    """What is needed of the engine."""

    version: object  # replaced by every change
    enforcing: bool

    @property
    def relaying(self) -> bool:
        """Whether everything passes unseen (SIGUSR1)."""

    @property
    def options(self) -> EngineOptions:
        """The options in force."""

    @property
    def definitions(self) -> Definitions:
        """The definitions in force."""


class _Bucket(TokenBucket):
    """A bucket that several clients may share."""

    __slots__ = ("enforced", "key", "users")

    def __init__(
        self, rate: float, burst: float, now_ms: int, key: BucketKey | None, *, enforced: bool
    ) -> None:
        super().__init__(rate, burst, now_ms)
        self.key = key
        self.users = 0
        self.enforced = enforced

    def bring_up(self, rate: float, burst: float, now_ms: int, *, enforced: bool) -> None:
        """Take over what is in force now; what passed unenforced is nobody's debt."""
        self.configure(rate, burst)
        if enforced and not self.enforced:
            self.settle(now_ms)
        self.enforced = enforced


class MutationThrottle:
    """One client's partition mutations, on whatever broker it asks for them."""

    __slots__ = (
        "_bucket",
        "_cluster",
        "_quotas",
        "_version",
        "client_id",
        "key",
        "limit",
        "mutations_total",
        "throttle_ms_total",
        "throttled_total",
        "user",
        "users",
        "would_throttle_ms_total",
        "would_throttled_total",
    )

    def __init__(self, quotas: "MutationQuotas", user: str, client_id: str) -> None:
        self._quotas = quotas
        self._version: object = None
        self._bucket: _Bucket | None = None
        self._cluster: _Bucket | None = None
        self.key = CONTROLLER_MUTATION_RATE
        self.user = user
        self.client_id = client_id
        self.users = 0  # `ClientQuota`s that stand for this client, one a broker
        self.limit: float | None = None  # its own, in mutations/s, as of the last refresh
        self.mutations_total = 0  # partitions that were created, added and deleted
        self.throttle_ms_total = 0
        self.throttled_total = 0  # answers that told a throttle time
        self.would_throttle_ms_total = 0
        self.would_throttled_total = 0

    @property
    def enforcing(self) -> bool:
        """Whether what is decided here holds."""
        return self._quotas.source.enforcing

    def limits(self, now_ms: int) -> bool:
        """Whether anything is counted here: if not, a request need not be looked at."""
        if self._quotas.source.relaying:
            return False
        self._refresh(now_ms)
        return self._bucket is not None or self._cluster is not None

    def take(self, partitions: int, now_ms: int) -> bool:
        """Strict: take a topic's partitions unless a bucket is overdrawn already; whether they were taken."""
        self._refresh(now_ms)
        if self._overdrawn(now_ms):
            return False
        self.record(partitions, now_ms)
        return True

    def record(self, partitions: int, now_ms: int) -> None:
        """Permissive: take them whatever there is. A negative number gives back what came to nothing."""
        self._refresh(now_ms)
        for bucket in (self._bucket, self._cluster):
            if bucket is not None:
                bucket.record(partitions, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """How long the tighter bucket stays overdrawn; 0 when none is."""
        self._refresh(now_ms)
        found = (bucket.throttle_ms(now_ms) for bucket in (self._bucket, self._cluster) if bucket is not None)
        return max(found, default=0)

    def done(self, partitions: int) -> None:
        """So many mutations were really made."""
        self.mutations_total += partitions

    def told(self, throttle_ms: int) -> None:
        """An answer was throttled by so much, or would have been."""
        if self.enforcing:
            self.throttled_total += 1
            self.throttle_ms_total += throttle_ms
        else:
            self.would_throttled_total += 1
            self.would_throttle_ms_total += throttle_ms

    def rate(self) -> float | None:
        """The smaller of the rates in force, in mutations/s; None: unlimited."""
        own, _ = self._quotas.source.definitions.limit(self.key, self.user, self.client_id)
        whole = self._quotas.source.options.partition_mutations_rate
        return min((rate for rate in (own, whole) if rate is not None), default=None)

    def tokens(self, now_ms: int) -> float | None:
        """What is left in the client's own bucket; None without one."""
        return None if self._bucket is None else self._bucket.tokens(now_ms)

    def owes(self, now_ms: int) -> bool:
        """Whether its own bucket is overdrawn, so that it must not be forgotten yet."""
        return self._bucket is not None and self._bucket.overdrawn(now_ms)

    def detach(self) -> None:
        """Let go of the bucket; the next call attaches again."""
        if self._bucket is not None:
            self._quotas.release(self._bucket)
        self._bucket = self._cluster = self._version = None

    def _overdrawn(self, now_ms: int) -> bool:
        own, whole = self._bucket, self._cluster
        return (own is not None and own.overdrawn(now_ms)) or (whole is not None and whole.overdrawn(now_ms))

    def _refresh(self, now_ms: int) -> None:
        if self._version is self._quotas.source.version:
            return
        before = self._bucket
        self.limit, self._bucket = self._quotas.attach(self.user, self.client_id, now_ms)
        if before is not None:
            self._quotas.release(before)
        self._cluster = self._quotas.cluster(now_ms)
        self._version = self._quotas.source.version


class MutationQuotas:
    """The buckets of one process.

    Attributes:
        default_partitions: what a topic counts whose creator leaves the number to the broker (-1), as brokers'
            answers have told it; 1, Kafka's own default, until one has.
    """

    __slots__ = (
        "_buckets",
        "_clients",
        "_cluster",
        "_cluster_version",
        "_sizes",
        "default_partitions",
        "source",
    )

    def __init__(self, source: Source) -> None:
        self.source = source
        self.default_partitions = 1
        self._clients: dict[tuple[str, str], MutationThrottle] = {}
        self._buckets: dict[BucketKey, _Bucket] = {}
        self._cluster: _Bucket | None = None
        self._cluster_version: object = None
        self._sizes: dict[str | bytes, tuple[int, int]] = {}

    def client(self, user: str, client_id: str) -> MutationThrottle:
        """This client's throttle; give it back with `leave`."""
        found = self._clients.get((user, client_id))
        if found is None:
            found = self._clients[user, client_id] = MutationThrottle(self, user, client_id)
        found.users += 1
        return found

    def leave(self, throttle: MutationThrottle) -> None:
        """One `ClientQuota` fewer stands for this client; the last one takes it away."""
        throttle.users -= 1
        if throttle.users <= 0:
            throttle.detach()
            del self._clients[throttle.user, throttle.client_id]

    def clients(self) -> Iterator[MutationThrottle]:
        """Everybody who has asked for mutations."""
        return iter(list(self._clients.values()))

    def resized(self, topics: Iterable[str | bytes], partitions: int, now_ms: int) -> None:
        """Remember a topic's size, by its name and its id: brokers hear of it a moment after its creator does."""
        for topic in topics:
            self._sizes.pop(topic, None)
            if len(self._sizes) >= _SIZES_MAX:
                del self._sizes[next(iter(self._sizes))]
            self._sizes[topic] = (partitions, now_ms + _SIZE_MS)

    def size(self, topic: str | bytes, now_ms: int) -> int:
        """The size that a topic got here moments ago; 0 for others."""
        partitions, until_ms = self._sizes.get(topic, (0, 0))
        return partitions if now_ms < until_ms else 0

    def deleted(self, topics: Iterable[str | bytes]) -> None:
        """Forget a topic's size."""
        for topic in topics:
            self._sizes.pop(topic, None)

    def attach(self, user: str, client_id: str, now_ms: int) -> tuple[float | None, _Bucket | None]:
        """A client's limit and its identity's bucket, brought up to date and counted as used."""
        source = self.source
        limit, key = source.definitions.limit(CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is None:
            return None, None
        burst = self._burst(limit)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(limit, burst, now_ms, key, enforced=source.enforcing)
        else:
            bucket.bring_up(limit, burst, now_ms, enforced=source.enforcing)
        bucket.users += 1
        return limit, bucket

    def release(self, bucket: _Bucket) -> None:
        """One client fewer counts against this bucket; the last one takes it away."""
        bucket.users -= 1
        if bucket.users <= 0 and bucket.key is not None and self._buckets.get(bucket.key) is bucket:
            del self._buckets[bucket.key]

    def cluster(self, now_ms: int) -> _Bucket | None:
        """The bucket of all clients together, brought up to date; None where it is not configured."""
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
            self._cluster = _Bucket(rate, burst, now_ms, None, enforced=source.enforcing)
        else:
            self._cluster.bring_up(rate, burst, now_ms, enforced=source.enforcing)
        return self._cluster

    def cluster_tokens(self, now_ms: int) -> float | None:
        """What is left for all clients together; None where nothing limits them together."""
        bucket = self.cluster(now_ms)
        return None if bucket is None else bucket.tokens(now_ms)

    def _burst(self, rate: float) -> float:
        """Kafka's: all windows full (controller.quota.window.num times .size.seconds)."""
        options = self.source.options
        return rate * options.window_samples * options.window_seconds
