"""Formats amounts for sentences: a limit with its unit, a time, a part."""

from typing import Final

from commandline.amounts import rate as byte_rate

_BYTES: Final = frozenset(("produce", "fetch", "topic", "replication"))
_UNITS: Final = {"mutation": " partitions/s", "connection": " connections/s"}


def amount(kind: str, value: float) -> str:
    """Return a limit or rate with its unit.

    >>> amount("produce", 2e6), amount("request", 12.5), amount("mutation", 5)
    ('2.0 MB/s', '12.5 %', '5 partitions/s')
    """
    if kind in _BYTES:
        return byte_rate(value)
    return f"{value:.3g}{_UNITS[kind]}" if kind in _UNITS else f"{value:.3g} %"


def time_text(ms: float) -> str:
    """Return a time.

    >>> time_text(0.42), time_text(12.3), time_text(1900)
    ('0.4 ms', '12 ms', '1.9 s')
    """
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def part_text(part: float) -> str:
    """Return a part of 1 in percent; only 1 is shown as 100 %, and only 0 as 0 %.

    >>> part_text(0.62), part_text(0.999), part_text(0.004), part_text(1)
    ('62%', 'over 99%', 'under 1%', '100%')
    """
    if 0.995 <= part < 1:
        return "over 99%"
    return "under 1%" if 0 < part < 0.005 else f"{part:.0%}"
