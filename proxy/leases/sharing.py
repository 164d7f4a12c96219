"""One process's part in the leases, made from its configuration: a client, a holder, both, or neither."""

import secrets
from collections.abc import Callable

from proxy.config import Config
from proxy.lease_view import LeaseView
from proxy.leases.client import LeaseClient
from proxy.leases.holder import LeaseHolder
from proxy.stats import Stats
from quotas.lease_peer import LeasePeer
from quotas.leases import LeaseBook
from quotas.replication import ReplicationQuotas

__all__ = ["LeaseSharing"]


class LeaseSharing:
    """Everything about leases that the application starts and stops.

    Args:
        quotas: whose followers' limits are shared.
        now_ms: the clock of the quotas.
        changed: called when any limit differs.

    Attributes:
        view: what /metrics shows; None where nothing is shared.
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
        self.view: LeaseView | None = None
        if not options.peers:
            return
        terms = options.terms
        run = secrets.randbits(63)  # another life of this process must not be taken for this one
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
        self.view = LeaseView(peer, book, quotas, stats, now_ms)

    async def start(self) -> None:
        """Bind the holder's port, where this is the holder.

        Raises:
            StartError: it can not be bound.
        """
        if self._holder is not None and self._bind is not None:
            await self._holder.start(self._bind)

    async def run(self) -> None:
        """Ask the holder for ever, where brokers replicate through this process."""
        if self._client is not None:
            await self._client.run()

    def configure(self, config: Config) -> None:
        """Take what a reload changed: where the holder is."""
        if self._client is not None and config.leases.holder is not None:
            self._client.holder = config.leases.holder

    async def close(self) -> None:
        """Stop answering."""
        if self._holder is not None:
            await self._holder.close()


def _brokers(config: Config) -> frozenset[int]:
    return frozenset(
        broker for listener in config.listeners if listener.replicates for broker in listener.upstreams
    )
