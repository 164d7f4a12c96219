"""Which of several proxies executes: the one that holds a lock on a file beside the journal.

The kernel gives the lock back when its process ends, however it ends, so a proxy that was killed is followed at once,
and one that merely stands still is not. On storage that is shared between machines the file system does the same when
it gives up on a machine. Should it ever give the lock to two, the journal's term decides: before each submission
whoever executes writes to the journal, and learns there that another one has begun (docs/decisions/0008).
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxy.file_locks import try_lock
from proxy.files import open_file

__all__ = ["LeaderLock"]

_NAME: Final = "executor.lock"
_HOLDER_BYTES_MAX: Final = 200


class LeaderLock:
    """One process's try to be the one. Its calls block for a moment: call them off the loop.

    Args:
        directory: the journal's.
        holder: how this process is named to others.
    """

    def __init__(self, directory: Path, holder: str) -> None:
        self._path = directory / _NAME
        self._holder = holder
        self._descriptor = -1

    @property
    def held(self) -> bool:
        """Whether this process executes."""
        return self._descriptor >= 0

    def take(self) -> bool:
        """Try once; tell whether it is held now.

        Raises:
            OSError: the file can not be opened or locked.
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
        # For operators, and nobody decides by it: a full disk takes no name, but it locks.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._holder.encode(), 0)
        return True

    def holder(self) -> str:
        """Who holds it, as far as the file says."""
        with suppress(OSError), open_file(self._path) as file:
            return file.read(_HOLDER_BYTES_MAX).decode("utf-8", "replace")
        return ""

    def give_back(self) -> None:
        """Let another one execute."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
