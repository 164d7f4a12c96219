"""Reads the configuration again when a file changes or on SIGHUP, and applies what can be applied live.

Files are checked once a second, off the event loop: modification time, inode and size of the file that the path leads
to, so that an editor's rename and Kubernetes' swapped symbolic link are both noticed. A file is read when it has been
the same in two checks, or an incomplete one would be read. An invalid file changes nothing: the old configuration stays
in use, and a counter and a log line report it. The caller applies; this module decides when.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from proxy.config import Config, QuotaSettings, compare, merge_live, reload
from proxy.events import Tell, untold
from proxy.events.kinds import config_reloaded, mode_changed
from proxy.system import logs
from proxy.system.errors import ConfigError
from proxy.system.files import Signature, signatures
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions

LOOK_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.2  # to the next look while something changes
LOG: Final = logging.getLogger(__name__)

Apply = Callable[[Config, Definitions], None]
"""Called on the event loop with the new configuration and its quotas."""


class QuotaFile(Protocol):
    """The owner of the quotas file: `proxy.quota_api`."""

    @property
    def file_signature(self) -> Signature:
        """The file's signature when it was last read or written."""

    async def read(self, settings: QuotaSettings) -> tuple[Definitions, int, list[str]]:
        """Apply settings and read the file if it has changed; returns quotas, number of changed entities, warnings."""


class Watch:
    """Decides when to read files, from their signatures at each check. Pure."""

    def __init__(self, seen: tuple[Signature, ...]) -> None:
        self._read = seen  # as they were when they were last read
        self._last = seen

    @property
    def settling(self) -> bool:
        """Whether the files differ from those that were read."""
        return self._last != self._read

    def mark_read(self, now: tuple[Signature, ...], written: Signature) -> None:
        """Treat a file that this process has written as read."""
        if written != Signature():
            self._read = tuple(
                sign if sign == written else read for sign, read in zip(now, self._read, strict=True)
            )

    def observe(self, now: tuple[Signature, ...]) -> bool:
        """Note the current signatures; returns whether to read now: they have changed, and then stayed the same."""
        rested = now == self._last
        self._last = now
        if rested and now != self._read:
            self._read = now
            return True
        return False


class Reloader:
    """Watches the files of one configuration.

    Args:
        config: the configuration in force.
        quotas: owns the quotas file; what it has written itself needs no reload.
        stats: counts reloads: `ok`, `refused`.
        apply: applies a new configuration. An exception from it is a bug, and ends `run`.
        tell: takes events.
    """

    def __init__(
        self, config: Config, quotas: QuotaFile, stats: Stats, apply: Apply, tell: Tell = untold
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
        """Have everything read again soon (SIGHUP). Several requests at once are one."""
        self._requested.set()

    async def run(self) -> None:
        """Watch until cancelled."""
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
        """Read everything again and apply what can be applied live; returns whether the files were valid."""
        try:
            new = await asyncio.to_thread(reload, self.config.source)
            definitions, differ, idle = await self._quotas.read(new.quotas)
        except ConfigError as error:
            self._stats.reloads["refused"] += 1
            logs.event(
                LOG,
                logging.ERROR,
                "configuration rejected; the old one stays in use",
                cause=cause,
                key=error.path,
                problem=str(error),
            )
            self._tell(config_reloaded(cause, "", 0, str(error)))
            return False
        changes, mode = compare(self.config, new), self.config.quotas.mode
        self.config = merge_live(self.config, new)
        logs.set_level(self.config.log.level)
        self._apply(self.config, definitions)
        self._stats.reloads["ok"] += 1
        logs.event(
            LOG,
            logging.INFO,
            "configuration reloaded",
            cause=cause,
            keys_changed=" ".join(changes.live) or "none",
            quotas_changed=differ,
            quota_entries=len(definitions),
        )
        self._tell(config_reloaded(cause, " ".join(changes.live), differ))
        if self.config.quotas.mode != mode:
            self._tell(mode_changed(mode, self.config.quotas.mode))
        if changes.restart:
            logs.event(LOG, logging.WARNING, "changed keys need a restart", keys=" ".join(changes.restart))
        for warning in (*new.warnings, *idle):
            logs.event(LOG, logging.WARNING, "configuration warning", warning=warning)
        return True

    def _paths(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.config.source.path, self.config.quotas.file) if path is not None)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._requested.wait(), seconds)
