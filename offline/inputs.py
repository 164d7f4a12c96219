"""What a stage reads, checked without Spark, which takes ten seconds to start: captures and earlier stages' results.

A capture file is refused by its footer, with the reason: it is truncated, it is not Parquet, it is not a capture, it
was written by another version of the layout, or a column is missing or of another type. Files that a proxy is still
writing have another suffix (`.inprogress`) and are skipped.

If a stage is run again, results made from its previous run are out of date, although they are complete. So each run has
an id, and the mark of a finished stage has the ids of the runs that it was made from.

Paths are local, or have a file system's scheme. Spark uses Hadoop's file systems; this module uses pyarrow's. Spark's
s3a:// is s3:// here.
"""

import difflib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq

from offline.errors import InputError, reason
from offline.schemas import layout_problem
from protocol.capture import FILE_PREFIX, FILE_SUFFIX, SOURCE_KEY

MARK: Final = "_SUCCESS"  # in the directory of a finished stage
# Each reads results of those before it.
_STAGES: Final = ("ingest", "demand", "backtest", "recommend", "report", "evaluate")
_FOOTERS_MAX: Final = 100  # 0.1 s on a disk, a few seconds in an object store


class Mark(msgspec.Struct, frozen=True):
    """The contents of the file that marks a stage as finished.

    Attributes:
        run: a random id of this run of the stage.
        made_from: by earlier stage, the id of the run whose results it has read.
    """

    run: str = ""
    made_from: dict[str, str] = {}


class CheckedFile(NamedTuple):
    """A capture file.

    Attributes:
        problem: why it cannot be used; "" if it can.
        source: what it cannot know, if no proxy wrote it (`protocol.capture.SOURCE_KEY`); "" otherwise.
    """

    path: str
    rows: int
    problem: str
    source: str = ""


# Before Spark starts.


def check_captures(inputs: Sequence[str], kafka: str, topic: str) -> None:
    """Check that the options name captures: either files, or a Kafka cluster and a topic.

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
    """Check quickly, before Spark starts, that the first files are captures.

    Raises:
        InputError: a file is not; `ingest` later checks all files and names those that are not.
    """
    for found in read_footers(files_of(inputs)[:_FOOTERS_MAX] if inputs else ()):
        if found.problem:
            raise InputError(f"{found.path} {found.problem}; --lenient leaves such files out")


def check_stages(stage: str, work: str) -> None:
    """Check that the stages before this one are finished in a work directory.

    Raises:
        InputError: one is not finished or out of date; or there is no such directory.
    """
    if require(work).type == arrow_fs.FileType.File:
        raise InputError(f"--input {work}: is a file, not a work directory")
    for before in _STAGES[: _STAGES.index(stage)]:
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


# Captures.


def files_of(inputs: Sequence[str]) -> list[str]:
    """Return the given files, and all capture files in the given directories, as paths for Spark.

    A file that a proxy is still writing (`.inprogress`) is left out of a directory.

    Raises:
        InputError: an input does not exist, or there is no capture file.
    """
    found: list[str] = []
    for name in inputs:
        info = require(name)
        system, path = _resolve(name)
        if info.type == arrow_fs.FileType.File:
            found.append(name)
            continue
        prefix = name[: len(name) - len(path)] if "://" in name else ""
        found += sorted(
            prefix + entry.path
            for entry in system.get_file_info(arrow_fs.FileSelector(path, recursive=False))
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
    """Read the Parquet footer of each file, and check that it is a capture; yield the results."""
    for name in paths:
        system, path = _resolve(name)
        rows, said = 0, b""
        try:
            with system.open_input_file(path) as source:
                file = pq.ParquetFile(source)
                rows, problem = file.metadata.num_rows, layout_problem(file.schema_arrow)
                said = (file.metadata.metadata or {}).get(SOURCE_KEY.encode(), b"")
        except FileNotFoundError:
            problem = "was there and is gone: a proxy that still captures there deletes its oldest files"
        except (pa.ArrowException, OSError, ValueError) as error:
            problem = f"is no whole Parquet file: cut off, or something else ({reason(error)})"
        yield CheckedFile(name, rows, problem, said.decode("utf-8", "replace"))


# Results of stages, and which runs they were made from.


def new_mark(stage: str, read: Mapping[str, str]) -> str:
    """Return the text of the mark file for a new run of a stage.

    Args:
        read: by stage, the id of the run whose results were read; only earlier stages are kept.
    """
    before = _STAGES[: _STAGES.index(stage)]
    made_from = {name: run for name, run in read.items() if name in before}
    return msgspec.json.encode(Mark(uuid.uuid4().hex, made_from)).decode() + "\n"


def current_run(work: str, stage: str, mark_of: Callable[[str], str | None]) -> str:
    """Return the id of a stage's run, if it and all stages that it was made from are up to date.

    Args:
        work: the directory, for the message.
        mark_of: returns the text of a stage's mark; None if the stage is not finished here. Then an earlier stage is
            not checked, since its results may have been read from another directory.

    Raises:
        InputError: the stage is not finished, or one is out of date; the message names the stage to run.
    """
    text = mark_of(stage)
    if text is None:
        raise InputError(f"{work} has no finished stage {stage}: run `sluice-offline {stage}` first")
    mark = _read_mark(text)
    for before, run in mark.made_from.items():
        text = mark_of(before)
        if text is None:
            continue
        if _read_mark(text).run != run:
            raise InputError(
                f"{work}/{stage} was made from an earlier run of {before}: run `sluice-offline {stage}` again"
            )
        current_run(work, before, mark_of)
    return mark.run


def _read_mark(text: str) -> Mark:
    """Decode a mark; those of the first releases were empty."""
    try:
        return msgspec.json.decode(text, type=Mark)
    except msgspec.MsgspecError:
        return Mark()


def finished_text(work: str, stage: str, name: str) -> str:
    """Read a file of a finished stage.

    Raises:
        InputError: the stage is not finished or out of date, or the file cannot be read.
    """

    def mark_of(before: str) -> str | None:
        system, path = _resolve(f"{work.rstrip('/')}/{before}")
        there = system.get_file_info(f"{path}/{MARK}").type == arrow_fs.FileType.File
        return _text(work, f"{before}/{MARK}") if there else None

    current_run(work, stage, mark_of)
    return _text(work, f"{stage}/{name}")


def finished_table(work: str, table: str, columns: Sequence[str]) -> pa.Table:
    """Read columns of a table, "stage/name", of a finished stage, without Spark.

    Raises:
        InputError: the stage is not finished or out of date, or the table cannot be read.
    """
    finished_text(work, table.partition("/")[0], MARK)
    system, path = _resolve(f"{work.rstrip('/')}/{table}")
    try:
        return pq.read_table(path, columns=list(columns), filesystem=system)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{work}/{table} cannot be read: {reason(error)}") from error


def _text(work: str, name: str) -> str:
    system, path = _resolve(f"{work.rstrip('/')}/{name}")
    try:
        with system.open_input_stream(path) as stream:
            return str(stream.read().decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{work}/{name} cannot be read: {error}") from error


# Paths.


def require(name: str) -> arrow_fs.FileInfo:
    """Return the file information of an existing path.

    Raises:
        InputError: the path does not exist; the message has the most similar local name beside it.
    """
    system, path = _resolve(name)
    info = system.get_file_info(path)
    if info.type != arrow_fs.FileType.NotFound:
        return info
    guess = ""
    parent = Path(path).parent
    if isinstance(system, arrow_fs.LocalFileSystem) and parent.is_dir():
        near = difflib.get_close_matches(Path(path).name, [entry.name for entry in parent.iterdir()], n=1)
        guess = f"; did you mean {parent / near[0]}?" if near else ""
    raise InputError(f"{name} does not exist{guess}")


def _resolve(name: str) -> tuple[arrow_fs.FileSystem, str]:
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


# Recordings to evaluate recommenders on.


class Misbehaviour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client that is to be held back: an entry `[[hog]]` of `truth.toml`.

    Attributes:
        direction: `produce`, `fetch`, or "" for both.
        start, end: seconds from the recording's first one; `end` 0: to its end.
    """

    client_id: str = ""
    user: str = ""
    direction: str = ""
    start: float = 0.0
    end: float = 0.0


