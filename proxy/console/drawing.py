"""Numbers as paths of SVG. Pure; a path is made of numbers alone."""

from collections.abc import Sequence
from typing import Final

from proxy.console.history import Sample
from proxy.explain.parts import BROKER, CLIENT, HELD, MUTED, NAMES, SLUICE

SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 24
BAR_WIDTH: Final = 100
# From the bottom of a stacked timeline: what the client waits for first, then what is its own, idle on top.
ORDER: Final = ("muted", "held", "client", "sluice", "broker", "poll", "idle")
_PARTS: Final = {"broker": (BROKER,), "client": (CLIENT,), "sluice": (SLUICE,)}


def spark(samples: Sequence[Sample], kind: str = "quota") -> str:
    """Return the area of the time that a cause took, in a box of SPARK_WIDTH x SPARK_HEIGHT.

    Args:
        kind: of the cause; what is not a broker, the client or Sluice is a wait for quotas.

    >>> spark([None, (0, 1, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0, 1)])
    'M40 24V0H80V24H120V24Z'
    """
    parts = _PARTS.get(kind, (HELD, MUTED))
    return values_spark([None if one is None else sum(one[part] for part in parts) for one in samples], 1.0)


def values_spark(values: Sequence[float | None], top: float) -> str:
    """Return the area under values, of which `top` has the full height."""
    width = SPARK_WIDTH / max(1, len(values))
    path: list[str] = []
    open_ = False
    for index, value in enumerate(values):
        if value is None:
            if open_:
                path.append(f"V{SPARK_HEIGHT}Z")
            open_ = False
            continue
        if not open_:
            path.append(f"M{index * width:g} {SPARK_HEIGHT}")
        height = SPARK_HEIGHT * (1 - min(1.0, value / top if top else 0.0))
        path.append(f"V{height:.3g}H{(index + 1) * width:g}")
        open_ = True
    if open_:
        path.append(f"V{SPARK_HEIGHT}Z")
    return "".join(path)


def stack(times: Sequence[float]) -> list[tuple[str, float, float]]:
    """Return name, start and width of each part in a bar of BAR_WIDTH.

    >>> stack((0, 0.25, 0, 0, 0, 0, 0.75))
    [('muted', 0, 25.0)]
    """
    found, start = [], 0.0
    for name in ORDER[:-1]:
        width = round(times[NAMES.index(name)] * BAR_WIDTH, 1)
        if width > 0:
            found.append((name, round(start, 1) or 0, width))
            start += width
    return found


def timeline(samples: Sequence[Sample], width: int, height: int) -> list[tuple[str, str]]:
    """Return name and path of each part, stacked, one column for each sample; idle is left open.

    >>> timeline([(0, 0.5, 0, 0.25, 0, 0, 0.25), None], 100, 40)
    [('muted', 'M0 40V20H50V40Z'), ('broker', 'M0 20V10H50V20Z')]
    """
    column = width / max(1, len(samples))
    paths: dict[str, list[str]] = {name: [] for name in ORDER[:-1]}
    for index, sample in enumerate(samples):
        if sample is None:
            continue
        left, right = f"{index * column:g}", f"{(index + 1) * column:g}"
        base = float(height)
        for name in ORDER[:-1]:
            part = sample[NAMES.index(name)]
            if part > 0:
                top = max(0.0, base - part * height)
                paths[name].append(f"M{left} {base:g}V{top:g}H{right}V{base:g}Z")
                base = top
    return [(name, "".join(path)) for name, path in paths.items() if path]
