"""Formats bytes, times, counts and tables for reading. JSON has base units: bytes, bytes/s, seconds."""

from collections.abc import Iterator, Sequence
from typing import Final

_UNITS: Final = ("kB", "MB", "GB", "TB", "PB")
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


def count(number: int, noun: str) -> str:
    """Format a count with its noun; the plural has an s.

    >>> count(1, "replica"), count(0, "replica"), count(20, "broker")
    ('1 replica', '0 replicas', '20 brokers')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(amount: float) -> str:
    """Format a number of bytes.

    >>> size(999), size(24_040_000), size(999_960), size(1e18)
    ('999 B', '24.0 MB', '1.0 MB', '1000.0 PB')
    """
    if round(amount) < 1000:
        return f"{amount:.0f} B"
    for unit in _UNITS[:-1]:
        amount /= 1000
        if round(amount, 1) < 1000:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} {_UNITS[-1]}"


def rate(amount: float) -> str:
    """Format a number of bytes per second.

    >>> rate(2_500_000)
    '2.5 MB/s'
    """
    return f"{size(amount)}/s"


def duration(seconds: float) -> str:
    """Format a time with its two largest units.

    >>> duration(0.0042), duration(59.94), duration(60), duration(3_725), duration(200_000)
    ('4 ms', '59.9 s', '1 min 0 s', '1 h 2 min', '2 d 7 h')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if round(seconds, 1) < _MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for length, unit, part, part_unit in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min")):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part} {part_unit}"
    return f"{whole // _MINUTE} min {whole % _MINUTE} s"


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table; each column is as wide as its widest cell.

    >>> list(aligned([("member", "version"), ("a", "1")]))
    ['member  version', 'a       1']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


# ----------------------------------------------------------------------------------------------------
# Names that others choose, made safe for a terminal.


def printable(text: str) -> str:
    r"""Escape characters that are not printable, such as a terminal's control sequences.

    >>> printable("caf\u00e9 \x1b[2J")
    'café \\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
