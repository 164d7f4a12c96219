"""The report's figures as SVG text: matplotlib without a screen, fonts left to the reader's browser.

One palette for all figures, told apart without colours too (line styles and labels). Sizes are of a page's half column.
"""

import io
from collections.abc import Callable
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from offline.advice.words import amount
from offline.report.content import Direction

__all__ = ["before_after", "curve", "day", "demand", "heaviest", "svg"]

_COLOURS: Final = ("#1b6ca8", "#d1495b", "#edae49", "#3b8b6e", "#7d5ba6", "#8c8c8c")
_INK: Final = "#333333"
_SIZE: Final = (7.2, 3.1)
_SHOWN: Final = 5
_STYLE: Final[dict[Any, Any]] = {
    "text.parse_math": False,  # a client id may hold a dollar sign
    "svg.fonttype": "none",
    "svg.hashsalt": "sluice",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


def svg(draw: Callable[[Axes], None], *, title: str) -> str:
    """One figure as an `<svg>` element; the title is for who does not see it."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        draw(figure.subplots())
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Title": title})
    text = out.getvalue()
    return text[text.index("<svg") :]


def demand(direction: Direction) -> Callable[[Axes], None]:
    """Bytes/s over time: the heaviest clients stacked, everybody else above them."""

    def draw(axes: Axes) -> None:
        shown = direction.heavy[:_SHOWN]
        rest = [
            max(0.0, total - sum(heavy.series[index] for heavy in shown))
            for index, total in enumerate(direction.total)
        ]
        series = [list(heavy.series) for heavy in shown] + [rest]
        names = [heavy.name for heavy in shown] + ["all others"]
        colours = (*_COLOURS[: len(shown)], _COLOURS[-1])
        axes.stackplot(direction.minutes, series, labels=names, colors=colours, linewidth=0)
        _rates(axes)
        _hours(axes)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=6)

    return draw


def heaviest(direction: Direction) -> Callable[[Axes], None]:
    """Peaks of the heaviest clients, beside what they are to get."""

    def draw(axes: Axes) -> None:
        shown = list(reversed(direction.heavy[:10]))
        places = range(len(shown))
        peaks = [heavy.peak_10s for heavy in shown]
        axes.hlines(places, [heavy.quota for heavy in shown], peaks, color="#c8ccd0", linewidth=1.5)
        axes.plot(
            peaks, places, "o", color=_COLOURS[0], label="peak over 10 s"
        )  # lengths mean nothing on a log scale
        axes.plot(
            [heavy.quota for heavy in shown],
            places,
            linestyle="none",
            marker="|",
            markersize=12,
            markeredgewidth=2.5,
            color=_COLOURS[1],
            label="recommended quota",
        )
        axes.set_yticks(places, [heavy.name for heavy in shown])
        axes.grid(visible=False, axis="y")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: amount(rate)))
        axes.legend(loc="lower right")

    return draw


def curve(direction: Direction) -> Callable[[Axes], None]:
    """Default quota against the share of clients throttled, and the peak load."""

    def draw(axes: Axes) -> None:
        quotas = [step.quota for step in direction.curve]
        shares = [100 * step.throttled / max(1, step.clients) for step in direction.curve]
        axes.plot(quotas, shares, marker="o", markersize=3.5, color=_COLOURS[1], label="clients throttled")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: amount(rate)))
        axes.set_xlabel("default quota")
        axes.set_ylabel("% of clients throttled")
        axes.set_ylim(bottom=0)
        axes.axvline(direction.default, color=_INK, linewidth=0.9, linestyle=":")
        axes.annotate(
            " recommended", (direction.default, 1), xycoords=("data", "axes fraction"), va="top", fontsize=8
        )
        loads = axes.twinx()
        peaks = [step.peak for step in direction.curve]
        loads.plot(
            quotas, peaks, marker="s", markersize=3.5, linestyle="--", color=_COLOURS[0], label="peak load"
        )
        loads.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: amount(rate)))
        loads.set_ylim(bottom=0)
        loads.grid(visible=False)
        lines = [*axes.get_lines()[:1], *loads.get_lines()]
        axes.legend(handles=lines, loc="center right")

    return draw


def before_after(direction: Direction) -> Callable[[Axes], None]:
    """The busiest broker's load as recorded, and with the recommendation."""

    def draw(axes: Axes) -> None:
        axes.plot(direction.blocks, direction.before, color=_COLOURS[1], linewidth=0.9, label="before")
        axes.plot(direction.blocks, direction.after, color=_COLOURS[0], linewidth=1.1, label="after")
        if direction.capacity is not None:
            axes.axhline(direction.capacity, color=_INK, linestyle="--", linewidth=0.9, label="capacity")
        _rates(axes)
        _hours(axes)
        axes.legend(loc="upper right", ncols=3)

    return draw


def day(direction: Direction) -> Callable[[Axes], None]:
    """The shape of the day."""

    def draw(axes: Axes) -> None:
        axes.bar(range(24), list(direction.hours), color=_COLOURS[3], width=0.85)
        axes.set_xlabel("hour of the day, UTC")
        axes.set_xlim(-0.6, 23.6)
        axes.set_xticks(range(0, 24, 3))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: amount(rate)))

    return draw


def _rates(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: amount(rate)))
    axes.set_ylim(bottom=0)


def _hours(axes: Axes) -> None:
    axes.set_xlabel("hours since the recording began")
    axes.margins(x=0)
