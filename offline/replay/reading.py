"""Capture files -> recorded requests. Rows as `protocol.capture` names them; a wrong file or row is named, and why."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from offline.layout import layout_problem
from offline.replay.errors import CaptureError
from offline.replay.schedule import Part, Recorded
from protocol.capture import (
    COLUMNS,
    FILE_PREFIX,
    FILE_SUFFIX,
    FRAME,
    UNFINISHED_SUFFIX,
)

__all__ = ["REQUESTS_MAX", "capture_files", "read"]

REQUESTS_MAX: Final = 2_000_000  # about 2 GB of memory
_ROWS_AT_ONCE: Final = 10_000
_BYTES_MAX: Final = 0x7FFFFFFF  # of one request or partition, as Kafka's frames have it


def capture_files(paths: Sequence[Path]) -> list[Path]:
    """All files of rows that are named, or lie in directories that are named.

    Raises:
        CaptureError: there is none, or one is not finished.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(
                entry
                for entry in path.iterdir()
                if entry.name.startswith(FILE_PREFIX) and entry.name.endswith(FILE_SUFFIX)
            )
        elif not path.exists():
            raise CaptureError(f"{path}: there is no such file or directory")
        elif path.name.endswith(UNFINISHED_SUFFIX):
            raise CaptureError(f"{path}: is not finished: it is being written, or its writer was killed")
        else:
            found.append(path)
    if not found:
        names = ", ".join(map(str, paths))
        raise CaptureError(f"{names}: no {FILE_PREFIX}*{FILE_SUFFIX} there")
    return found


def read(files: Sequence[Path]) -> list[Recorded]:
    """Read them all.

    Raises:
        CaptureError: one can not be read, or there are no rows, or too many.
    """
    rows: list[Recorded] = []
    for path in files:
        for row in _rows(path):
            rows.append(row)
            if len(rows) > REQUESTS_MAX:
                raise CaptureError(
                    f"{path}: more than {REQUESTS_MAX} requests in all; replay fewer files at a time"
                )
    if not rows:
        raise CaptureError(f"{files[0]}: no rows in it, nor in any other file: nothing was captured")
    return rows


def _rows(path: Path) -> Iterator[Recorded]:
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            problem = layout_problem(file.schema_arrow)
            if problem:
                raise CaptureError(f"{path}: {problem}")
            columns = [*COLUMNS, *([FRAME] if FRAME.name in file.schema_arrow.names else [])]
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=[column.name for column in columns]):
                for row in batch.to_pylist():
                    number += 1
                    yield _recorded(row)
    except (pa.ArrowException, OSError) as error:
        raise CaptureError(f"{path}: is no Parquet file, or was cut short: {_first_line(error)}") from error
    except (TypeError, ValueError) as error:
        raise CaptureError(f"{path}: row {number} is not of the layout: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _recorded(row: Mapping[str, Any]) -> Recorded:
    """Make a request of a row.

    Raises:
        TypeError, ValueError: it is none.
    """
    for name, value in row.items():
        if value is None:
            raise ValueError(f"{name} is missing")
    parts = tuple(
        Part(part["topic"], part["partition"], part["bytes"], part["records"]) for part in row["partitions"]
    )
    for size in (row["request_bytes"], *(part.bytes for part in parts)):
        if not 0 <= size <= _BYTES_MAX:
            raise ValueError(f"nothing of {size} bytes can be sent")
    return Recorded(
        row["wall_ms"],
        row["mono_us"],
        row["process"],
        row["connection"],
        row["seq"],
        row["client_id"],
        row["broker"],
        row["api_key"],
        row["api_version"],
        row["request_bytes"],
        row["response_bytes"],
        row["upstream_us"],
        row["throttle_ms"],
        row["delay_ms"],
        parts,
        row.get(FRAME.name, b""),
    )
