"""The quotas file: TOML text ↔ definitions, lossless in both directions (KIP-13, with Kafka's keys).

    [[quota]]
    client_id = "reports"             # or user, both together, ip, or topic; "<default>" is the default entity
    producer_byte_rate = 2000000      # or "2M": k M G are powers of 1000, Ki Mi Gi of 1024
    consumer_byte_rate = "4M"

Behavior: the checks are Kafka's (kafka-quotas.md §6.1): no empty names, no repeated entity, values greater
than 0, whole numbers for byte rates. An error names the table's index, the key and the value. The proxy opens and
watches files; this module converts text. The literal name "<default>" cannot be written; in Kafka it can (KAFKA-18808).
"""

import io
from collections.abc import Mapping
from typing import Final

from quotas.definitions.amounts import parse_amount
from quotas.definitions.definitions import (
    KEYS,
    LONG_MAX,
    WHOLE_KEYS,
    Definitions,
    StaticQuotas,
    check_entity,
    check_value,
)
from quotas.definitions.entities import DEFAULT, Entity, Name, canonical
from quotas.definitions.hints import hint
from quotas.definitions.toml_reader import loads, shown
from quotas.definitions.toml_tables import blocks, is_preamble, table
from quotas.errors import AmountError, DefinitionError, FormError, TomlError

_CONFIGURATION: Final = (
    "a quotas file has [[quota]] tables alone; is this Sluice's configuration, which --config takes?"
)
_PARTS: Final = Entity._fields
_DEFAULT_TEXT: Final = DEFAULT.value


def parse(text: str, static: StaticQuotas | None = None) -> Definitions:
    """Parse a quotas file, with optional static settings of lower precedence.

    Raises:
        DefinitionError: the text is not TOML, or a definition is invalid; the message begins with the path,
        `quota[3].ip`.
    """
    definitions = Definitions(None, static)
    for index, block in enumerate(blocks(io.StringIO(text, newline="\n"))):
        path = f"quota[{index - 1}]"
        if index == 0:
            if not is_preamble(block):
                return _parse_whole(text, static)
            continue
        try:
            entity, values = entry(block, path)
        except FormError:
            return _parse_whole(text, static)
        _put(definitions, entity, values, path)
    return definitions


def entry(block: str, path: str) -> tuple[Entity, dict[str, float]]:
    """Parse one table; returns its entity and limits.

    Raises:
        DefinitionError: an invalid definition.
        FormError: the text is not one `[[quota]]` table.
    """
    found = table(block)
    if found is None:
        raise FormError(f"{path} is not one [[quota]] table")
    return _entry(found, path)


def _parse_whole(text: str, static: StaticQuotas | None) -> Definitions:
    """Parse a text in any of TOML's forms."""
    try:
        document = loads(text)
    except TomlError as error:
        raise DefinitionError("", f"not TOML: {error}") from error
    for key in document:
        if key != "quota":
            raise DefinitionError(str(key), _unknown(str(key), document[key]))
    tables = document.get("quota", [])
    if not isinstance(tables, list):
        raise DefinitionError("quota", f"must be a list of [[quota]] tables, not {shown(tables)}")
    definitions = Definitions(None, static)
    for index, found in enumerate(tables):
        path = f"quota[{index}]"
        if not isinstance(found, dict):
            raise DefinitionError(path, f"must be a table, not {shown(found)}")
        _put(definitions, *_entry(found, path), path)
    return definitions


def _unknown(key: str, value: object) -> str:
    """Return the message for an unknown key or table; of a table without its values: one may be a password."""
    if isinstance(value, list) and all(isinstance(item, dict) for item in value) and key == "quotas":
        return "unknown table; did you mean [[quota]]?"
    if isinstance(value, dict | list):
        return _CONFIGURATION
    return f"unknown key, value {shown(value)}; known: quota"


def _put(definitions: Definitions, entity: Entity, values: Mapping[str, float], path: str) -> None:
    if entity in definitions:
        raise DefinitionError(path, f"{_describe(entity)} is defined twice")
    definitions.put(entity, values, path)


def render(definitions: Definitions) -> str:
    """Render the entries, so that `parse` returns the same ones; static settings are not part of the file."""
    return "\n".join(render_table(entity, values) for entity, values in definitions.entries())


def render_table(entity: Entity, values: Mapping[str, float]) -> str:
    """Render one `[[quota]]` table, with a newline at its end."""
    lines = ["[[quota]]\n"]
    for part, name in zip(_PARTS, entity, strict=True):
        if name is not None:
            lines.append(f"{part} = {_quoted(_DEFAULT_TEXT if name is DEFAULT else str(name))}\n")
    lines += [f"{key} = {render_value(key, value)}\n" for key, value in values.items()]
    return "".join(lines)


def render_value(key: str, value: float) -> str:
    """Render one limit as a TOML number.

    >>> render_value("producer_byte_rate", 2e6), render_value("request_percentage", 2e6)
    ('2000000', '2000000.0')
    """
    return str(int(value)) if key in WHOLE_KEYS else repr(float(value))


def parse_limit(value: object, path: str) -> float:
    """Parse a limit: an amount that is not too large for Kafka.

    >>> parse_limit("2M", "x"), parse_limit("1.5Ki", "x"), parse_limit(7, "x")
    (2000000.0, 1536.0, 7.0)
    """
    try:
        amount = parse_amount(value)
    except AmountError as error:
        raise DefinitionError(path, f"{error}, not {shown(value)}") from None
    if amount > LONG_MAX:
        raise DefinitionError(path, f"{shown(value)} is too large")
    return float(amount)


def _entry(table: Mapping[str, object], path: str) -> tuple[Entity, dict[str, float]]:
    """One `[[quota]]` table as its entity and values."""
    names: dict[str, Name] = {}
    values: dict[str, float] = {}
    for key, value in table.items():
        if key not in _PARTS:
            if key not in KEYS:
                raise DefinitionError(
                    f"{path}.{key}", f"unknown key, value {shown(value)}; {hint(key, (*_PARTS, *KEYS))}"
                )
            continue
        if not isinstance(value, str):
            raise DefinitionError(f"{path}.{key}", f"must be a string, not {shown(value)}")
        names[key] = DEFAULT if value == _DEFAULT_TEXT else value
    entity = canonical(Entity(**names))
    check_entity(entity, path)
    for key, value in table.items():
        if key not in _PARTS:
            amount = parse_limit(value, f"{path}.{key}")
            check_value(entity, key, amount, f"{path}.{key}")
            values[key] = amount
    if not values:
        raise DefinitionError(path, f"{_describe(entity)} has no limit")
    return entity, values


def _describe(entity: Entity) -> str:
    return ", ".join(
        f"{part} {name!r}" for part, name in zip(_PARTS, entity, strict=True) if name is not None
    )


def _quoted(text: str) -> str:
    """A TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'
