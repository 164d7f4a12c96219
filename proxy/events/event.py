"""One event: its kind, one sentence for people, and fields for programs."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

Field = str | int | float | bool | None


class Event(NamedTuple):
    """One event.

    Args:
        text: one sentence.
        line: the constant message of its log line; "" if another line already says it.
        warning: whether the line is a warning.
        audit: whether the line belongs to the audit log.
    """

    kind: str
    text: str
    fields: Mapping[str, Field]
    line: str = ""
    warning: bool = False
    audit: bool = False


Tell = Callable[[Event], None]
"""Takes an event; any thread may call it."""


def untold(_: Event) -> None:
    """Keep nothing: for components that run without events."""
