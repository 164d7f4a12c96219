"""One TOML table -> one option class: each key belongs to a field; an unknown key is an error with a suggestion.

`readers` read single values; `proxy.config.parser` knows the tables.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field
from difflib import get_close_matches
from typing import Final, TypeVar

from proxy.config.keys import key_of
from proxy.errors import ConfigError

T = TypeVar("T")

_SECRETS: Final = ("password", "sasl_password", "key_password", "secret")


def build(
    make: Callable[..., T],
    known: Sequence[Field[object]],
    path: str,
    table: Mapping[str, object],
    refused: Mapping[str, str],
) -> T:
    """Read a table's values and create the options.

    Args:
        make: the option class.
        known: its fields.
        path: of the table, for errors.
        table: what TOML or the environment holds.
        refused: keys that are not supported here, and why.

    Raises:
        ConfigError: the first key that is unknown or wrong.
    """
    keys = {field.name: found for field in known if (found := key_of(field)) is not None}
    refuse_unknown(table, tuple(keys), path, refused)
    return make(**{name: keys[name].read(f"{path}.{name}", value) for name, value in table.items()})


def refuse_unknown(
    table: Mapping[str, object], known: Sequence[str], path: str, refused: Mapping[str, str]
) -> None:
    """Raise ConfigError for the first unknown key."""
    for name, value in table.items():
        if name in known:
            continue
        where = f"{path}.{name}" if path else name
        shown = None if get_close_matches(name, _SECRETS) else value  # a misspelt password is a password
        if name in refused:
            raise ConfigError(where, f"{refused[name]}: leave it out", shown)
        is_table = isinstance(value, Mapping) or _is_tables(value)
        noun = "table" if is_table else "key"
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known {noun}s: {', '.join(known)}"
        raise ConfigError(where, f"unknown {noun}{hint}", None if is_table else shown)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
