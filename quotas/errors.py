"""Errors of quota definitions (KIP-13's configuration management, Kafka's quota entities).

    QuotaError
        AmountError         what is written is not an amount; the caller knows where it is written
        DefinitionError     an invalid definition, with its table, key and value
        FormError           a quotas file that may be valid TOML but is not written as `[[quota]]` tables
        TomlError           a text that is not TOML, or beyond the bounds of what is read

No other exception leaves this package; any other is a bug. Traffic never raises: only sizes of a peer's bytes come
here.
"""

from collections.abc import Sequence
from difflib import get_close_matches


class QuotaError(Exception):
    """Base of every error of this package."""


class AmountError(QuotaError, ValueError):
    """A value is not an amount such as 7, 1.5 or "2M"; the message does not contain the path of its key."""


class DefinitionError(QuotaError, ValueError):
    """An invalid quota definition, with the path of the key and its value."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


class FormError(QuotaError, ValueError):
    """A quotas file is not written as a sequence of `[[quota]]` tables: only a full TOML reader can read it."""


class TomlError(QuotaError, ValueError):
    """A text is not valid TOML, or exceeds the limits of the reader."""


# ----------------------------------------------------------------------------------------------------
# The hint in an error about a name that is not known: the most similar known name, or all of them.


def hint(name: str, known: Sequence[str]) -> str:
    """Return a hint for an unknown name: the most similar known one, or all of them; case and hyphens do not matter.

    >>> hint("producer-byterate", ["producer_byte_rate", "consumer_byte_rate"])
    "did you mean 'producer_byte_rate'?"
    >>> hint("zzz", ["ip", "topic"])
    'known: ip, topic'
    """
    close = get_close_matches(name.replace("-", "_").lower(), known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
