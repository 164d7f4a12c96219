"""Captures written by hand: rows as dictionaries -> a file as the proxy writes it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from protocol.capture import COLUMNS, PARTITION_FIELDS, SCHEMA_KEY, SCHEMA_VERSION


def schema(version: object = SCHEMA_VERSION) -> pa.Schema:
    """The published columns; None as the version: none is said."""
    partition = pa.struct(
        [pa.field(column.name, getattr(pa, column.type)(), False) for column in PARTITION_FIELDS]
    )
    types = {"list<struct>": pa.list_(pa.field("element", partition, False))}
    fields = [
        pa.field(column.name, types.get(column.type) or getattr(pa, column.type)(), False)
        for column in COLUMNS
    ]
    return pa.schema(fields, metadata=None if version is None else {SCHEMA_KEY: str(version)})


def write(path: Path, rows: Sequence[Mapping[str, Any]], columns: pa.Schema | None = None) -> Path:
    """Write a file."""
    pq.write_table(pa.Table.from_pylist(list(rows), columns or schema()), path, compression="zstd")
    return path
