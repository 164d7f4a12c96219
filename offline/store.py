"""The work directory: one directory for each stage, written completely or not at all.

A stage writes into `.STAGE.partial` and renames it; only then its previous result is removed. The mark `_SUCCESS` is
written last, since object stores rename object by object. Reading fails for a stage without the mark, or one that was
made from another run of an earlier stage than the present one (`inputs`). Paths are Hadoop's, for local directories
and a cluster's file systems.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offline.errors import InputError, OfflineError
from offline.inputs import MARK, current_run, new_mark
from offline.schemas import TABLES, ddl


class Store:
    """A work directory, in which each finished stage has its results.

    Attributes:
        stages_read: by stage whose results were read, the id of the run that wrote them.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.path = path.rstrip("/") or "/"
        self.stages_read: dict[str, str] = {}

    def read(self, table: str) -> DataFrame:
        """Read a table, "stage/name", of a finished stage.

        Raises:
            InputError: the stage is not finished, or was made from inputs that have changed since.
        """
        stage, _, _ = table.partition("/")
        self._note(stage)
        return self.spark.read.schema(ddl(TABLES[table])).parquet(f"{self.path}/{table}")

    def has(self, table: str) -> bool:
        """Whether a table, "stage/name", is there; earlier releases did not write all of them."""
        return self._exists(f"{self.path}/{table}")

    def finished(self, stage: str) -> bool:
        """Whether a stage's results are complete."""
        return self._exists(f"{self.path}/{stage}/{MARK}")

    def text(self, name: str) -> str:
        """Read a file ("stage/name") of a finished stage as text.

        Raises:
            InputError: as `read`, or the file does not exist.
        """
        self._note(name.partition("/")[0])
        return self._text(name)

    def _note(self, stage: str) -> None:
        """Check that a stage is complete and up to date, and store in `stages_read` which run of it is read."""
        if stage in self.stages_read:
            return
        self.stages_read[stage] = current_run(self.path, stage, self._mark)

    def _mark(self, stage: str) -> str | None:
        return self._text(f"{stage}/{MARK}") if self.finished(stage) else None

    def _text(self, name: str) -> str:
        file = self._hadoop(f"{self.path}/{name}")
        system = self._system(file)
        if not system.exists(file):
            raise InputError(f"{self.path}/{name} does not exist")
        stream = system.open(file)
        try:
            found = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return str(found)

    @contextmanager
    def writing(self, stage: str, *sources: "Store") -> Iterator["Writer"]:
        """Write a stage: it appears as a whole when the block ends without an exception, otherwise not at all.

        Args:
            sources: the stores from which its inputs were read.
        """
        partial = f"{self.path}/.{stage}.partial"
        self._delete(partial)
        writer = Writer(self, stage, partial)
        try:
            yield writer
        except BaseException:
            self._delete(partial)
            raise
        read = {name: run for source in sources for name, run in source.stages_read.items()}
        self._replace(partial, f"{self.path}/{stage}", new_mark(stage, read))
        self.stages_read.pop(stage, None)

    def _replace(self, partial: str, final: str, mark: str) -> None:
        """Replace a stage's directory by the new one; the old one is renamed meanwhile, and then removed."""
        before = f"{partial}.before"
        self._delete(before)
        if self._exists(final):
            self._rename(final, before)
        self._rename(partial, final)
        self.put(f"{final}/{MARK}", mark)
        self._delete(before)

    def put(self, path: str, text: str) -> None:
        """Write text to a file; `path` is a full path, not one within the work directory."""
        file = self._hadoop(path)
        stream = self._system(file).create(file, True)
        try:
            stream.write(bytearray(text, "utf-8"))
        finally:
            stream.close()

    def _rename(self, old: str, new: str) -> None:
        source = self._hadoop(old)
        if not self._system(source).rename(source, self._hadoop(new)):
            raise OfflineError(f"{old} cannot be renamed to {new}")

    def _exists(self, path: str) -> bool:
        file = self._hadoop(path)
        return bool(self._system(file).exists(file))

    def _delete(self, path: str) -> None:
        file = self._hadoop(path)
        self._system(file).delete(file, True)

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm  # the only way to Hadoop's file systems

    def _hadoop(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _system(self, file: Any) -> Any:
        return file.getFileSystem(self.spark._jsc.hadoopConfiguration())


@dataclass(frozen=True)
class Writer:
    """Writes the tables and files of one stage to a directory, its `path`."""

    store: Store
    stage: str
    path: str

    def table(self, name: str, frame: DataFrame, *, files: int = 0) -> DataFrame:
        """Write one table with its declared columns; return a DataFrame that reads it.

        Args:
            name: the table's name without the stage.
            frame: a DataFrame with at least the declared columns.
            files: the number of files; 0 = one for each partition.
        """
        columns = TABLES[f"{self.stage}/{name}"]
        chosen = frame.select(*(F.col(column.name).cast(column.type) for column in columns))
        target = f"{self.path}/{name}"
        (chosen.coalesce(files) if files else chosen).write.parquet(target)
        return self.store.spark.read.schema(ddl(columns)).parquet(target)

    def drop(self, name: str) -> None:
        """Remove a table that only this stage itself has used."""
        self.store._delete(f"{self.path}/{name}")

    def put(self, name: str, text: str) -> None:
        """Write text to a file of this name in the stage's directory, beside its tables."""
        self.store.put(f"{self.path}/{name}", text)
