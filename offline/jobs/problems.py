"""What is wrong with a capture: refused, or left out and noted, but counted to the last row either way.

Some rows are named one by one; the others of the same kind in the same file are one line with their number.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from offline.errors import InputError, reason

__all__ = ["NAMED_MAX", "Problem", "Problems", "shown", "unreadable"]

NAMED_MAX: Final = 20  # rows in one message
Problem = tuple[str, int, str]  # file; row, or -1 where it is about the file; what is wrong

_GONE: Final = re.compile("FILE_NOT_EXIST|FileNotFoundException|PATH_NOT_FOUND|does not exist")


class Problems:
    """What was found so far, as the table `ingest/problems` has it."""

    def __init__(self, *, lenient: bool) -> None:
        self.noted: list[Problem] = []
        self._lenient = lenient
        self._rows = 0
        self._files = 0

    def files(self, bad: Sequence[Problem]) -> None:
        """Refuse whole files, or note that they are left out."""
        self._files += len(bad)
        self._judge(bad[:NAMED_MAX], len(bad) - NAMED_MAX, bad)

    def rows(self, bad: DataFrame) -> bool:
        """Refuse rows, or note that they are left out: `file`, `row`, `problem`; whether there are any."""
        counts = bad.groupBy("file", "problem").count().collect()
        left: Counter[tuple[str, str]] = Counter(
            {(row["file"], row["problem"]): row["count"] for row in counts}
        )
        total = left.total()
        if not total:
            return False
        first = bad.select("file", "row", "problem").orderBy("file", "row").limit(NAMED_MAX).collect()
        named: list[Problem] = [(row["file"], row["row"], row["problem"]) for row in first]
        left.subtract((file, problem) for file, _, problem in named)
        rest = [
            (file, -1, f"has {count:,} more: {text}") for (file, text), count in sorted(left.items()) if count
        ]
        self._rows += total
        self._judge(named, total - len(named), [*named, *rest])
        return True

    def said(self) -> list[str]:
        """For the operator: how much was left out, and the first of what was noted."""
        lines = [shown(*problem) for problem in self.noted[:NAMED_MAX]]
        if self._rows or self._files:
            lines.insert(0, f"left out: {self._rows:,} rows and {self._files:,} files; see ingest/problems")
        return lines

    def _judge(self, named: Sequence[Problem], more: int, noted: Sequence[Problem]) -> None:
        if named and not self._lenient:
            lines = "\n  ".join(shown(*problem) for problem in named)
            rest = f"\n  and {more:,} more" if more > 0 else ""
            raise InputError(
                f"the capture cannot be used (--lenient leaves bad files and rows out):\n  {lines}{rest}"
            )
        self.noted += noted


def shown(file: str, row: int, text: str) -> str:
    """A problem as a line.

    >>> shown("a.parquet", 7, "seq is below 0"), shown("a.parquet", -1, "is damaged")
    ('a.parquet, row 7: seq is below 0', 'a.parquet is damaged')
    """
    return f"{file} {text}" if row < 0 else f"{file}, row {row}: {text}"


def unreadable(error: Exception) -> str:
    """Spark's failure while it reads: the file's name is somewhere in it."""
    text = str(error)
    file = re.search(r"(?:file:|hdfs:|s3a?:)[^\s'\",;]+\.parquet", text)
    if file and _GONE.search(text):
        return (
            f"{file[0]} was there when ingest began, and is gone: a proxy that still captures there deletes its "
            "oldest files; read a copy of the capture, or raise `capture.max_bytes`"
        )
    if file:
        return f"{file[0]} cannot be read to its end: it is damaged"
    return f"the input cannot be read: {reason(error)}"
