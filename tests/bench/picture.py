"""Charts as SVG, one panel or several: lines with marks for what happened, and ranges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COLOURS = ("#c2571a", "#1a6fc2", "#8a8f98", "#7fb3e6")
_APART = 0.2  # neighbours in a group


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart.

    Args:
        lines: by name, the points from left to right.
        marks: where something happened, and what; without a name it is a thin line.
        top: of the chart; what is higher is cut off. None: as high as the highest point.
        floors: by the name of a line, the height from which on the area below the line is shaded.
    """

    title: str
    lines: dict[str, list[tuple[float, float]]]
    marks: Sequence[tuple[float, str]] = ()
    top: float | None = None
    floors: Mapping[str, float] = field(default_factory=dict)


def draw_panels(path: Path, panels: Sequence[Sequence[Panel]], unit: str, size: tuple[float, float]) -> None:
    """Draw rows of panels; `unit` is that of the axis from left to right, `size` that of the picture in inches."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(len(panels), len(panels[0]), figsize=size, squeeze=False)
    for axis, panel in zip(axes.flat, (panel for row in panels for panel in row), strict=True):
        for (name, points), colour in zip(panel.lines.items(), COLOURS, strict=False):
            axis.plot(*zip(*points, strict=True), linewidth=1, label=name, color=colour)
            if (floor := panel.floors.get(name)) is not None:
                across, heights = zip(*points, strict=True)
                above = [height > floor for height in heights]
                look = {"color": colour, "alpha": 0.25, "linewidth": 0}
                axis.fill_between(across, floor, heights, where=above, interpolate=True, **look)
        for number, (at, name) in enumerate(panel.marks):
            axis.axvline(at, color="#999", linewidth=0.6, linestyle="--")
            axis.annotate(name, (at, 1.01 + 0.05 * (number % 2)), xycoords=("data", "axes fraction"))
        axis.set_title(panel.title, loc="left", pad=22 if panel.marks else None)
        axis.set_ylim(bottom=0, top=panel.top)
        axis.set_xlabel(unit)
        axis.grid(visible=True, alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


@dataclass(frozen=True, slots=True)
class Ranges:
    """One chart of ranges.

    Args:
        groups: from left to right; of each the values by name, from low to high, as many as there are marks.
    """

    title: str
    groups: Mapping[str, Mapping[str, Sequence[float]]]


def draw_ranges(
    path: Path, panels: Sequence[Sequence[Ranges]], marks: Mapping[str, str], size: tuple[float, float]
) -> None:
    """Draw rows of charts with one logarithmic scale; `marks` has the symbol of each value, `size` is in inches."""
    pyplot = _pyplot()
    names = dict.fromkeys(
        name for row in panels for panel in row for group in panel.groups.values() for name in group
    )
    colours = dict(zip(names, COLOURS, strict=False))
    figure, axes = pyplot.subplots(len(panels), len(panels[0]), figsize=size, squeeze=False, sharey=True)
    for axis, panel in zip(axes.flat, (panel for row in panels for panel in row), strict=True):
        for place, group in enumerate(panel.groups.values()):
            for number, (name, values) in enumerate(group.items()):
                across = [place + (number - (len(group) - 1) / 2) * _APART] * len(values)
                axis.plot(across, values, linewidth=1, color=colours[name])
                for where, value, symbol in zip(across, values, marks.values(), strict=True):
                    axis.plot(where, value, symbol, markersize=4, color=colours[name])
        axis.set_title(panel.title, loc="left")
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_tick_params(labelleft=True)
        axis.set_xticks(range(len(panel.groups)), list(panel.groups))
        axis.grid(visible=True, axis="y", which="both", alpha=0.3)
    keys = [pyplot.Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
    keys += [
        pyplot.Line2D([], [], color="#444", linestyle="", marker=symbol, markersize=4, label=name)
        for name, symbol in marks.items()
    ]
    figure.legend(handles=keys, loc="upper center", ncols=len(keys))
    figure.tight_layout(rect=(0, 0, 1, 0.96))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _pyplot() -> Any:
    """Return matplotlib's pyplot, set to write an SVG that is the same each time."""
    import matplotlib as mpl  # takes a second

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "sluice", "font.size": 8}
    return pyplot
