"""The hint in an error about a name that is not known: the most similar known name, or all of them."""

from collections.abc import Sequence
from difflib import get_close_matches

__all__ = ["hint"]


def hint(name: str, known: Sequence[str]) -> str:
    """Return the hint; case, and hyphens for underscores, do not matter.

    >>> hint("producer-byterate", ["producer_byte_rate", "consumer_byte_rate"])
    "did you mean 'producer_byte_rate'?"
    >>> hint("zzz", ["ip", "topic"])
    'known: ip, topic'
    """
    close = get_close_matches(name.replace("-", "_").lower(), known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
