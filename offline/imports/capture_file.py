"""Writes rows of `protocol.capture` as Parquet, as the proxy's capture does, from sources that are no proxy.

A file has one key of metadata more, which says where it comes from and what that cannot know (`SOURCE_KEY`);
`ingest` carries it to the confidence of a recommendation. It has no column `class`: the quotas in force are not
known. A file appears under its name when it is complete.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from protocol.capture import (
    COLUMNS,
    FILE_PREFIX,
    FILE_SUFFIX,
    PARTITION_FIELDS,
    SCHEMA_KEY,
    SCHEMA_VERSION,
    SOURCE_KEY,
    UNFINISHED_SUFFIX,
)

# As in the proxy's captures.
_COMPRESSION: Final = "zstd"
# Of a row group: a row weighs one, and one for each partition.
_GROUP_WEIGHT: Final = 64 * 1024
PARTITIONS: Final = COLUMNS[-1].name


def schema() -> pa.Schema:
    """Return the schema of a capture's file."""
    partition = pa.struct([pa.field(column.name, _type(column.type), False) for column in PARTITION_FIELDS])
    lists = pa.list_(pa.field("element", partition, False))
    fields = [
        pa.field(column.name, lists if column.type == "list<struct>" else _type(column.type), False)
        for column in COLUMNS
    ]
    return pa.schema(fields, metadata={SCHEMA_KEY: str(SCHEMA_VERSION)})


def _type(name: str) -> pa.DataType:
    return pa.string() if name == "string" else getattr(pa, name)()


class CaptureFile:
    """Writes the file of one import: `capture-<process>-000001.parquet`.

    The file of an earlier import with the same process is replaced.

    Args:
        directory: it is created if it does not exist.
        process: the id of the run in its rows, and in the file's name.

    Attributes:
        path: the file's path when it is finished.
        rows: how many were added.

    Raises:
        OSError: the directory cannot be written to.
    """

    def __init__(self, directory: Path, process: str) -> None:
        self.rows = 0
        self.path = directory / f"{FILE_PREFIX}{process}-000001{FILE_SUFFIX}"
        self._unfinished = self.path.with_name(self.path.name + UNFINISHED_SUFFIX)
        self._pending: list[Sequence[Any]] = []
        self._weight = 0
        self._schema = schema()
        directory.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._unfinished, self._schema, compression=_COMPRESSION)

    def add(self, row: Sequence[Any]) -> None:
        """Add a row: the values of all columns in the order of COLUMNS; a partition is a tuple in that of its fields.

        Raises:
            OSError: it cannot be written.
        """
        self._pending.append(row)
        self.rows += 1
        self._weight += 1 + len(row[-1])
        if self._weight >= _GROUP_WEIGHT:
            self._write()

    def add_table(self, table: pa.Table) -> None:
        """Add the rows of a table of `schema()`.

        Raises:
            OSError: they cannot be written.
        """
        self._write()
        self._writer.write_table(table)
        self.rows += table.num_rows

    def finish(self, source: str) -> None:
        """Complete the file.

        Args:
            source: see `protocol.capture.SOURCE_KEY`.

        Raises:
            OSError: it cannot be written.
        """
        self._write()
        self._writer.add_key_value_metadata({SOURCE_KEY: source})
        self._writer.close()
        self._unfinished.rename(self.path)

    def discard(self) -> None:
        """Remove what was written."""
        with suppress(OSError):
            self._writer.close()
        self._unfinished.unlink(missing_ok=True)

    def _write(self) -> None:
        if not self._pending:
            return
        columns = list(zip(*self._pending, strict=True))
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns[:-1], self._schema, strict=False)
        ]
        arrays.append(_partitions(columns[-1], self._schema.field(PARTITIONS).type))
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._pending, self._weight = [], 0


def _partitions(rows: Sequence[Sequence[Sequence[Any]]], kind: pa.DataType) -> pa.Array:
    """Return the partitions of all rows as an array of lists."""
    entries = [entry for row in rows for entry in row]
    columns = list(zip(*entries, strict=True)) or [()] * len(PARTITION_FIELDS)
    fields = list(kind.value_type)
    values = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    offsets = pa.array([0, *accumulate(len(row) for row in rows)], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(values, fields=fields), type=kind)
