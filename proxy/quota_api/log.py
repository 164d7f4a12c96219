"""The quota topic and the audit topic, as far as the store needs them; `proxy.topic_log` implements both."""

from concurrent.futures import Future
from typing import Protocol

from proxy.topic_log.records import Portion, Problem, Record

__all__ = ["Events", "Inbox", "Log"]


class Inbox(Protocol):
    """What was read."""

    def take(self, seconds: float = 0) -> Portion | None:
        """Remove the oldest portion; None if none comes in time."""


class Log(Protocol):
    """The topic, as `proxy.topic_log.log` has it."""

    @property
    def topic(self) -> str:
        """Its name."""

    @property
    def topic_id(self) -> bytes:
        """The id of the topic that was last seen; empty if none was."""

    @property
    def inbox(self) -> Inbox:
        """What was read."""

    @property
    def problem(self) -> Problem | None:
        """Why it cannot be read."""

    @property
    def write_problem(self) -> Problem | None:
        """Why it cannot be appended to."""

    def append(self, records: list[Record]) -> "Future[int]":
        """Append records as one batch; the offset after them, or an AppendError."""


class Events(Protocol):
    """The audit topic."""

    def add(self, records: list[Record]) -> None:
        """Append records some time later."""
