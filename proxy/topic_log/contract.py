"""A log as those see it that read it and do not make it: `proxy.topic_log.log` implements it."""

from typing import Protocol

from proxy.topic_log.records import Portion, Problem

__all__ = ["Inbox", "ReadLog"]


class Inbox(Protocol):
    """What was read."""

    def take(self, seconds: float = 0) -> Portion | None:
        """Remove the oldest portion; None if none comes in time."""


class ReadLog(Protocol):
    """The topic, and why it cannot be used."""

    @property
    def topic(self) -> str:
        """Its name."""

    @property
    def inbox(self) -> Inbox:
        """What was read."""

    @property
    def problem(self) -> Problem | None:
        """Why it cannot be read."""

    @property
    def write_problem(self) -> Problem | None:
        """Why it cannot be appended to."""
