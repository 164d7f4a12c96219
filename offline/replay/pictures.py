"""A replay's two charts, as SVG text: requests per second and latency over time.

Axes go from 0 to a round number above the highest value. Numbers are written without exponents, and the margin beside
the axis is as wide as the longest one.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from offline.replay.measure import Point

__all__ = ["pictures", "ticks"]

_WIDTH: Final = 860
_HEIGHT: Final = 180
_TICKS: Final = 5  # at most so many steps from 0 to the end of an axis
_DIGIT_WIDTH: Final = 8  # of the font's 12; no digit is wider
_UNITS: Final = ((7200.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))

Curve = tuple[str, Sequence[float | None]]  # its name, and a value for each interval


def pictures(series: Sequence[Point]) -> list[str]:
    """Both pictures, or none for a replay that is no longer than one interval."""
    if len(series) < 2:
        return []
    rates: list[Curve] = [
        ("due", [point.due for point in series]),
        ("responses", [point.responses for point in series]),
    ]
    latencies: list[Curve] = [
        ("p50", [point.p50_ms for point in series]),
        ("p99", [point.p99_ms for point in series]),
    ]
    return [
        _picture("Requests/s", rates, series),
        _picture("Latency, ms", latencies, series),
    ]


def ticks(highest: float) -> list[float]:
    """Round numbers from 0 to the first one that is not below the highest value.

    >>> ticks(12_345.0), ticks(0.07)
    ([0.0, 5000.0, 10000.0, 15000.0], [0.0, 0.02, 0.04, 0.06, 0.08])
    """
    least = max(highest, 1e-9) / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(step for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9)) * power
    count = math.ceil(max(highest, 1e-9) / step * (1 - 1e-9))
    return [float(f"{number * step:.6g}") for number in range(count + 1)]


def _picture(title: str, curves: Sequence[Curve], series: Sequence[Point]) -> str:
    """One figure: axes, a legend, and curves that have a gap for None."""
    end_s = series[-1].start_s + series[-1].seconds
    size, unit = next((size, unit) for least, size, unit in _UNITS if end_s >= least)
    values = [value for _, curve in curves for value in curve if value is not None]
    up = ticks(max(values, default=1.0))
    marks = [_mark_of_value(value, up[-1]) for value in up]
    marks += [_mark_of_time(time, end_s / size, unit) for time in ticks(end_s / size) if time <= end_s / size]
    left = 16 + _DIGIT_WIDTH * max(len(_written(value)) for value in up)
    middles = [(point.start_s + point.seconds / 2) / end_s * _WIDTH for point in series]
    paths = [
        f'<path class="{kind}" d="{_path(middles, curve, up[-1])}"/>'
        for kind, (_, curve) in zip("ab", curves, strict=True)
    ]
    legend = " &nbsp; ".join(
        f'<span class="{kind}">━</span> {escape(name)}' for kind, (name, _) in zip("ab", curves, strict=True)
    )
    return (
        f"<figure><figcaption>{escape(title)}: {legend}</figcaption>"
        f'<svg viewBox="{-left} -10 {_WIDTH + left + 40} {_HEIGHT + 40}" role="img" aria-label="{escape(title)}">'
        f"{''.join(marks)}{''.join(paths)}</svg></figure>"
    )


def _path(middles: Sequence[float], curve: Sequence[float | None], top: float) -> str:
    """A line through the middles of the intervals; a dot where a value stands alone."""
    steps = []
    for place, (x, value) in enumerate(zip(middles, curve, strict=True)):
        if value is None:
            continue
        joined = place and curve[place - 1] is not None
        alone = not joined and (place + 1 == len(curve) or curve[place + 1] is None)
        steps.append(
            f"{'L' if joined else 'M'}{x:.1f},{_HEIGHT * (1 - value / top):.1f}{'h.1' if alone else ''}"
        )
    return " ".join(steps)


def _mark_of_value(value: float, top: float) -> str:
    y = _HEIGHT * (1 - value / top)
    return (
        f'<line x1="0" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="-8" y="{y + 4:.1f}" text-anchor="end">{_written(value)}</text>'
    )


def _mark_of_time(time: float, end: float, unit: str) -> str:
    x = time / end * _WIDTH
    return f'<text x="{x:.1f}" y="{_HEIGHT + 20}" text-anchor="middle">{_written(time)} {unit}</text>'


def _written(value: float) -> str:
    """A number without an exponent.

    >>> _written(12_000.0), _written(0.25), _written(1_500_000.0)
    ('12,000', '0.25', '1,500,000')
    """
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"
