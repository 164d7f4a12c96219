"""The choice of the executing process among several proxies: it holds a lock on a file beside the journal.

The kernel releases the lock when the process ends in any way, so a killed proxy is replaced at once, but one that is
merely stopped is not. On storage shared between machines the file system does the same when it gives up a machine. If
two processes should ever hold the lock, the journal's term decides: the executor writes to the journal before each
submission, and sees there that another one has begun (docs/decisions/0008).
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxy.system.files import open_file, try_lock

_NAME: Final = "executor.lock"
_HOLDER_BYTES_MAX: Final = 200


class LeaderLock:
    """One process's attempts to take the lock. Calls block for a moment: make them outside of the loop.

    Args:
        directory: the journal's directory.
        holder: this process's name for others.
    """

    # A process that is paused keeps the lock, and one that is killed has sent what it was about to submit.
    settle_ms = 0

    def __init__(self, directory: Path, holder: str) -> None:
        self._path = directory / _NAME
        self._holder = holder
        self._descriptor = -1

    @property
    def held(self) -> bool:
        """Whether this process holds the lock."""
        return self._descriptor >= 0

    def take(self) -> bool:
        """Try once; returns whether the lock is held now.

        Raises:
            OSError: the file cannot be opened or locked.
        """
        if self.held:
            return True
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        taken = False
        try:
            taken = try_lock(descriptor)
        finally:
            if not taken:
                os.close(descriptor)
        if not taken:
            return False
        self._descriptor = descriptor
        # For operators only: without space on disk the name is missing, but the lock works.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._holder.encode(), 0)
        return True

    def holder(self) -> str:
        """Return the name of the holder, as the file says."""
        with suppress(OSError), open_file(self._path) as file:
            return file.read(_HOLDER_BYTES_MAX).decode("utf-8", "replace")
        return ""

    def release(self) -> None:
        """Release the lock for another process."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
