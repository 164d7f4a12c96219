"""The figures of leases for /metrics: this process's shares of followers' quotas, and the lease holder's state
(KIP-73).

`proxy.metrics.exposition` writes the text.
"""

from collections.abc import Callable, Iterator

from proxy.metrics.replication import Family
from proxy.stats import Stats
from quotas.replication.replication_quotas import ReplicationQuotas
from quotas.sharing.book import LeaseBook
from quotas.sharing.peer import LeasePeer

__all__ = ["LeaseMetrics"]


class LeaseMetrics:
    """The figures of the peer and of the holder.

    Args:
        peer: this process's own leases; None if no broker replicates through it.
        book: the leases of all peers; None if another process is the holder.
        now_ms: the clock, for the shares at the time of the scrape.
    """

    def __init__(
        self,
        peer: LeasePeer | None,
        book: LeaseBook | None,
        quotas: ReplicationQuotas,
        stats: Stats,
        now_ms: Callable[[], int],
    ) -> None:
        self._peer = peer
        self._book = book
        self._quotas = quotas
        self._stats = stats
        self._now_ms = now_ms

    def families(self) -> Iterator[Family]:
        """Return the metrics."""
        now_ms = self._now_ms()
        if self._peer is not None:
            yield from self._of_peer(self._peer, now_ms)
        if self._book is not None:
            yield Family(
                "sluice_lease_peers",
                "gauge",
                "Peers that sent a request to the lease holder within one lease",
                (),
                [((), self._book.present(now_ms))],
            )
            yield Family(
                "sluice_lease_requests",
                "counter",
                "Requests for leases at the lease holder, by result",
                ("result",),
                [((result,), count) for result, count in sorted(self._stats.lease_requests.items())],
            )

    def _of_peer(self, peer: LeasePeer, now_ms: int) -> Iterator[Family]:
        shared = [(broker, rate) for side, broker, rate in self._quotas.rates() if side == "follower"]
        shared = [(broker, rate) for broker, rate in shared if rate.limit is not None]
        yield Family(
            "sluice_lease_share",
            "gauge",
            "Share of a follower's quota that this process may use, 0 to 1",
            ("broker",),
            [((str(broker),), peer.share(broker, now_ms)) for broker, _ in shared],
        )
        yield Family(
            "sluice_lease_byte_rate",
            "gauge",
            "That share in bytes/s",
            ("broker",),
            [((str(broker),), rate.limit) for broker, rate in shared if rate.limit is not None],
        )
        yield Family(
            "sluice_lease_left_seconds",
            "gauge",
            "Remaining time of the last lease; 0: there is none, and shares are equal",
            (),
            [((), peer.left_ms(now_ms) / 1000)],
        )
        yield Family(
            "sluice_lease_holder_reachable",
            "gauge",
            "Whether the lease holder has responded to the last request",
            (),
            [((), float(self._stats.lease_holder_reachable))],
        )
        yield Family(
            "sluice_lease_asks",
            "counter",
            "Requests of this process for leases, by result",
            ("result",),
            [((result,), count) for result, count in sorted(self._stats.lease_asks.items())],
        )
