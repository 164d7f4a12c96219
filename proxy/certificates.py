"""Loads certificates, and loads them again when their files change; new connections use the new ones.

As with the configuration, a file is taken once it has come to rest, and a name is followed through symbolic links,
which Kubernetes swaps. Certificate and key are two files: if they do not match, the old ones stay in use until one of
the files changes again; a counter and a log line report it.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from proxy.config import Config
from proxy.net.tls import BrokerTls, ServerTls, TlsSide
from proxy.reload import LOOK_SECONDS, SETTLE_SECONDS, Watch
from proxy.system.errors import ConfigError
from proxy.system.files import signatures
from proxy.system.hosts import Context, FleetContexts
from proxy.system.logs import event
from proxy.system.stats import Stats

LOG: Final = logging.getLogger(__name__)


class Certificates:
    """The TLS contexts of a configuration, and the watch over their files.

    Args:
        config: names the files.
        stats: counts reloads, and stores when certificates expire.

    Attributes:
        listeners: by the listener's name; those without TLS are not here.
        brokers: towards brokers; None for plaintext.
        fleet_port: of this member's port in the fleet; None for plaintext, and where it has none.
        fleet_client: towards the holder of the fleet; None for plaintext.
        fleet_brokers: towards the brokers of the fleet's cluster, which may be the same; None for plaintext.

    Raises:
        ConfigError: a context cannot be made from the files.
    """

    def __init__(self, config: Config, stats: Stats) -> None:
        self.listeners = {
            listener.name: ServerTls(listener.tls, f"listeners[{index}].tls")
            for index, listener in enumerate(config.listeners)
            if listener.tls is not None
        }
        self.brokers = BrokerTls(config.cluster.tls) if config.cluster.tls is not None else None
        self.fleet_brokers = self.brokers
        other = config.fleet.cluster
        if other is not None:
            self.fleet_brokers = None if other.tls is None else BrokerTls(other.tls, "fleet.cluster.tls")
        between = config.fleet.tls
        self.fleet_port: ServerTls | None = None
        self.fleet_client: BrokerTls | None = None
        if between is not None:
            self.fleet_client = BrokerTls(between.client, "fleet.tls")
            self.fleet_port = ServerTls(between.port, "fleet.tls") if config.fleet.may_hold else None
        self._stats = stats
        found: list[TlsSide | None] = [
            *self.listeners.values(),
            self.brokers,
            self.fleet_port,
            self.fleet_client,
        ]
        if other is not None:
            found.append(self.fleet_brokers)
        self._sides: Sequence[TlsSide] = [side for side in found if side is not None]
        self._watches = [Watch(signatures(side.files)) for side in self._sides]
        self._requested = False
        for side in self._sides:
            self._record_expiry(side)

    @property
    def between_members(self) -> FleetContexts:
        """The contexts between members of the fleet."""
        return FleetContexts(_context_of(self.fleet_port), _context_of(self.fleet_client))

    @property
    def broker_tls(self) -> Context | None:
        """Returns the context towards brokers; None for plaintext."""
        return _context_of(self.brokers)

    @property
    def fleet_tls(self) -> Context | None:
        """Returns the context towards the brokers of the fleet's cluster; None for plaintext."""
        return _context_of(self.fleet_brokers)

    def request(self) -> None:
        """Read everything again soon: for SIGHUP."""
        self._requested = True

    async def run(self) -> None:
        """Watch until cancelled."""
        while self._sides:
            settling = any(watch.settling for watch in self._watches)
            await asyncio.sleep(SETTLE_SECONDS if settling else LOOK_SECONDS)
            await self.step()

    async def step(self) -> None:
        """Check the files once, and load those that have changed."""
        asked, self._requested = self._requested, False
        for side, watch in zip(self._sides, self._watches, strict=True):
            if watch.observe(await asyncio.to_thread(signatures, side.files)) or asked:
                await self._reload(side)

    async def _reload(self, side: TlsSide) -> None:
        try:
            context = await asyncio.to_thread(side.load)
        except ConfigError as error:
            self._stats.certificate_reloads["refused"] += 1
            event(
                LOG,
                logging.ERROR,
                "certificates rejected; the old ones stay in use",
                key=error.path,
                detail=error.problem,
            )
            return
        side.use(context)
        self._stats.certificate_reloads["ok"] += 1
        self._record_expiry(side)
        event(LOG, logging.INFO, "certificates reloaded", key=side.path)

    def _record_expiry(self, side: TlsSide) -> None:
        ends = side.expires_at()
        if ends is not None:
            self._stats.certificate_ends[side.path] = ends


def _context_of(side: ServerTls | BrokerTls | None) -> Context | None:
    """Return what returns the context in force."""
    return None if side is None else lambda: side.context
