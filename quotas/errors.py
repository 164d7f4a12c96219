"""What can be wrong with a quota definition (KIP-13's configuration management, Kafka's quota entities).

    QuotaError
        DefinitionError     a definition that cannot be: it names the table, the key and the value
        FormError           a quota file that may be right and is not written as `[[quota]]` tables
        TomlError           a text that is no TOML, or nested or written in a way that is not read

No other exception leaves this package; any other is a bug of ours. Traffic never raises: a peer's bytes come
here as sizes.
"""


class QuotaError(Exception):
    """Base of every error of this package."""


class DefinitionError(QuotaError, ValueError):
    """A quota definition that cannot be, with the path of the key at fault and its value."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


class FormError(QuotaError, ValueError):
    """A quota file's text is not a row of `[[quota]]` tables: only TOML's own reader can say what it means."""


class TomlError(QuotaError, ValueError):
    """A text is no TOML, or beyond the bounds within which it is read."""
