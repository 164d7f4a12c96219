"""Capture files -> recorded requests; an invalid file or row is named with the reason.

All requests are in memory at once, with their captured frames: sorting by time needs them all. So their memory is
counted, and a capture that is too large is refused while it is read.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from commandline.arguments import not_installed
from offline.errors import CaptureError, reason
from offline.replay.schedule import Recorded
from offline.schemas import layout_problem
from protocol.capture import COLUMNS, FILE_PREFIX, FILE_SUFFIX, FRAME, UNFINISHED_SUFFIX

HELD_BYTES_MAX: Final = 2 * 1024 * 1024 * 1024
_ROW_BYTES: Final = 800  # the approximate memory of a row, without its partitions and frame
_PART_BYTES: Final = 200
_ROWS_AT_ONCE: Final = 10_000
FRAMES_AT_ONCE: Final = 100  # of 2 MiB each at most


def capture_files(paths: Sequence[Path]) -> list[Path]:
    """Return all capture files among the paths, and in directories among them.

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
    """Return the captured requests in these files, in the order of the files.

    Raises:
        CaptureError: a file cannot be read, or there are no rows, or too many.
    """
    rows: list[Recorded] = []
    held = 0
    for path in files:
        for row in _rows(path):
            held += _ROW_BYTES + _PART_BYTES * len(row.partitions) + len(row.frame)
            if held > HELD_BYTES_MAX:
                raise CaptureError(
                    f"{path}: takes more than {HELD_BYTES_MAX >> 20} MiB of memory, with what was read before it, "
                    f"after {len(rows)} requests; replay fewer files at a time"
                )
            rows.append(row)
    if not rows:
        raise CaptureError(f"{files[0]}: no rows in it, nor in any other file: nothing was captured")
    return rows


def _rows(path: Path) -> Iterator[Recorded]:
    try:
        import pyarrow as pa  # an extra: the commands are there without it
        import pyarrow.parquet as pq
    except ImportError as error:
        raise CaptureError(not_installed("pyarrow", "offline")) from error
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            problem = layout_problem(file.schema_arrow)
            if problem:
                raise CaptureError(f"{path}: {problem}")
            kept = FRAME.name in file.schema_arrow.names
            columns = [column.name for column in (*COLUMNS, *([FRAME] if kept else []))]
            for batch in file.iter_batches(FRAMES_AT_ONCE if kept else _ROWS_AT_ONCE, columns=columns):
                frames = batch.column(FRAME.name) if kept else None
                plain = batch.drop_columns([FRAME.name]) if kept else batch
                for at, row in enumerate(plain.to_pylist()):
                    number += 1
                    # One by one, so that a batch's frames are not in memory twice.
                    frame = {} if frames is None else {"frame": frames[at].as_py()}
                    yield msgspec.convert(row | frame, Recorded)
    except (pa.ArrowException, OSError) as error:
        raise CaptureError(f"{path}: is not a Parquet file, or was cut short: {reason(error)}") from error
    except (msgspec.ValidationError, ValueError) as error:
        raise CaptureError(f"{path}: row {number} is not of the layout: {error}") from error
