"""Checks before Spark starts: a wrong input, a stage that was not run, an output that cannot be written.

Spark takes ten seconds to start. These checks read names, marks, and the footers of the first captures; the stages
repeat them for all files.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow.fs as arrow_fs

from offline.capture_files import files_of, read_footers
from offline.errors import InputError
from offline.paths import MARK, finished_text, require

_FOOTERS_MAX: Final = 100  # 0.1 s on a disk, a few seconds in an object store

_READ_BY: Final = {
    "demand": ("ingest",),
    "backtest": ("ingest", "demand"),
    "recommend": ("ingest", "demand", "backtest"),
    "report": ("ingest", "demand", "backtest", "recommend"),
}


def check_captures(inputs: Sequence[str], kafka: str, topic: str) -> None:
    """Check that captures are given, either as files or as a topic.

    Raises:
        InputError: they are not.
    """
    if bool(inputs) == bool(kafka) or bool(kafka) != bool(topic):
        raise InputError(
            "no input is given: use --input CAPTURE ..., or --kafka HOST:PORT with --topic TOPIC"
        )
    if inputs:
        files_of(inputs)


def check_footers(inputs: Sequence[str]) -> None:
    """Check that the first files are captures.

    Raises:
        InputError: one is not; `ingest` names all of them.
    """
    for found in read_footers(files_of(inputs)[:_FOOTERS_MAX] if inputs else ()):
        if found.problem:
            raise InputError(f"{found.path} {found.problem}; --lenient leaves such files out")


def check_stages(stage: str, work: str) -> None:
    """Check that the stages that this one reads are finished in a work directory.

    Raises:
        InputError: one is not finished or out of date; or there is no such directory.
    """
    if require(work).type == arrow_fs.FileType.File:
        raise InputError(f"--input {work}: is a file, not a work directory")
    for before in _READ_BY[stage]:
        finished_text(work, before, MARK)


def check_output(work: str) -> None:
    """Check that a local work directory can be created or written to.

    Raises:
        InputError: it cannot.
    """
    if "://" in work:
        return
    path = Path(work).absolute()
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    if not there.is_dir():
        raise InputError(f"--output {work}: {there} is a file, not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"--output {work}: {there} cannot be written to")
