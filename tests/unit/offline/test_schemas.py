"""The tables as declared, as documented, and as the capture has them."""

from pathlib import Path

import pyarrow as pa
import pytest

from offline.schemas import CAPTURE, TABLES, layout_problem
from protocol.capture import COLUMNS
from tests.support.captures import schema

DOCUMENT = (Path(__file__).parents[3] / "docs" / "offline.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_table_is_documented_as_it_is(table: str) -> None:
    rows = "\n".join(f"| `{column.name}` | {column.type} | {column.meaning} |" for column in TABLES[table])
    assert f"### `{table}`\n\n| column | type | meaning |\n|---|---|---|\n{rows}\n" in DOCUMENT


def test_the_captures_columns_are_the_protocols() -> None:
    assert [column.name for column in CAPTURE] == [column.name for column in COLUMNS]
    types = {column.name: column.type for column in CAPTURE}
    assert types["wall_ms"] == "bigint"
    assert types["api_key"] == "smallint"
    assert types["partitions"] == "array<struct<topic:string,partition:int,bytes:bigint,records:int>>"


def changed(name: str, kind: pa.DataType | None) -> pa.Schema:
    """A capture's schema with a column of another type, or without it."""
    at = (columns := schema()).get_field_index(name)
    return columns.remove(at) if kind is None else columns.set(at, pa.field(name, kind))


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (schema(), ""),
        (schema(None), "is Parquet, and no capture of Sluice: its metadata has no sluice.capture.schema"),
        (schema("0"), "was written by an older version of the layout (0; this is 1)"),
        (schema("2"), "was written by another version of the layout (2; this is 1)"),
        (changed("seq", None), "has no column seq"),
        (changed("broker", pa.string()), "has a column broker of type string, which should be int32"),
    ],
    ids=["capture", "foreign", "older", "newer", "column missing", "column of another type"],
)
def test_problem_of_a_layout_is_named(columns: pa.Schema, problem: str) -> None:
    assert layout_problem(columns) == problem
