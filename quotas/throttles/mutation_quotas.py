"""All partition mutation quotas of one process: throttles, buckets, and recently learned sizes of topics (KIP-599).

There is one bucket for each identity and one for all clients together, for all brokers. Both are updated at their next
use after a change of definitions or options. Kafka's buckets live in the active controller and are lost with it; these
live as long as this process.
"""

from collections.abc import Iterator
from typing import Final

from quotas.definitions.definitions import CONTROLLER_MUTATION_RATE
from quotas.definitions.entities import BucketKey
from quotas.limiters.lending import ALL_BROKERS, LimiterKey
from quotas.throttles.mutation import MutationThrottle, SharedBucket, Source
from quotas.throttles.ttl_map import TtlMap

__all__ = ["MutationQuotas"]

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


class MutationQuotas:
    """The buckets of one process.

    Attributes:
        default_partitions: the number of partitions of a topic created with the broker's default (-1), as brokers'
            responses show it; before the first one 1, Kafka's own default.
        sizes: the sizes of topics that were created or extended here recently, by name and by id.
        auto_creating: by topic name, the throttle of the client whose Metadata request auto-creates it.
    """

    __slots__ = (
        "_buckets",
        "_clients",
        "_cluster",
        "_cluster_version",
        "_limiting",
        "auto_creating",
        "default_partitions",
        "sizes",
        "source",
    )

    def __init__(self, source: Source) -> None:
        self.source = source
        self.default_partitions = 1
        self._clients: dict[tuple[str, str], MutationThrottle] = {}
        self._buckets: dict[BucketKey, SharedBucket] = {}
        self._cluster: SharedBucket | None = None
        self._cluster_version: object = None
        self._limiting: tuple[object, bool] = (None, False)
        self.sizes = TtlMap[str | bytes, int](_SIZES_MAX, _SIZE_MS)
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
        """Return this client's throttle; end it with `leave`."""
        found = self._clients.get((user, client_id))
        if found is None:
            found = self._clients[user, client_id] = MutationThrottle(self, user, client_id)
        found.users += 1
        return found

    def leave(self, throttle: MutationThrottle) -> None:
        """Detach one `ClientQuota`; the throttle is removed with the last one."""
        throttle.users -= 1
        if throttle.users <= 0:
            throttle.detach()
            del self._clients[throttle.user, throttle.client_id]

    def clients(self) -> Iterator[MutationThrottle]:
        """The throttles of all clients with partition mutations."""
        return iter(list(self._clients.values()))

    def __len__(self) -> int:
        return len(self._clients)

    def attach(self, user: str, client_id: str, now_ms: int) -> tuple[float | None, SharedBucket | None]:
        """Attach a client: return its limit and its identity's bucket, updated."""
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
        """Return the bucket of all clients together, updated; None if it is not configured."""
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
        """The tokens left for all clients together; None without such a limit."""
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
