"""Validation of capture files by their footers, before Spark reads them.

A file is refused by name, with the reason: it is truncated, it is not Parquet, it is not a capture, it was written by
another version of the layout, or a column is missing or of another type. Files that a proxy is still writing have
another suffix (`.inprogress`) and are skipped.
"""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq

from offline.errors import InputError, reason
from offline.layout import layout_problem
from offline.paths import require, resolve
from protocol.capture import FILE_PREFIX, FILE_SUFFIX


class CheckedFile(NamedTuple):
    """One file: its number of rows, and its problem; "" = none."""

    path: str
    rows: int
    problem: str


def files_of(inputs: Sequence[str]) -> list[str]:
    """Return all finished files of these directories and files, as paths for Spark.

    Raises:
        InputError: an input does not exist, or there is no file.
    """
    found: list[str] = []
    for name in inputs:
        info = require(name)
        system, path = resolve(name)
        if info.type == arrow_fs.FileType.File:
            found.append(name)
            continue
        selector = arrow_fs.FileSelector(path, recursive=False)
        prefix = name[: len(name) - len(path)] if "://" in name else ""
        found += sorted(
            prefix + entry.path
            for entry in system.get_file_info(selector)
            if entry.type == arrow_fs.FileType.File
            and entry.base_name.startswith(FILE_PREFIX)
            and entry.base_name.endswith(FILE_SUFFIX)
        )
    if not found:
        raise InputError(
            f"no capture in {', '.join(inputs)}: no file is named {FILE_PREFIX}*{FILE_SUFFIX} "
            "(one that ends in .inprogress is still being written)"
        )
    # One file under two names would be read twice.
    return list({os.path.realpath(name) if "://" not in name else name: name for name in found}.values())


def read_footers(paths: Sequence[str]) -> Iterator[CheckedFile]:
    """Read the footers of files, and check them."""
    for name in paths:
        system, path = resolve(name)
        try:
            with system.open_input_file(path) as source:
                file = pq.ParquetFile(source)
                yield CheckedFile(name, file.metadata.num_rows, layout_problem(file.schema_arrow))
        except FileNotFoundError:
            yield CheckedFile(
                name, 0, "was there and is gone: a proxy that still captures there deletes its oldest files"
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            yield CheckedFile(
                name, 0, f"is no whole Parquet file: cut off, or something else ({reason(error)})"
            )
