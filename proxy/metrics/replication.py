"""The figures of replication for /metrics: rates, lag, bytes by partition, and the time until a replica is in sync
(KIP-73).

These are the proposal's four figures, and two that it leaves to the operator's arithmetic. A lag is a number of
records; so the time to finish is the lag divided by its recent decrease per second, and infinite if it does not
decrease: the throttle is below the write rate (the proposal's SumReplicaLag that stops reducing).
`proxy.metrics.exposition` writes the text.
"""

from collections.abc import Iterator
from typing import Final

from proxy.metrics.families import Family, Labels, by_label, single
from proxy.metrics.series import OTHER, label
from proxy.system.stats import Stats
from quotas.replication.replication_quotas import ReplicationQuotas

_PORTION: Final = 2000
# The interval over which the speed of a replica is measured, and the shortest usable one.
_BASE_MS_MAX: Final = 30_000
_BASE_MS_MIN: Final = 500

# What `Stats` counts: the attribute, which is the metric's name without "sluice_", and the text.
_COUNTS: Final = (
    ("replicas_left_out", "Throttled replicas left out of a Fetch"),
    (
        "replica_fetches_answered",
        "Fetches of followers with an empty response of Sluice, because nothing was left to ask for",
    ),
    ("replication_unmirrored", "Fetches that passed unthrottled: too many replicas to remember"),
    (
        "replicas_passed_unasked",
        "New replicas that passed unthrottled: whether they are throttled was not known in time",
    ),
)

_Key = tuple[int, bytes, int]  # follower, topic, partition


class ReplicationMetrics:
    """The metrics of replication: rates, and how far followers are behind their leaders (lag).

    For each scrape, iterate over `portions`, then call `families`.

    Args:
        series_max: how many partitions have series of their own at most, those that lag most first. The lags of all
            partitions are also summed by broker.
    """

    def __init__(self, quotas: ReplicationQuotas, stats: Stats, series_max: int) -> None:
        self._quotas = quotas
        self._stats = stats
        self._series_max = series_max
        self._bases: dict[_Key, tuple[int, int, int]] = {}  # when, fetch offset, high watermark
        self._lags: dict[int, int] = {}
        self._behind: list[tuple[int, _Key, float | None]] = []

    def portions(self, now_ms: int) -> Iterator[None]:
        """Read the offsets of all replicas; the caller may run other tasks between two portions."""
        lags: dict[int, int] = {}
        behind: dict[_Key, tuple[int, _Key, float | None]] = {}
        bases: dict[_Key, tuple[int, int, int]] = {}
        seen = 0
        for link in list(self._quotas.links):
            follower = link.follower
            for topic, partition, offset, high_watermark in link.replica_offsets():
                lag = max(0, high_watermark - offset)
                key = (follower, topic, partition)
                if key in behind:  # its follower has reconnected, and the old connection has not ended
                    if behind[key][0] <= lag:
                        continue
                    lags[follower] -= behind.pop(key)[0]
                lags[follower] = lags.get(follower, 0) + lag
                if lag:
                    base = self._bases.get(key, (now_ms, offset, high_watermark))
                    behind[key] = (lag, key, _finish_seconds(base, now_ms, offset, high_watermark))
                    bases[key] = (
                        base if now_ms - base[0] <= _BASE_MS_MAX else (now_ms, offset, high_watermark)
                    )
                seen += 1
                if seen % _PORTION == 0:
                    yield
        self._lags, self._bases = lags, bases
        self._behind = sorted(behind.values(), reverse=True, key=lambda row: row[0])[: self._series_max]

    def families(self, now_ms: int) -> list[Family]:
        """Return the metric families, with the replicas' offsets as `portions` has read them."""
        rates = [((side, str(broker)), rate) for side, broker, rate in self._quotas.rates()]
        sides = ("side", "broker")
        place = ("broker", "topic", "partition")
        return [
            Family(
                "sluice_replication_throttled_byte_rate",
                "gauge",
                "Bytes/s of throttled replicas, in sync or not, that a broker sends (leader) or receives (follower)",
                sides,
                [(labels, rate.per_second(now_ms)) for labels, rate in rates],
            ),
            Family(
                "sluice_replication_quota_byte_rate",
                "gauge",
                "The throttled rate in bytes/s; absent: none",
                sides,
                [(labels, rate.limit) for labels, rate in rates if rate.limit is not None],
            ),
            Family(
                "sluice_replication_lag",
                "gauge",
                "Records that a broker's replicas are behind their leaders, all together",
                ("broker",),
                [((str(broker),), lag) for broker, lag in sorted(self._lags.items())],
            ),
            Family(
                "sluice_replication_partition_bytes",
                "counter",
                "Bytes of a partition that a broker has received as a follower, throttled or not",
                place,
                self._bytes(),
            ),
            Family(
                "sluice_replica_lag",
                "gauge",
                "Records that a replica is behind; only replicas that are behind",
                place,
                [(self._labels(key), lag) for lag, key, _ in self._behind],
            ),
            Family(
                "sluice_replica_finish_seconds",
                "gauge",
                "Time until a replica that is behind has caught up, at the rate of the last 30 s",
                place,
                [(self._labels(key), left) for _, key, left in self._behind if left is not None],
            ),
            *self._counts(),
        ]

    def _counts(self) -> Iterator[Family]:
        for name, text in _COUNTS:
            yield single(f"sluice_{name}", "counter", text, getattr(self._stats, name))
        text = "Failed attempts to ask the cluster what is throttled; the last known state stays in use"
        yield single("sluice_replication_asked_in_vain", "counter", text, self._quotas.failed_polls)
        text = "Fetches that passed unthrottled: of an unsupported version"
        versions = self._stats.replication_unknown_versions
        yield by_label("sluice_replication_unknown_versions", "counter", text, "version", versions)

    def _labels(self, key: _Key) -> Labels:
        follower, topic, partition = key
        name = self._quotas.topic_names.get(topic)
        if name is None:
            name = topic.hex() if len(topic) == 16 else topic.decode("utf-8", "replace")
        return str(follower), label(name), str(partition)

    def _bytes(self) -> list[tuple[Labels, float]]:
        """Return bytes by partition; the first partitions keep series of their own, so that no series ever
        decreases.
        """
        rows: dict[Labels, float] = {}
        rest: dict[int, int] = {}
        for place, (key, size) in enumerate(self._quotas.bytes_in.items()):
            if place < self._series_max:
                labels = self._labels(key)  # those of a topic that was made again under its name are the same
                rows[labels] = rows.get(labels, 0) + size
            else:
                rest[key[0]] = rest.get(key[0], 0) + size
        return [*rows.items()] + [((str(follower), OTHER, ""), size) for follower, size in rest.items()]


def _finish_seconds(
    base: tuple[int, int, int], now_ms: int, offset: int, high_watermark: int
) -> float | None:
    """Return the time until a lag is gone, in s; None if it was observed for too short a time.

    >>> _finish_seconds((0, 0, 1000), 2000, 300, 1100)  # 150 records/s come, 50 are written: 800 / 100
    8.0
    >>> _finish_seconds((0, 0, 1000), 2000, 100, 1100)
    inf
    """
    since_ms, offset_then, high_watermark_then = base
    if now_ms - since_ms < _BASE_MS_MIN:
        return None
    gained = (offset - offset_then) - (high_watermark - high_watermark_then)
    if gained <= 0:
        return float("inf")
    return (high_watermark - offset) / gained * (now_ms - since_ms) / 1000
