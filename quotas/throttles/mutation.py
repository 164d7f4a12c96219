"""The partition mutation quota (KIP-599): the rate at which a client creates, adds and deletes partitions.

Two buckets count every mutation: the identity's (`controller_mutation_rate`, with Kafka's eight levels of
precedence) and one of all clients together (the draft's `quota.partition.mutations.rate` and `.burst`). The
tighter one decides. There is one of each per cluster, whatever the scope of other quotas, as in Kafka's active
controller; an identity's burst is Kafka's, `rate` times all windows.

Strict (`take`) decides topic by topic: while a bucket is overdrawn, a topic is rejected and costs nothing.
Permissive (`record`), for versions without such an error, takes tokens unconditionally. With `observe` the counts are
the same and the caller enforces nothing. The buckets are in `mutation_quotas`; requests and responses are handled
in `proxy.channel.handlers.topic_mutations`.
"""

import math
from collections.abc import Sequence
from typing import Protocol

from quotas.decisions import Decision
from quotas.definitions.definitions import CONTROLLER_MUTATION_RATE, Definitions
from quotas.definitions.entities import BucketKey
from quotas.limiters.bucket import TokenBucket
from quotas.limiters.lending import ThrottleSource
from quotas.limiters.virtual_time import ConnectionTime
from quotas.options import EngineOptions
from quotas.throttles.windowed import WindowedCounters

__all__ = ["Buckets", "MutationThrottle", "SharedBucket", "Source"]


class Source(ThrottleSource, Protocol):
    """The part of the engine that these throttles use."""

    @property
    def relaying(self) -> bool:
        """Whether all enforcement is switched off (SIGUSR1)."""

    @property
    def options(self) -> EngineOptions:
        """The options in force."""

    @property
    def definitions(self) -> Definitions:
        """The definitions in force."""


class SharedBucket(TokenBucket):
    """A bucket that several clients may share."""

    __slots__ = ("enforced", "key", "users")

    def __init__(
        self, rate: float, burst: float, now_ms: int, key: BucketKey | None, *, enforced: bool
    ) -> None:
        super().__init__(rate, burst, now_ms)
        self.key = key
        self.users = 0
        self.enforced = enforced

    def update(self, rate: float, burst: float, now_ms: int, *, enforced: bool) -> None:
        """Apply rate, burst and enforcement in force; debt made without enforcement is cleared."""
        self.configure(rate, burst)
        if enforced and not self.enforced:
            self.settle(now_ms)
        self.enforced = enforced


class Buckets(Protocol):
    """The owner of the buckets."""

    source: Source

    def attach(self, user: str, client_id: str, now_ms: int) -> tuple[float | None, SharedBucket | None]:
        """Attach a client: return its limit and its identity's bucket, updated."""

    def release(self, bucket: SharedBucket) -> None:
        """Detach one client from this bucket."""

    def cluster(self, now_ms: int) -> SharedBucket | None:
        """Return the bucket of all clients together, updated; None if it is not configured."""


class MutationThrottle(WindowedCounters):
    """One client's partition mutations at all brokers."""

    __slots__ = (
        "_bucket",
        "_cluster",
        "_quotas",
        "_version",
        "client_id",
        "key",
        "limit",
        "mutations_total",
        "user",
        "users",
    )

    def __init__(self, quotas: Buckets, user: str, client_id: str) -> None:
        super().__init__()
        self._quotas = quotas
        self._version: object = None
        self._bucket: SharedBucket | None = None
        self._cluster: SharedBucket | None = None
        self.key = CONTROLLER_MUTATION_RATE
        self.user = user
        self.client_id = client_id
        self.users = 0  # the number of this client's `ClientQuota`s, one for each broker
        self.limit: float | None = None  # the identity's, in mutations/s, as of the last refresh
        self.mutations_total = 0  # partitions that were created, added and deleted

    @property
    def enforcing(self) -> bool:
        """Whether decisions are enforced."""
        return self._quotas.source.enforcing

    def limits(self, now_ms: int) -> bool:
        """Whether mutations are counted here; if not, a request need not be decoded."""
        if self._quotas.source.relaying:
            return False
        self._refresh(now_ms)
        return self._bucket is not None or self._cluster is not None

    def take(self, partitions: int, now_ms: int) -> bool:
        """Strict: take a topic's partitions unless a bucket is overdrawn; returns whether they were taken."""
        if self.overdrawn(now_ms):
            return False
        self.record(partitions, now_ms)
        return True

    def take_each(self, costs: Sequence[int], now_ms: int) -> list[int]:
        """Strict: `take` for several topics in one step; returns the indices of the rejected ones.

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
        """Permissive: take tokens unconditionally; a negative number returns those of failed mutations."""
        self._refresh(now_ms)
        for bucket in (self._bucket, self._cluster):
            if bucket is not None:
                bucket.record(partitions, now_ms)

    def overdrawn(self, now_ms: int) -> bool:
        """Whether one of the two buckets is overdrawn."""
        self._refresh(now_ms)
        own, whole = self._bucket, self._cluster
        return (own is not None and own.overdrawn(now_ms)) or (whole is not None and whole.overdrawn(now_ms))

    def throttle_ms(self, now_ms: int) -> int:
        """The time in ms until no bucket is overdrawn; 0 if none is."""
        self._refresh(now_ms)
        longest_ms = 0
        for bucket in (self._bucket, self._cluster):
            throttle_ms = 0 if bucket is None else bucket.throttle_ms(now_ms)
            if bucket is not None and throttle_ms > 0:
                longest_ms = max(longest_ms, self._waits(bucket, throttle_ms, now_ms))
        return longest_ms

    def count_mutations(self, partitions: int) -> None:
        """Count mutations that were carried out."""
        self.mutations_total += partitions

    def count_throttle(self, throttle_ms: int) -> None:
        """Count the throttle time of a response."""
        self.count(throttle_ms, enforced=True)

    def predict(self, throttle_ms: int, now_ms: int, connection: ConnectionTime) -> None:
        """Count the throttle time that would have applied; connection and buckets then act as if it had passed."""
        self.would_throttled_total += 1
        connection.weigh(now_ms)
        connection.hold(throttle_ms)
        connection.count(self, throttle_ms)
        for bucket in (self._bucket, self._cluster):
            if bucket is not None:
                bucket.elapse(throttle_ms)

    def rate(self) -> float | None:
        """The smaller of the rates in force, in mutations/s; None: unlimited."""
        own, _ = self._quotas.source.definitions.limit(self.key, self.user, self.client_id)
        whole = self._quotas.source.options.partition_mutations_rate
        return min((rate for rate in (own, whole) if rate is not None), default=None)

    def tokens(self, now_ms: int) -> float | None:
        """The tokens in the identity's bucket; None without a bucket."""
        return None if self._bucket is None else self._bucket.tokens(now_ms)

    def mutation_rate(self, now_ms: int) -> float:
        """The rate of mutations over about the quota's windows, in partitions/s."""
        return self.per_second(self.mutations_total, now_ms)

    def in_debt(self, now_ms: int) -> bool:
        """Whether the identity's bucket is overdrawn, so that this throttle must not be removed."""
        return self._bucket is not None and self._bucket.overdrawn(now_ms)

    def _waits(self, bucket: SharedBucket, throttle_ms: int, now_ms: int) -> int:
        """Note that this client waits for tokens; returns the time in ms."""
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
