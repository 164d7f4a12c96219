"""The lease client and the lease holder of one process, as configured: either, both, or none."""

import secrets
from collections.abc import Callable

from proxy.config import Config
from proxy.leases.client import LeaseClient
from proxy.leases.holder import LeaseHolder
from proxy.metrics.leases import LeaseMetrics
from proxy.stats import Stats
from quotas.replication.replication_quotas import ReplicationQuotas
from quotas.sharing.book import LeaseBook
from quotas.sharing.peer import LeasePeer

__all__ = ["LeaseSharing"]


class LeaseSharing:
    """The application's interface to leases.

    Args:
        quotas: the quotas whose followers' limits are shared.
        now_ms: the clock of the quotas.
        changed: called when a limit has changed.

    Attributes:
        view: the figures for /metrics; None if no quota is shared.
    """

    def __init__(
        self,
        config: Config,
        quotas: ReplicationQuotas,
        stats: Stats,
        now_ms: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        options = config.leases
        self._bind = options.bind
        self._client: LeaseClient | None = None
        self._holder: LeaseHolder | None = None
        self.view: LeaseMetrics | None = None
        if not options.peers or config.fleet.configured:
            return
        terms = options.terms
        run = secrets.randbits(63)  # distinguishes this run of the process from earlier ones
        peer = book = None
        if config.replicates and options.holder is not None:
            peer = quotas.shares = LeasePeer(terms, options.name, run, now_ms())
            self._client = LeaseClient(
                peer, quotas, options.holder, options.secret_file, now_ms, changed, stats, _brokers(config)
            )
        if options.bind is not None:
            book = LeaseBook(terms, run)

            def quota_of(broker: int) -> float | None:
                return quotas.follower_limits.limit(broker)

            self._holder = LeaseHolder(book, terms, quota_of, now_ms, options.secret_file, stats)
        self.view = LeaseMetrics(peer, book, quotas, stats, now_ms)

    async def start(self) -> None:
        """Bind the holder's port, if this process is the holder.

        Raises:
            StartError: the port cannot be bound.
        """
        if self._holder is not None and self._bind is not None:
            await self._holder.start(self._bind)

    async def run(self) -> None:
        """Run the client, if brokers replicate through this process, until it is cancelled."""
        if self._client is not None:
            await self._client.run()

    def configure(self, config: Config) -> None:
        """Apply a reload: the holder's address."""
        if self._client is not None and config.leases.holder is not None:
            self._client.holder = config.leases.holder

    async def close(self) -> None:
        """Stop serving."""
        if self._holder is not None:
            await self._holder.close()


def _brokers(config: Config) -> frozenset[int]:
    return frozenset(
        broker for listener in config.listeners if listener.replicates for broker in listener.upstreams
    )
