"""Line charts as SVG: one panel or several, with marks for what happened."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

COLOURS = ("#c2571a", "#1a6fc2", "#8a8f98")


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
    import matplotlib as mpl  # takes a second

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "sluice", "font.size": 8}
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