class Truth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of a recording beside its traffic: `truth.toml` in its directory.

    Attributes:
        day_seconds: the length of its days; 0 for that of the command.
        hog: the clients that misbehave; all others behave.
    """

    day_seconds: int = 0
    hog: list[Misbehaviour] = []


class Recorded(NamedTuple):
    """A directory with a recording.

    Attributes:
        name: of the directory.
        measured: whether it is a work directory with a finished stage `demand`; else it has capture files.
        truth: None if it has no `truth.toml`.
    """

    name: str
    path: str
    measured: bool
    truth: Truth | None


def recordings(directory: str) -> list[Recorded]:
    """Return the recordings in the subdirectories of a directory, by name; or the directory itself, if it is one.

    Raises:
        InputError: there are none, or a `truth.toml` is wrong.
    """
    if require(directory).type == arrow_fs.FileType.File:
        raise InputError(f"--input {directory}: is a file, not a directory of recordings")
    system, path = _resolve(directory)
    prefix = directory[: len(directory) - len(path)] if "://" in directory else ""
    below = system.get_file_info(arrow_fs.FileSelector(path, recursive=False))
    paths = sorted(prefix + entry.path for entry in below if entry.type == arrow_fs.FileType.Directory)
    found = [recording for each in (directory.rstrip("/"), *paths) if (recording := _recording(each))]
    if not found:
        raise InputError(
            f"no recording in {directory}: no subdirectory has capture files, or a finished stage demand"
        )
    return found[:1] if found[0].path == directory.rstrip("/") else found


def _recording(path: str) -> Recorded | None:
    system, own = _resolve(path)
    measured = system.get_file_info(f"{own}/demand/{MARK}").type == arrow_fs.FileType.File
    if not measured:
        try:
            files_of([path])
        except InputError:
            return None
    truth = None
    if system.get_file_info(f"{own}/truth.toml").type == arrow_fs.FileType.File:
        try:
            truth = msgspec.toml.decode(_text(path, "truth.toml"), type=Truth)
        except (msgspec.MsgspecError, ValueError) as error:
            raise InputError(f"{path}/truth.toml: {error}") from error
    return Recorded(Path(own).name, path, measured, truth)
