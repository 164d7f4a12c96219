"""The names of clients' libraries, of which connections with the same library share one string."""

from functools import lru_cache
from typing import Final

LIBRARIES_MAX: Final = (
    256  # names and versions that are shared; clients choose them, so that there may be any number
)


@lru_cache(maxsize=LIBRARIES_MAX)
def shared(library: str) -> str:
    """Return the shared string that equals `library`; it is freed when no connection uses it.

    Not `sys.intern`: CPython 3.12.0 to 3.12.5 never frees what it has interned, and a client may send any name.
    """
    return library
