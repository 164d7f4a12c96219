"""Reads the configuration again when a file changes or on SIGHUP, and applies what can be applied live.

Files are checked once a second, off the event loop: modification time, inode and size of the file that the path leads
to, so that an editor's rename and Kubernetes' swapped symbolic link are both noticed. A file is read when it has been
the same in two checks, or an incomplete one would be read. An invalid file changes nothing: the old configuration stays
in use, and a counter and a log line report it. The caller applies; this module decides when.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from proxy.config import AdminOptions, Config, compare, merge_live, reload
from proxy.control.quotas import QuotaService
from proxy.events import Tell, untold
from proxy.events.kinds import ConfigReloaded, ModeChanged
from proxy.net.server_name import BrokerNames
from proxy.net.tls import BrokerTls, ServerTls, TlsSide
from proxy.system import logs
from proxy.system.errors import ConfigError
from proxy.system.files import Signature, signatures
from proxy.system.hosts import Context, FleetContexts
from proxy.system.logs import event
from proxy.system.stats import Stats
from proxy.system.tokens import Tokens
from quotas.definitions.definitions import Definitions

LOG: Final = logging.getLogger(__name__)


LOOK_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.2  # to the next look while something changes


Apply = Callable[[Config, Definitions], None]
"""Called on the event loop with the new configuration and its quotas."""


class Watch:
    """Decides when files are read again: when their signatures have changed and then stayed the same. No IO."""

    def __init__(self, seen: tuple[Signature, ...]) -> None:
        self._read = seen  # as they were when they were last read
        self._last = seen

    @property
    def settling(self) -> bool:
        """Whether the files have changed since they were read, so that the next check should come soon."""
        return self._last != self._read

    def mark_read(self, now: tuple[Signature, ...], written: Signature) -> None:
        """Treat a file that this process has written itself as read, so that it is not read again.

        Args:
            now: the signatures of the files.
            written: the signature of the written file; an empty one for none.
        """
        if written != Signature():
            self._read = tuple(
                sign if sign == written else read for sign, read in zip(now, self._read, strict=True)
            )

    def observe(self, now: tuple[Signature, ...]) -> bool:
        """Take the signatures of a check; returns whether the files should be read now.

        That is so if they have changed since they were read, and are the same as at the last check.
        """
        rested = now == self._last
        self._last = now
        if rested and now != self._read:
            self._read = now
            return True
        return False


class Reloader:
    """Reads the configuration file and the quotas file again when one changes or on SIGHUP, and applies them.

    Args:
        config: the configuration in force.
        quotas: reads the quotas file; changes that it has written to the file itself cause no reload.
        stats: counts reloads: `ok`, `refused`.
        apply: applies a new configuration. An exception from it is a bug, and ends `run`.
        tell: called with each event.
    """

    def __init__(
        self, config: Config, quotas: QuotaService, stats: Stats, apply: Apply, tell: Tell = untold
    ) -> None:
        self.config = config
        self._tell = tell
        self._quotas = quotas
        self._stats = stats
        self._apply = apply
        self._requested = asyncio.Event()
        # Looked at here and not in `run`, so that a change while the proxy starts is not missed.
        self._watch = Watch(signatures(self._paths()))

    def request(self) -> None:
        """Have `run` read all files again at once, even if none has changed (SIGHUP)."""
        self._requested.set()

    async def run(self) -> None:
        """Check the files at intervals, until cancelled."""
        while True:
            await self._pause(SETTLE_SECONDS if self._watch.settling else LOOK_SECONDS)
            await self.step()

    async def step(self) -> None:
        """Check the files once, and read them again if they have changed or `request` was called."""
        paths, asked = self._paths(), self._requested.is_set()
        self._requested.clear()
        now = await asyncio.to_thread(signatures, paths)
        self._watch.mark_read(now, self._quotas.file_signature)
        if self._watch.observe(now) or asked:
            await self.reload("signal" if asked else "file changed")
            # What was seen before the reading: a change since then will be noticed.
            self._watch = Watch(
                now if paths == self._paths() else await asyncio.to_thread(signatures, self._paths())
            )

    async def reload(self, cause: str) -> bool:
        """Read the files again and apply all settings that need no restart.

        Args:
            cause: why, for the log: "signal" or "file changed".

        Returns: whether the files are valid; if not, nothing has changed.
        """
        try:
            new = await asyncio.to_thread(reload, self.config.source)
            definitions, differ, idle = await self._quotas.read(new.quotas)
        except ConfigError as error:
            self._stats.reloads["refused"] += 1
            event(
                LOG,
                logging.ERROR,
                "configuration rejected; the old one stays in use",
                cause=cause,
                key=error.path,
                problem=str(error),
            )
            self._tell(ConfigReloaded(ok=False, cause=cause, problem=str(error)))
            return False
        changes, mode = compare(self.config, new), self.config.quotas.mode
        self.config = merge_live(self.config, new)
        logs.set_level(self.config.log.level)
        self._apply(self.config, definitions)
        self._stats.reloads["ok"] += 1
        event(
            LOG,
            logging.INFO,
            "configuration reloaded",
            cause=cause,
            keys_changed=" ".join(changes.live) or "none",
            quotas_changed=differ,
            quota_entries=len(definitions),
        )
        keys = " ".join(changes.live)
        self._tell(ConfigReloaded(ok=True, cause=cause, keys=keys, quotas_changed=differ))
        if self.config.quotas.mode != mode:
            self._tell(ModeChanged(mode, self.config.quotas.mode))
        if changes.restart:
            event(LOG, logging.WARNING, "changed keys need a restart", keys=" ".join(changes.restart))
        for warning in (*new.warnings, *idle):
            event(LOG, logging.WARNING, "configuration warning", warning=warning)
        return True

    def _paths(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.config.source.path, self.config.quotas.file) if path is not None)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._requested.wait(), seconds)


class Certificates:
    """The TLS contexts of a configuration and the tokens of its admin port, which are loaded again when their files
    change or on SIGHUP.

    As with the configuration, a file is read once it has stopped changing, and a path is followed through symbolic
    links, which Kubernetes swaps. Certificate and key are two files: if they do not match, the old ones stay in use
    until one of the files changes again; a counter and a log line report it.

    Args:
        config: the configuration, with the paths of the files.
        stats: counts reloads, and stores when certificates expire.

    Attributes:
        listeners: the TLS of listeners by name; listeners without TLS are left out.
        brokers: the TLS of connections to brokers; None for plaintext.
        fleet_port: the TLS of the port for other members of the fleet; None for plaintext, or without such a port.
        fleet_client: the TLS of the connection to the holder of the fleet; None for plaintext.
        fleet_brokers: the TLS of connections to the fleet's cluster, which may be the same; None for plaintext.
        admin: the TLS of the admin port; None for plaintext, or without that port.
        admin_tokens: the tokens of the admin port; None if it asks for none.

    Raises:
        ConfigError: a context cannot be made from the files, or the tokens cannot be read.
    """

    def __init__(self, config: Config, stats: Stats) -> None:
        self.listeners = {
            listener.name: ServerTls(
                listener.tls,
                f"listeners[{index}].tls",
                listener.tls.principal_mapping_rules,
                BrokerNames(listener) if listener.by_name else None,
            )
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
        self.admin, self.admin_tokens = _of_admin(config.admin)
        self._stats = stats
        found: list[TlsSide | Tokens | None] = [
            *self.listeners.values(),
            self.brokers,
            self.fleet_port,
            self.fleet_client,
            self.admin,
            self.admin_tokens,
        ]
        if other is not None:
            found.append(self.fleet_brokers)
        self._sides: Sequence[TlsSide | Tokens] = [side for side in found if side is not None]
        self._watches = [Watch(signatures(side.files)) for side in self._sides]
        self._requested = False
        for side in self._sides:
            self._record_expiry(side)

    @property
    def between_members(self) -> FleetContexts:
        """The TLS contexts of connections between members of the fleet, for their port and as its client."""
        return FleetContexts(_context_of(self.fleet_port), _context_of(self.fleet_client))

    @property
    def admin_tls(self) -> Context | None:
        """A function that returns the TLS context in force for the admin port; None for plaintext."""
        return _context_of(self.admin)

    @property
    def broker_tls(self) -> Context | None:
        """A function that returns the TLS context in force for connections to brokers; None for plaintext."""
        return _context_of(self.brokers)

    @property
    def fleet_tls(self) -> Context | None:
        """A function that returns the TLS context in force for the fleet's cluster; None for plaintext."""
        return _context_of(self.fleet_brokers)

    def request(self) -> None:
        """Have the next check load all certificates again, even if no file has changed (SIGHUP)."""
        self._requested = True

    async def run(self) -> None:
        """Check the files at intervals, until cancelled."""
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

    async def _reload(self, side: TlsSide | Tokens) -> None:
        try:
            await asyncio.to_thread(side.reload)
        except ConfigError as error:
            self._stats.certificate_reloads["refused"] += 1
            event(
                LOG,
                logging.ERROR,
                f"{side.WHAT} rejected; the old ones stay in use",
                key=error.path,
                detail=error.problem,
            )
            return
        self._stats.certificate_reloads["ok"] += 1
        self._record_expiry(side)
        event(LOG, logging.INFO, f"{side.WHAT} reloaded", key=side.path)

    def _record_expiry(self, side: TlsSide | Tokens) -> None:
        ends = side.expires_at()
        if ends is not None:
            self._stats.certificate_ends[side.path] = ends


def _context_of(side: TlsSide | None) -> Context | None:
    """Return a function that returns the context in force; None for plaintext."""
    return None if side is None else lambda: side.context


def _of_admin(options: AdminOptions) -> tuple[ServerTls | None, Tokens | None]:
    """Return the TLS and the tokens of the admin port; None for what it does not have."""
    if options.bind is None:
        return None, None
    tls = None
    if options.tls is not None:
        # Whether a page needs a certificate is decided for each request, since probes have none.
        asked = "none" if options.tls.client_auth == "none" else "requested"
        tls = ServerTls(replace(options.tls, client_auth=asked), "admin.tls")
    tokens = None if options.token_file is None else Tokens(options.token_file, "admin.token_file")
    return tls, tokens
