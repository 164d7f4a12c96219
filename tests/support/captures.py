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


def row(number: int, **fields: Any) -> dict[str, Any]:
    """A request of any kind every 20 ms, on one connection, with what is said otherwise."""
    return {
        "wall_ms": 1_790_000_000_000 + 20 * number,
        "mono_us": 20_000 * number,
        "seq": number,
        "process": "p",
        "connection": 1,
        "principal": "ANONYMOUS",
        "client_id": "c",
        "ip": "192.0.2.1",
        "listener": "clients",
        "broker": 1,
        "api_key": 12,
        "api_version": 4,
        "request_bytes": 100,
        "response_bytes": 60,
        "upstream_us": 900,
        "throttle_ms": 0,
        "delay_ms": 0,
        "quota": "",
        "mutations": 0,
        "partitions": [],
        **fields,
    }


def write(path: Path, rows: Sequence[Mapping[str, Any]], columns: pa.Schema | None = None) -> Path:
    """Write a file."""
    pq.write_table(pa.Table.from_pylist(list(rows), columns or schema()), path, compression="zstd")
    return path
