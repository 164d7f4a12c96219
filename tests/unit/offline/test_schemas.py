"""The tables as declared, as documented, and as the capture has them."""

from pathlib import Path

import pytest

from offline.schemas import CAPTURE, TABLES, columns_of, ddl
from protocol.capture import COLUMNS

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


def test_no_table_has_a_column_twice() -> None:
    for table in TABLES:
        assert len(set(columns_of(table))) == len(columns_of(table))


def test_ddl_is_read_by_spark() -> None:
    assert ddl(TABLES["demand/mutations"]) == "user string, client_id string, second bigint, mutations bigint"
