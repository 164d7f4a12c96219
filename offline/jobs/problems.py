"""The problems of a capture: invalid files and rows are refused, or left out and noted; all are counted.

The first rows are listed one by one; the others with the same problem in the same file are one line with their number.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from offline.errors import InputError, reason

__all__ = ["NAMED_MAX", "Problem", "Problems", "format_problem", "unreadable"]

NAMED_MAX: Final = 20  # rows in one message
Problem = tuple[str, int, str]  # file; row, or -1 where it is about the file; what is wrong

_GONE: Final = re.compile("FILE_NOT_EXIST|FileNotFoundException|PATH_NOT_FOUND|does not exist")


class Problems:
    """The problems so far, as rows of the table `ingest/problems`."""

    def __init__(self, *, lenient: bool) -> None:
        self.noted: list[Problem] = []
        self._lenient = lenient
        self._rows = 0
        self._files = 0

    def files(self, bad: Sequence[Problem]) -> None:
        """Refuse whole files, or note that they are left out."""
        self._files += len(bad)
        self._refuse_or_note(bad[:NAMED_MAX], len(bad) - NAMED_MAX, bad)

    def rows(self, bad: DataFrame) -> bool:
        """Refuse rows (`file`, `row`, `problem`), or note that they are left out; returns whether there are any."""
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
        self._refuse_or_note(named, total - len(named), [*named, *rest])
        return True

    def summary_lines(self) -> list[str]:
        """Return lines for the operator: the numbers of rows and files left out, and the first problems."""
        lines = [format_problem(*problem) for problem in self.noted[:NAMED_MAX]]
        if self._rows or self._files:
            lines.insert(0, f"left out: {self._rows:,} rows and {self._files:,} files; see ingest/problems")
        return lines

    def _refuse_or_note(self, named: Sequence[Problem], more: int, noted: Sequence[Problem]) -> None:
        if named and not self._lenient:
            lines = "\n  ".join(format_problem(*problem) for problem in named)
            rest = f"\n  and {more:,} more" if more > 0 else ""
            raise InputError(
                f"the capture cannot be used (--lenient leaves bad files and rows out):\n  {lines}{rest}"
            )
        self.noted += noted


def format_problem(file: str, row: int, text: str) -> str:
    """Format a problem as a line.

    >>> format_problem("a.parquet", 7, "seq is below 0"), format_problem("a.parquet", -1, "is damaged")
    ('a.parquet, row 7: seq is below 0', 'a.parquet is damaged')
    """
    return f"{file} {text}" if row < 0 else f"{file}, row {row}: {text}"


def unreadable(error: Exception) -> str:
    """Return the message for an error of Spark while reading; the name of the file is in its text."""
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
