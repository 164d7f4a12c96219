"""The quota topic and the audit topic, as far as the store needs them; `proxy.topics` implements both."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from proxy.topics.records import ReadLog, Record


class Log(ReadLog, Protocol):
    """The quota topic."""

    @property
    def topic_id(self) -> bytes:
        """The id of the topic that was last seen; empty if none was."""

    wanted: Callable[[Record], bool] | None
    """Whether a record is delivered; others are counted only. Called in any thread."""

    def append(self, records: list[Record]) -> "Future[int]":
        """Append records as one batch; the offset after them, or an AppendError."""


class Events(Protocol):
    """The audit topic."""

    def add(self, records: list[Record]) -> None:
        """Append records some time later."""
