"""Whether quotas are enforced at all: one switch, kept over a restart, whatever the files say.

It is switched by SIGUSR1, and by `sluice enforcement` at the admin port. It applies at once; then it is written to
`enforcement.json` in `[state] directory`. Without that directory, or if the file cannot be written, it holds until the
process ends, and the response and the log say so. A file that cannot be read means that quotas are enforced: one error
line, and a counter.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct
from msgspec.json import Decoder, encode

from proxy.events import Tell
from proxy.events.kinds import By, EnforcementSwitched
from proxy.events.ring import iso_ms
from proxy.system.errors import reason
from proxy.system.files import read, store
from proxy.system.logs import event
from proxy.system.stats import Stats

REASON_CHARACTERS_MAX: Final = 200
_NAME: Final = "enforcement.json"
_BYTES_MAX: Final = 64 * 1024
_MODE: Final = 0o644
_AT_MAX: Final = 253_402_300_799  # the last second of the year 9999
_SIGNAL: Final = By("SIGUSR1")
_NO_DIRECTORY: Final = "[state] directory is not configured"

logger = logging.getLogger(__name__)


class _Stored(Struct, rename={"address": "from"}):
    """The content of `enforcement.json`."""

    enforcing: bool
    at: Annotated[float, Meta(ge=0, le=_AT_MAX)]
    by: str = ""
    address: str = ""
    reason: str = ""


class Switched(NamedTuple):
    """The last time that enforcement was switched off or on.

    Args:
        enforcing: whether it was switched on.
        at: the time, in seconds since the epoch.
        by: who has switched it: a user of the admin port, or SIGUSR1.
        reason: the user's reason; "" if none was given.
    """

    enforcing: bool
    at: float
    by: By
    reason: str


_DECODER: Final = Decoder(_Stored)


class EnforcementFile:
    """The file `enforcement.json`, which keeps the last switch over a restart.

    Both methods block, so call them outside of the event loop.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / _NAME

    def read(self) -> Switched | None:
        """Return the last switch; None if there was none.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is damaged.
        """
        try:
            found = _DECODER.decode(read(self.path, _BYTES_MAX))
        except FileNotFoundError:
            return None
        except RecursionError:
            raise ValueError("is nested too deeply") from None
        by, address, why = (text[:REASON_CHARACTERS_MAX] for text in (found.by, found.address, found.reason))
        return Switched(found.enforcing, found.at, By(by, address), why)

    def write(self, switched: Switched) -> None:
        """Replace the file; when this returns, the new one is on disk.

        Raises:
            OSError: the file cannot be written; the old one stays.
        """
        said = (switched.by.name, switched.by.address, switched.reason)
        # UTF-8 has no halves of a surrogate pair, which a reason may have.
        stored = _Stored(
            switched.enforcing, switched.at, *(text.encode("utf-8", "replace").decode() for text in said)
        )
        store(self.path, (encode(stored),), _MODE)


class Enforcement:
    """The switch that turns the enforcement of all quotas off and on.

    Args:
        file: keeps the switch over a restart; None: it is not kept.
        apply: called with True or False; makes all processes enforce quotas, or stop.
        tell: called with each event.

    Attributes:
        on: whether enforcement is switched on; even then the mode `observe` enforces no quotas.
        switched: the last switch; None if there was none.
        problem: why the position is not kept over a restart; "" if it is, or if it was never switched.
    """

    def __init__(
        self, file: EnforcementFile | None, apply: Callable[[bool], None], stats: Stats, tell: Tell
    ) -> None:
        self._file = file
        self._apply = apply
        self._stats = stats
        self._tell = tell
        self._writing = asyncio.Lock()
        self.on = True
        self.switched: Switched | None = None
        self.problem = ""

    def notice(self) -> str:
        """Return a sentence for the admin pages on when enforcement was switched off, and by whom; "" if it is on."""
        found = self.switched
        if found is None or found.enforcing:
            return ""
        why = f": {found.reason}" if found.reason else "."
        return f"All enforcement was switched off at {iso_ms(found.at)}{found.by.text}{why}"

    async def load(self) -> None:
        """Read the switch from its file and apply it; to be called before the first client is served.

        If the file cannot be read, quotas are enforced, which is logged and counted.
        """
        if self._file is None:
            return
        try:
            self.switched = found = await asyncio.to_thread(self._file.read)
        except (OSError, ValueError) as error:
            self._stats.enforcement_state["unreadable"] += 1
            event(
                logger,
                logging.ERROR,
                "whether enforcement was switched off is not known; quotas are enforced",
                path=str(self._file.path),
                problem=reason(error),
            )
            return
        if found is not None and not found.enforcing:
            self._set(False)
            event(
                logger,
                logging.WARNING,
                "enforcement is still switched off",
                by=found.by.name,
                address=found.by.address,
                reason=found.reason,
            )

    def toggle(self) -> None:
        """Switch enforcement off if it is on, and on if it is off, for SIGUSR1; the caller then calls `keep`."""
        self._switch(Switched(not self.on, time.time(), _SIGNAL, ""))

    async def switch(self, *, enforcing: bool, by: By, why: str) -> bool:
        """Switch enforcement off or on, and write that to the file.

        Returns: False if nothing was done, since enforcement was already in this position.
        """
        if enforcing == self.on:
            return False
        self._switch(Switched(enforcing, time.time(), by, why))
        await self.keep()
        return True

    async def keep(self) -> None:
        """Write the last switch to the file; if that fails, `problem` says why."""
        if self._file is None:
            self._not_kept(_NO_DIRECTORY)
            return
        async with self._writing:
            switched = self.switched
            assert switched is not None, "it was switched"
            try:
                await asyncio.to_thread(self._file.write, switched)
            except OSError as error:
                self._stats.enforcement_state["not_written"] += 1
                self._not_kept(f"{self._file.path}: {reason(error)}")
            else:
                self._stats.enforcement_state["written"] += 1
                self.problem = ""

    def _not_kept(self, problem: str) -> None:
        self.problem = problem
        event(
            logger,
            logging.WARNING,
            "whether enforcement is switched off is not kept over a restart",
            problem=problem,
        )

    def _switch(self, switched: Switched) -> None:
        self.switched = switched
        self._set(switched.enforcing)
        self._tell(EnforcementSwitched(switched.enforcing, *switched.by, switched.reason))

    def _set(self, on: bool) -> None:
        self.on = on
        self._stats.enforcement_off = not on
        self._apply(on)
