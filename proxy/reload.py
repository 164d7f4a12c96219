"""Reads the configuration again, when a file changes or SIGHUP asks for it, and hands over what applies live.

Files are looked at once a second, away from the event loop: modification time, inode and size of what the
name leads to, so that an editor's rename and Kubernetes' swapped symbolic link are both seen. A file that
still changes is left alone until it has been the same for two looks, or half of it would be taken for the
whole. A wrong file changes nothing: the old configuration stays, a counter and one log line say so. The
caller says what applying means; this module decides when.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from proxy import logs
from proxy.config import Config, compare, merge_live, read_definitions, reload, unenforced
from proxy.errors import ConfigError
from proxy.stats import Stats
from quotas.definitions import Definitions

LOOK_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.2  # to the next look while something changes
LOG: Final = logging.getLogger(__name__)

Apply = Callable[[Config, Definitions], None]
"""Called on the event loop with the configuration that now runs, and the quotas it defines."""


class Signature(NamedTuple):
    """What tells one state of a file from another; all zero when there is no file."""

    device: int = 0
    inode: int = 0
    size: int = 0
    modified_ns: int = 0
    changed_ns: int = 0


def signature(path: Path) -> Signature:
    """Look at the file that a name leads to, through symbolic links."""
    try:
        found = path.stat()
    except OSError:
        return Signature()
    # ctime beside mtime: cp -p and rsync -t set the latter to whatever it was elsewhere.
    return Signature(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def look(paths: Iterable[Path]) -> tuple[Signature, ...]:
    """Look at several files."""
    return tuple(signature(path) for path in paths)


class Watch:
    """Decides from one look after another when to read: pure."""

    def __init__(self, seen: tuple[Signature, ...]) -> None:
        self._read = seen  # as they were when they were last read
        self._last = seen

    @property
    def settling(self) -> bool:
        """True while the files differ from what was read."""
        return self._last != self._read

    def see(self, now: tuple[Signature, ...]) -> bool:
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
        stats: where reloads are counted: `ok`, `refused`.
        apply: takes what a reload changed. An exception from it is a bug, and ends `run`.
    """

    def __init__(self, config: Config, stats: Stats, apply: Apply) -> None:
        self.config = config
        self._stats = stats
        self._apply = apply
        self._asked = asyncio.Event()
        # Looked at here and not in `run`, so that a change while the proxy starts is not missed.
        self._watch = Watch(look(self._paths()))

    def request(self) -> None:
        """Read everything again soon: for SIGHUP. Several requests at once are one."""
        self._asked.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._pause(SETTLE_SECONDS if self._watch.settling else LOOK_SECONDS)
            await self.step()

    async def step(self) -> None:
        """Look at the files once, and read them again if they changed or a signal asked for it."""
        paths, asked = self._paths(), self._asked.is_set()
        self._asked.clear()
        now = await asyncio.to_thread(look, paths)
        if self._watch.see(now) or asked:
            await self.reload("signal" if asked else "file changed")
            # What was seen before the reading: a change since then will be noticed.
            self._watch = Watch(
                now if paths == self._paths() else await asyncio.to_thread(look, self._paths())
            )

    async def reload(self, cause: str) -> bool:
        """Read everything again and apply what may apply; tell whether the files were right."""
        try:
            new, definitions = await asyncio.to_thread(_read, self.config)
        except ConfigError as error:
            self._stats.reloads["refused"] += 1
            logs.event(
                LOG,
                logging.ERROR,
                "reload refused; the old configuration stays",
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
            changed=" ".join(changes.live) or "none",
            quota_entries=len(definitions),
        )
        if changes.restart:
            logs.event(LOG, logging.WARNING, "changed keys need a restart", keys=" ".join(changes.restart))
        for warning in (*new.warnings, *unenforced(definitions)):
            logs.event(LOG, logging.WARNING, "configuration warning", warning=warning)
        return True

    def _paths(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.config.source.path, self.config.quotas.file) if path is not None)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._asked.wait(), seconds)


def _read(config: Config) -> tuple[Config, Definitions]:
    new = reload(config.source)
    return new, read_definitions(new.quotas, new.source.quota_text)
