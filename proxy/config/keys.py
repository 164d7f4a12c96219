"""The description of one configuration key, stored in the metadata of its field.

Each field of the option classes has a `Key` in its metadata. The parser, the comparison at a reload, and the test of
docs/configuration.md use this one description.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass
from typing import Final

Reader = Callable[[str, object], object]
"""(Key path, value of TOML or the environment) -> the option's value, or ConfigError."""

METADATA: Final = "sluice.key"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration.

    Args:
        read: the reader of its value.
        kind: its type, in a word or two of the documentation.
        unit: what a bare number counts; empty where there is none.
        live: True when a changed value applies at reload, False when it needs a restart.
        default: how the documentation writes the default, where the field's own default does not tell.
    """

    read: Reader
    kind: str
    unit: str = ""
    live: bool = False
    default: str = ""


def key(
    read: Reader, kind: str, *, unit: str = "", live: bool = False, default: str = ""
) -> Mapping[str, object]:
    """Create the metadata of one option's field."""
    return {METADATA: Key(read, kind, unit, live, default)}


def key_of(field: Field[object]) -> Key | None:
    """Return the key of this field; None if it has none."""
    found = field.metadata.get(METADATA)
    return found if isinstance(found, Key) else None
