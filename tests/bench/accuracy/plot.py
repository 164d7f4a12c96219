"""The rate in every second as a picture: a panel for each direction and count of connections, a line a policy."""

from collections.abc import Sequence
from typing import Final

from tests.bench.accuracy.judge import Figures
from tests.bench.accuracy.options import KAFKA, KIP13, SCHEDULE

_COLOURS: Final = {KAFKA: "#8a8f98", KIP13: "#c2571a", SCHEDULE: "#1a6fc2"}
_WIDTH: Final = 300
_HEIGHT: Final = 150
_GAP: Final = 46
_TOP: Final = 40
_RATE_MAX: Final = 4.0
"""Multiples of the quota at a panel's top; a burst beyond it is cut off, its height stands in the table."""


def svg(found: Sequence[Figures]) -> str:
    """Return the picture."""
    directions = list(dict.fromkeys(each.direction for each in found))
    counts = list(dict.fromkeys(each.connections for each in found))
    width = _GAP + len(counts) * (_WIDTH + _GAP)
    height = _TOP + len(directions) * (_HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_legend(),
    ]
    for row, direction in enumerate(directions):
        for column, count in enumerate(counts):
            mine = [each for each in found if (each.direction, each.connections) == (direction, count)]
            left, top = _GAP + column * (_WIDTH + _GAP), _TOP + row * (_HEIGHT + _GAP)
            parts += [f'<g transform="translate({left},{top})">', *_panel(direction, count, mine), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    return [
        f'<text x="{_GAP + index * 90}" y="16" fill="{colour}">— {policy}</text>'
        for index, (policy, colour) in enumerate(_COLOURS.items())
    ]


def _panel(direction: str, count: int, mine: Sequence[Figures]) -> list[str]:
    parts = [
        f'<text x="0" y="-6">{direction}, {count} connection{"s" if count > 1 else ""}, rate / quota</text>'
    ]
    for rate in range(int(_RATE_MAX) + 1):
        y = _y(rate)
        stroke = "#444" if rate == 1 else "#ddd"
        parts.append(
            f'<line x1="0" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}" stroke="{stroke}" stroke-width="0.7"/>'
        )
        parts.append(f'<text x="-14" y="{y + 4:.1f}" fill="#666">{rate}</text>')
    for each in mine:
        step = _WIDTH / max(1, len(each.seconds))
        points = " ".join(
            f"{(index + 0.5) * step:.1f},{_y(rate):.1f}" for index, rate in enumerate(each.seconds)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{_COLOURS[each.policy]}" stroke-width="1.4"/>'
        )
    seconds = max((len(each.seconds) for each in mine), default=0)
    parts.append(f'<text x="{_WIDTH}" y="{_HEIGHT + 14}" text-anchor="end" fill="#666">{seconds} s</text>')
    return parts


def _y(rate: float) -> float:
    return _HEIGHT * (1 - min(rate, _RATE_MAX) / _RATE_MAX)
