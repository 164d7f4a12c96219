"""`sluice-offline import csv`: rates by client in CSV, as spreadsheets and Grafana write them -> points of series.

Two forms, told apart by the header:

- long: a column `time`, a column `value`, and each other column is a label: `client_id`, `user`, `broker`, `direction`
  (produce or fetch), `metric` (the name);
- wide: a column of times, and each other column is a series whose name is its header: `name{label="value", ...}` as
  Prometheus writes it, or a client id alone. Grafana's panels export this (Inspect, Data, "Series joined by time",
  without "Formatted data").

A time is seconds or milliseconds since 1970, or ISO 8601; without a zone it is UTC.
"""

import csv
import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from offline.errors import InputError
from offline.imports.labels import NAME
from offline.imports.rates import SERIES_MAX, Samples

_TIMES: Final = ("time", "timestamp", "date", "datetime")
_VALUE: Final = "value"
_METRICS: Final = ("metric", "name", NAME)
_MISSING: Final = ("", "null", "nan", "undefined", "none", "-")
_SERIES: Final = re.compile(r"\s*([a-zA-Z_:][\w:]*)?\s*\{(.*)\}\s*")
_LABEL: Final = re.compile(r'\s*([a-zA-Z_][\w]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED: Final = re.compile(r"\\(.)")
# Above, a number is of milliseconds: as seconds it would be the year 5138.
_MILLISECONDS_FROM: Final = 1e11
_POINTS: Final = 1_000_000  # in memory

Rows = Iterator[tuple[int, list[str]]]
"""Lines that are not empty, each with its number."""


def read_csv(path: Path) -> Iterator[Samples]:
    """Read the points of a CSV file, a piece of it at a time.

    Raises:
        InputError: it is in no such form, or cannot be read; the message names the file and the line.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header = next(rows, [])
            if len(header) <= 2 and header and header[0].lower().startswith("sep="):  # Excel's
                header = next(rows, [])
            numbered = ((rows.line_num, row) for row in rows if row)
            yield from _read(path.name, numbered, [name.strip() for name in header])
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is no CSV in UTF-8: {error}") from error


def _read(name: str, rows: Rows, header: Sequence[str]) -> Iterator[Samples]:
    low = [column.lower() for column in header]
    at = next((index for index, column in enumerate(low) if column in _TIMES), -1)
    if at < 0:
        raise InputError(f"{name}: has no column {', '.join(_TIMES)}: {', '.join(header)[:200]}")
    if len(header) > SERIES_MAX:
        raise InputError(f"{name}: has more than {SERIES_MAX:,} columns")
    if _VALUE in low:
        return _long(name, rows, low, at)
    return _wide(name, rows, header, at)


def _long(name: str, rows: Rows, header: Sequence[str], at: int) -> Iterator[Samples]:
    value = header.index(_VALUE)
    labels = [
        (index, NAME if column in _METRICS else column)
        for index, column in enumerate(header)
        if index not in (at, value)
    ]
    points: dict[tuple[tuple[str, str], ...], tuple[list[int], list[float]]] = {}
    held = 0
    for line, row in rows:
        _check(name, line, row, header)
        whose = tuple((label, row[index]) for index, label in labels if row[index])
        times, values = points.setdefault(whose, ([], []))
        times.append(_time(name, line, row[at]))
        values.append(_number(name, line, row[value]))
        held += 1
        if held >= _POINTS:
            yield from _flushed(name, points)
            held = 0
    yield from _flushed(name, points)


def _flushed(
    name: str, points: dict[tuple[tuple[str, str], ...], tuple[list[int], list[float]]]
) -> Iterator[Samples]:
    for whose, (times, values) in points.items():
        yield Samples(dict(whose), np.array(times, np.int64), np.array(values, np.float64), name)
    points.clear()


def _wide(name: str, rows: Rows, header: Sequence[str], at: int) -> Iterator[Samples]:
    labels = [labels_of(column) for column in header]
    times: list[int] = []
    columns: list[list[float]] = [[] for _ in header]
    for line, row in rows:
        _check(name, line, row, header)
        times.append(_time(name, line, row[at]))
        for index, text in enumerate(row):
            if index != at:
                columns[index].append(_number(name, line, text))
        if len(times) * len(header) >= _POINTS:
            yield from _pieces(name, labels, times, columns, at)
            times, columns = [], [[] for _ in header]
    yield from _pieces(name, labels, times, columns, at)


def _pieces(
    name: str, labels: Sequence[dict[str, str]], times: list[int], columns: list[list[float]], at: int
) -> Iterator[Samples]:
    at_ms = np.array(times, np.int64)
    for index, whose in enumerate(labels):
        if index != at:
            yield Samples(whose, at_ms, np.array(columns[index], np.float64), name)


def labels_of(header: str) -> dict[str, str]:
    r"""Return the labels of the series that a column is.

    >>> labels_of('kafka_server_quota_byte_rate{client_id="a, b", resource="Fetch"}')
    {'__name__': 'kafka_server_quota_byte_rate', 'client_id': 'a, b', 'resource': 'Fetch'}
    >>> labels_of("web-1")
    {'client_id': 'web-1'}
    """
    match = _SERIES.fullmatch(header)
    if not match:
        return {"client_id": header}
    found = {NAME: match[1]} if match[1] else {}
    place, inner = 0, match[2].strip()
    while place < len(inner):
        label = _LABEL.match(inner, place)
        if not label:
            return {"client_id": header}
        found[label[1]] = _ESCAPED.sub(lambda each: "\n" if each[1] == "n" else each[1], label[2])
        place = label.end()
    return found


def _check(name: str, line: int, row: Sequence[str], header: Sequence[str]) -> None:
    if len(row) != len(header):
        raise InputError(f"{name}, line {line}: has {len(row)} columns, and the header {len(header)}")


def _time(name: str, line: int, text: str) -> int:
    """Return a time in ms since 1970."""
    try:
        number = float(text)
    except ValueError:
        try:
            found = datetime.fromisoformat(text.strip())
        except ValueError as error:
            raise InputError(f"{name}, line {line}: {text[:60]!r} is no time") from error
        return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    if not 0 <= number < 1e15:
        raise InputError(f"{name}, line {line}: {text[:60]!r} is no time")
    return round(number if number >= _MILLISECONDS_FROM else number * 1000)


def _number(name: str, line: int, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        if text.strip().lower() in _MISSING:
            return math.nan
        raise InputError(
            f'{name}, line {line}: {text[:60]!r} is no number of bytes/s (in Grafana: without "Formatted data")'
        ) from error
