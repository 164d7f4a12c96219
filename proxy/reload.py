"""Reads the configuration again, when a file changes or SIGHUP asks for it, and hands over what applies live.

Files are looked at once a second, away from the event loop: modification time, inode and size of what the
name leads to, so that an editor's rename and Kubernetes' swapped symbolic link are both seen. A file that
still changes is left alone until it has been the same for two looks, or half of it would be taken for the
whole. A wrong file changes nothing: the old configuration stays, a counter and one log line say so. The
caller says what applying means; this module decides when.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from proxy import logs
from proxy.config import Config, QuotaSettings, compare, merge_live, reload
from proxy.errors import ConfigError
from proxy.files import Signature, signatures
from proxy.stats import Stats
from quotas.definitions.definitions import Definitions

LOOK_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.2  # to the next look while something changes
LOG: Final = logging.getLogger(__name__)

Apply = Callable[[Config, Definitions], None]
"""Called on the event loop with the configuration that now runs, and the quotas it defines."""


class QuotaFile(Protocol):
    """Who keeps the quotas file: `proxy.quota_api`."""

    @property
    def file_signature(self) -> Signature:
        """The file as it was last read or written there."""

    async def read(self, settings: QuotaSettings) -> tuple[Definitions, int, list[str]]:
        """Take settings and read the file if it has changed; return quotas, entities changed, and warnings."""


class Watch:
    """Decides from one look after another when to read: pure."""

    def __init__(self, seen: tuple[Signature, ...]) -> None:
        self._read = seen  # as they were when they were last read
        self._last = seen

    @property
    def settling(self) -> bool:
        """True while the files differ from what was read."""
        return self._last != self._read

    def mark_read(self, now: tuple[Signature, ...], written: Signature) -> None:
        """A file that is as we have written it ourselves was read, so to speak."""
        if written != Signature():
            self._read = tuple(
                sign if sign == written else read for sign, read in zip(now, self._read, strict=True)
            )

    def observe(self, now: tuple[Signature, ...]) -> bool:
        """Take a look into account; tell whether to read now: something changed, and has come to rest."""
        rested = now == self._last
        self._last = now
        if rested and now != self._read:
            self._read = now
            return True
        return False


class Reloader:
    """Watches the files of one configuration.

    Args:
        config: what runs now.
        quotas: keeps the quotas file, and writes it too: what it has written needs no reload.
        stats: where reloads are counted: `ok`, `refused`.
        apply: takes what a reload changed. An exception from it is a bug, and ends `run`.
    """

    def __init__(self, config: Config, quotas: QuotaFile, stats: Stats, apply: Apply) -> None:
        self.config = config
        self._quotas = quotas
        self._stats = stats
        self._apply = apply
        self._requested = asyncio.Event()
        # Looked at here and not in `run`, so that a change while the proxy starts is not missed.
        self._watch = Watch(signatures(self._paths()))

    def request(self) -> None:
        """Read everything again soon: for SIGHUP. Several requests at once are one."""
        self._requested.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._pause(SETTLE_SECONDS if self._watch.settling else LOOK_SECONDS)
            await self.step()

    async def step(self) -> None:
        """Look at the files once, and read them again if they changed or a signal asked for it."""
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
        """Read everything again and apply what may apply; tell whether the files were right."""
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
            return False
        changes = compare(self.config, new)
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
