"""Compares a Parquet file's schema with that of a capture in this version of the layout."""

from typing import TYPE_CHECKING, Final

from protocol.capture import COLUMNS, SCHEMA_KEY, SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa


_KEY: Final = SCHEMA_KEY.encode()


def layout_problem(schema: "pa.Schema") -> str:
    """Return the problem, as the end of a sentence that begins with the file's name; "" = none."""
    version = (schema.metadata or {}).get(_KEY)
    if version is None:
        return f"is Parquet, and no capture of Sluice: its metadata has no {SCHEMA_KEY}"
    if version != str(SCHEMA_VERSION).encode():
        said = version.decode("utf-8", "replace")
        age = "an older" if said.isdigit() and int(said) < SCHEMA_VERSION else "another"
        return f"was written by {age} version of the layout ({said}; this is {SCHEMA_VERSION})"
    for column in COLUMNS:
        if column.name not in schema.names:
            return f"has no column {column.name}"
        kind = str(schema.field(column.name).type)
        plain = "list" if column.type == "list<struct>" else column.type
        if plain not in kind:
            return f"has a column {column.name} of type {kind}, which should be {column.type}"
    return ""
