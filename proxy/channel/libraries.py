"""The names of clients' libraries: connections with the same one share its string."""

from functools import lru_cache
from typing import Final

__all__ = ["LIBRARIES_MAX", "shared"]

LIBRARIES_MAX: Final = (
    256  # names and versions that are shared; clients choose them, so that there may be any number
)


@lru_cache(maxsize=LIBRARIES_MAX)
def shared(library: str) -> str:
    """Return an equal string, the same one for all that ask for it; one that is not asked for is forgotten.

    Not `sys.intern`: CPython 3.12.0 to 3.12.5 never frees what it has interned, and a client may send any name.
    """
    return library
