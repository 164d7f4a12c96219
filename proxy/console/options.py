"""Options and bounds of the console. Pure."""

from dataclasses import dataclass
from typing import Final

__all__ = [
    "CLIENTS_MAX",
    "LIST_BYTES_MAX",
    "MEMBERS_MAX",
    "RESPONSE_BYTES_MAX",
    "STREAMS_MAX",
    "ConsoleOptions",
]

MEMBERS_MAX: Final = 64  # more in /v1/fleet are counted, and not asked
CLIENTS_MAX: Final = 10_000  # of one member's list, and in the history
LIST_BYTES_MAX: Final = 32 * 1024**2  # of /v1/clients: 10,000 rows are about 8 MB
RESPONSE_BYTES_MAX: Final = 2 * 1024**2  # of every other document
STREAMS_MAX: Final = 32  # open pages


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """What the command line says.

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
