"""Options and bounds of the console. Pure."""

from dataclasses import dataclass
from typing import Final

STREAMS_MAX: Final = 32  # open pages


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """The options of the command line.

    Args:
        admins: admin ports of members, as URLs without a final slash.
        host: where the page is served; "127.0.0.1" unless told.
        port: 0 for a free one.
        refresh_seconds: how often members are asked while a page is open.
        names: host names under which an operator's own proxy serves the page.
        token: what a browser must show; "" for none.
    """

    admins: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 9190
    refresh_seconds: float = 2.0
    names: tuple[str, ...] = ()
    token: str = ""
