"""Where a process keeps its journal, and who decides there; on files (`topic_place` has the other one)."""

import os
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from proxy.metrics.replication import Family
from proxy.reassign.async_journal import AsyncJournal
from proxy.reassign.decisions import Decisions
from proxy.reassign.file_journal import FileJournal
from proxy.reassign.journal import Journal, Leadership
from proxy.reassign.leader_lock import LeaderLock

_NAME_BYTES: Final = 4


def process_name() -> str:
    """Return a name for this life of the process, which no other has."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(_NAME_BYTES)}"


class Place(Protocol):
    """Where the journal is.

    Attributes:
        process: this process's name in the journal.
    """

    process: str

    @property
    def journal(self) -> Journal:
        """The journal."""

    @property
    def lock(self) -> Leadership:
        """The choice of the executor."""

    def decisions(self, local: Decisions, executes: Callable[[], bool], journal: AsyncJournal) -> Decisions:
        """Return what decides on callers' requests.

        Args:
            local: decides in this process.
            executes: whether this process carries moves out.
        """

    def start(self) -> None:
        """Begin to read, and to answer other processes."""

    def families(self) -> Iterator[Family]:
        """Return the metrics of the place."""

    def close(self) -> None:
        """Release everything; blocks for a bounded time."""


class FilePlace:
    """A directory that the proxies of a cluster share: each of them decides."""

    def __init__(self, directory: Path) -> None:
        self.process = process_name()
        self.journal = FileJournal(directory)
        self.lock = LeaderLock(directory, self.process)

    def decisions(self, local: Decisions, _executes: Callable[[], bool], _journal: AsyncJournal) -> Decisions:
        """Decide here: any process may append."""
        return local

    def start(self) -> None:
        """There is nothing to begin with."""

    def families(self) -> Iterator[Family]:
        """Return no metrics."""
        return iter(())

    def close(self) -> None:
        """There is nothing to release: the executor has released the lock."""
