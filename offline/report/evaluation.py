"""The page of `evaluate`: waits against slack of every recommender, the cases, and how far stated confidence holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from offline.advice.evaluation import ORACLE, RECOMMENDERS, SLUICE, TERMS_RECOMMENDERS
from offline.report.page import COLOURS, figure, filled, legend

_SIZE: Final = (7.2, 4.4)
_LEAST: Final = 1e-6  # of a day: waits below that are drawn there, since the axis is logarithmic
_MARKERS: Final = ("o", "s", "^", "D", "v", "*")

_ORDER: Final = (*dict.fromkeys((*TERMS_RECOMMENDERS[:-2], *RECOMMENDERS)),)

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The rows of the tables of `evaluate` with these names; `terms_summary` is empty where no capacity is stated."""

    summary: Rows
    fronts: Rows
    cases: Rows
    calibration: Rows
    terms_summary: Rows

    def of(self, rows: Rows, **wanted: object) -> list[Mapping[str, Any]]:
        """Return the rows with these values, in the order of the recommenders if they have one."""
        found = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
        if found and "recommender" in found[0]:
            found.sort(key=lambda row: _ORDER.index(row["recommender"]))
        return found

    @property
    def recordings(self) -> list[str]:
        """The names of the recordings, `all` first."""
        names = list(dict.fromkeys(row["recording"] for row in self.summary))
        return sorted(names, key=lambda name: (name != "all", name))

    @property
    def horizons(self) -> list[int]:
        """The horizons that were scored, in days."""
        return sorted({row["horizon"] for row in self.summary})

    @property
    def inside(self) -> str:
        """How many cases the advice has won, in words."""
        cases = [case for case in self.cases if case["recording"] != "all"]
        won = sum(case["inside"] for case in cases)
        return f"{won} of {len(cases)}"


def evaluation_page(found: Evaluation) -> str:
    """Return the page as HTML, with its figures in it."""
    figures = {
        (recording, horizon): front_figure(found, recording, horizon)
        for recording in found.recordings
        for horizon in found.horizons
        if found.of(found.summary, recording=recording, horizon=horizon)
    }
    return filled("evaluation.html", {"between": between}, found=found, figures=figures, sluice=SLUICE)


def front_figure(found: Evaluation, recording: str, horizon: int) -> Markup:
    """Return the fronts of one recording and horizon as an `<svg>` element."""

    def draw(axes: Axes) -> None:
        draw_fronts(axes, found, recording, horizon)

    return figure(draw, f"waits against slack: {recording}, {horizon} d", _SIZE)


def draw_fronts(axes: Axes, found: Evaluation, recording: str, horizon: int) -> None:
    """Draw the waits of each recommender over its slack, as it is and at multiples of its quotas."""
    handles = []
    for row in found.of(found.summary, recording=recording, horizon=horizon):
        name = row["recommender"]
        number = RECOMMENDERS.index(name)
        colour = "#333333" if name == ORACLE else COLOURS[number]
        points = found.of(found.fronts, recording=recording, horizon=horizon, recommender=name)
        lines = sorted((100 * point["slack"], 100 * max(point["waited"], _LEAST)) for point in points)
        if len(lines) > 1:
            axes.plot(
                *zip(*lines, strict=True), color=colour, linewidth=2.2 if name == SLUICE else 1.0, alpha=0.8
            )
        error = [
            [100 * max(0.0, row["slack"] - row["slack_low"])],
            [100 * max(0.0, row["slack_high"] - row["slack"])],
        ]
        waited = 100 * max(row["waited"], _LEAST)
        axes.errorbar([100 * row["slack"]], [waited], xerr=error, color=colour, linewidth=1.0, capsize=2)
        handles += axes.plot(
            [100 * row["slack"]],
            [waited],
            marker=_MARKERS[number],
            markersize=9 if name == SLUICE else 6,
            linestyle="none",
            color=colour,
            label=name,
        )
    axes.set_yscale("log")
    axes.set_xlim(0, 100)
    axes.set_xlabel("slack: % of the quota that was not needed")
    axes.set_ylabel("% of the time that clients wait (log scale)")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    legend(axes, handles, columns=3)


def between(row: Mapping[str, Any], name: str, times: float, digits: int) -> str:
    """Return a measure of `evaluate/summary` with its interval.

    >>> between({"slack": 0.25, "slack_low": 0.2, "slack_high": 0.31}, "slack", 100, 1)
    '25.0 (20.0–31.0)'
    """
    mean, low, high = (times * row[f"{name}{bound}"] for bound in ("", "_low", "_high"))
    return f"{mean:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"
