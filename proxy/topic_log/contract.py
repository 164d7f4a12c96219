"""The interface of a log for its readers; `proxy.topic_log.log` implements it."""

from typing import Protocol

from proxy.topic_log.records import Portion, Problem


class Inbox(Protocol):
    """The portions that were read and not taken yet."""

    def take(self, seconds: float = 0) -> Portion | None:
        """Remove and return the oldest portion; None if none comes within `seconds`."""


class ReadLog(Protocol):
    """A log: its topic, its portions, and the reasons why it cannot be used."""

    @property
    def topic(self) -> str:
        """The topic's name."""

    @property
    def inbox(self) -> Inbox:
        """The portions that were read."""

    @property
    def problem(self) -> Problem | None:
        """The reason why it cannot be read; None if it can."""

    @property
    def write_problem(self) -> Problem | None:
        """The reason why it cannot be appended to; None if it can."""
