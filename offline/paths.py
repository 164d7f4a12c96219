"""Paths without Spark: local, or with a file system's scheme.

Spark uses Hadoop's file systems; this module uses pyarrow's. Spark's s3a:// is s3:// here.
"""

import difflib
import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs as arrow_fs

from offline.errors import InputError, reason

# ----------------------------------------------------------------------------------------------------
# The lineage of results: the mark of each finished stage names the runs of other stages that it was made
# from.
#
# If a stage is run again, results made from its previous run are out of date, although they are complete. So
# each run has
# an id, and its mark has the ids of the runs that it has read.


_STAGES: Final = ("ingest", "demand", "backtest", "recommend", "report")


def mark(stage: str, read: Mapping[str, str]) -> str:
    """Return the text of a new run's mark: its id, and the ids of the runs that it has read."""
    before = _STAGES[: _STAGES.index(stage)]
    made_from = {name: run for name, run in read.items() if name in before}
    return json.dumps({"run": uuid.uuid4().hex, "made_from": made_from}) + "\n"


def run_of(text: str) -> str:
    """Return the id in a mark; "" without one."""
    return str(_parsed(text).get("run", ""))


def check(work: str, stage: str, mark_of: Callable[[str], str | None]) -> None:
    """Check that a stage was made from the current results of earlier stages, and those likewise.

    Args:
        work: the directory, for the message.
        mark_of: returns a stage's mark; None if the stage is not finished here. Such a stage is not checked: it may
            have been read from another directory.

    Raises:
        InputError: the stage is out of date; the message names the stage to run again.
    """
    for before, run in _parsed(mark_of(stage) or "").get("made_from", {}).items():
        text = mark_of(before)
        if text is None:
            continue
        if run_of(text) != run:
            raise InputError(
                f"{work}/{stage} was made from an earlier run of {before}: run `sluice-offline {stage}` again"
            )
        check(work, before, mark_of)


def _parsed(text: str) -> dict[str, dict[str, str]]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


MARK: Final = "_SUCCESS"  # in the directory of a finished stage


def resolve(name: str) -> tuple[arrow_fs.FileSystem, str]:
    """Return the file system and the path in it.

    Raises:
        InputError: the scheme is unknown, or the file system cannot be reached.
    """
    if "://" not in name:
        return arrow_fs.LocalFileSystem(), name
    try:
        found: tuple[arrow_fs.FileSystem, str] = arrow_fs.FileSystem.from_uri(
            name.replace("s3a://", "s3://", 1)
        )
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} cannot be reached: {reason(error)}") from error
    return found


def require(name: str) -> arrow_fs.FileInfo:
    """Return the file information of an existing path.

    Raises:
        InputError: the path does not exist; the message has the most similar local name beside it.
    """
    system, path = resolve(name)
    info = system.get_file_info(path)
    if info.type != arrow_fs.FileType.NotFound:
        return info
    guess = ""
    parent = Path(path).parent
    if isinstance(system, arrow_fs.LocalFileSystem) and parent.is_dir():
        near = difflib.get_close_matches(Path(path).name, [entry.name for entry in parent.iterdir()], n=1)
        guess = f"; did you mean {parent / near[0]}?" if near else ""
    raise InputError(f"{name} does not exist{guess}")


def finished_text(work: str, stage: str, name: str) -> str:
    """Read a file of a finished stage.

    Raises:
        InputError: the stage is not finished or out of date, or the file cannot be read.
    """

    def mark_of(before: str) -> str | None:
        system, path = resolve(f"{work.rstrip('/')}/{before}")
        there = system.get_file_info(f"{path}/{MARK}").type == arrow_fs.FileType.File
        return _text(work, f"{before}/{MARK}") if there else None

    if mark_of(stage) is None:
        raise InputError(f"{work} has no finished stage {stage}: run `sluice-offline {stage}` first")
    check(work, stage, mark_of)
    return _text(work, f"{stage}/{name}")


def _text(work: str, name: str) -> str:
    system, path = resolve(f"{work.rstrip('/')}/{name}")
    try:
        with system.open_input_stream(path) as stream:
            return str(stream.read().decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{work}/{name} cannot be read: {error}") from error
