"""/metrics: `Stats` and the quota engine's views in Prometheus' format, under names that begin with `sluice_`.

KIP-13's byte rate and throttle time per client id are there, with further figures; docs/metrics.md maps each name to
Kafka's MBean, and a test compares that document with this module. A scrape has three steps, so that it does not delay
traffic: `ClientSeries` iterates over the clients in portions, a snapshot of the counters is taken, and `render` writes
the text, possibly in a thread. The registry is separate from the default one, which other imported packages may use.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from proxy.metrics.families import Family, metric, of_captures, of_proxy, of_rows, single
from proxy.metrics.replication import ReplicationMetrics
from proxy.metrics.series import Quotas, QuotaSeries, no_waits
from proxy.system import compiled
from proxy.system.stats import Stats
from quotas.throttles.figures import QuotaView


class Metrics:
    """Makes the /metrics page of one process: `portions` visits its clients, then `snapshot`, then `render`.

    Args:
        stats: the data path's counters.
        quotas: the quotas engine.
        series_max: the largest number of metric series of all clients together.
        version: Sluice's version, for `sluice_build_info`.
        replication: the figures of replication; None without it.
        others: functions that return further metric families.
        workers: how many processes relay.
        waits: returns how long clients have waited: a view for each client and each kind of quota that it has waited
            for, whose `bytes_total` is the waits in ms.
    """

    def __init__(
        self,
        stats: Stats,
        quotas: Quotas,
        series_max: int,
        version: str,
        replication: ReplicationMetrics | None = None,
        others: Sequence[Callable[[], Iterable[Family]]] = (),
        workers: int = 1,
        waits: Callable[[], Iterable[QuotaView]] = no_waits,
    ) -> None:
        self._workers = workers
        self._others = others
        self._replication = replication
        self._now_ms = 0
        self._stats = stats
        self._quotas = quotas
        self._series = QuotaSeries(quotas, series_max, waits)
        self._cluster_tokens: float | None = None
        self._version = version
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    def portions(self, now_ms: int) -> Iterator[None]:
        """Visit all clients, to choose those with series of their own, and to add up the figures of all.

        The work is done in portions while the caller iterates; it may run other tasks between two of them. The caller
        ensures that there is one scrape at a time.
        """
        yield from self._series.portions(now_ms)
        if self._replication is not None:
            yield from self._replication.portions(now_ms)
        self._now_ms = now_ms
        self._cluster_tokens = self._quotas.cluster_tokens(now_ms)

    def snapshot(self) -> tuple[Metric, ...]:
        """Return all metrics for `render`: the counters now, and the clients as `portions` has visited them."""
        return *of_rows(self._series.rows(), self._cluster_tokens), *self.families()

    def families(self) -> Iterator[Metric]:
        """Yield the metric families of the whole process, without those of single clients."""
        yield from of_proxy(self._stats)
        yield from of_captures(self._stats.captures)
        yield from self._of_families()

    def render(self, snapshot: Sequence[Metric], accept: str, *, process: bool = True) -> tuple[bytes, str]:
        """Render a snapshot in a format that the scraper accepts.

        Args:
            accept: the scraper's Accept header.
            process: whether to add this process's processor time, memory and descriptors.

        Returns: the body and its content type.
        """
        encode, content_type = choose_encoder(accept)
        registry = CollectorRegistry()
        registry.register(_Fixed(snapshot))
        if process:
            # OpenMetrics ends with a line of its own, so both parts must be written by one registry.
            registry.register(_Fixed(tuple(self._process.collect())))
        return encode(registry), content_type

    def _of_families(self) -> Iterator[Metric]:
        families = [] if self._replication is None else self._replication.families(self._now_ms)
        families.extend(family for give in self._others for family in give())
        off = self._stats.enforcement_off
        for name, text, value in (
            (
                "enforcing",
                "1 when quotas are enforced, 0 when they are only observed or off",
                self._quotas.enforcing,
            ),
            ("enforcement_off", "1 when all enforcement was switched off, whatever the mode", off),
            ("workers", "Processes that relay, as configured", self._workers),
        ):
            families.append(single(f"sluice_{name}", "gauge", text, value))
        labels = ("version", "python", "data_path")
        values = self._version, ".".join(map(str, sys.version_info[:3])), compiled.form()
        text = "Always 1; the labels are the versions, and whether the data path is compiled or interpreted"
        families.append(Family("sluice_build_info", "gauge", text, labels, [(values, 1.0)]))
        return map(metric, families)


class _Fixed(Collector):
    """Gives Prometheus' registry metrics that are complete already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)
