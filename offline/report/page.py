"""Fills `page.html` with tables and figures; everything is inline, so a browser fetches nothing else.

Figures are SVG text, drawn by matplotlib without a display; fonts are the browser's. All use one palette; curves also
differ in line style, marker and label, so that they can be distinguished without colours. Legends are above the axes,
where they hide no curve.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from commandline.amounts import duration, rate
from offline.advice.explain import scope_note
from offline.report.content import Direction, Report

_TEMPLATES: Final = Path(__file__).parent
_HALF: Final = (7.2, 3.3)
_WHOLE: Final = (14.4, 3.3)

COLOURS: Final = ("#1b6ca8", "#d1495b", "#edae49", "#3b8b6e", "#7d5ba6", "#b9bec3")
_INK: Final = "#333333"
_SHOWN: Final = 5
_NAME_MAX: Final = 28
_UNITS: Final = ((172_800, 86_400, "days"), (7200, 3600, "hours"), (300, 60, "minutes"), (0, 1, "seconds"))
_STYLE: Final[dict[Any, Any]] = {
    "text.parse_math": False,  # a client id may hold a dollar sign
    "svg.fonttype": "none",
    "svg.hashsalt": "sluice",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def page(report: Report) -> str:
    """Return the report on demand and recommended quotas as one HTML page, with its figures in it."""
    return filled(
        "page.html",
        {"rate": rate, "duration": duration},
        report=report,
        scope_note=scope_note,
        figures={way.name: _figures(way) for way in report.directions},
    )


def filled(template: str, filters: Mapping[str, Callable[..., str]], **values: object) -> str:
    """Return a template of this directory as one HTML page, with values and filters of these names."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(template).render(**values)


def _figures(way: Direction) -> dict[str, Markup]:
    made = {
        "demand": (draw_demand, _WHOLE, "demand over time"),
        "heaviest": (draw_heaviest, _HALF, "the heaviest clients"),
        "before_after": (draw_before_after, _HALF if way.hours else _WHOLE, f"{way.where} before and after"),
    }
    if way.shared is not None:
        made["shared"] = (draw_shared, _WHOLE, "what is promised and lent of the capacity")
    if way.curve:
        made["curve"] = (draw_curve, _HALF, "default quota, clients throttled, peak load")
    if way.hours:
        made["day"] = (draw_day, _HALF, "shape of the day")
    return {name: svg(draw, way, title, size) for name, (draw, size, title) in made.items()}


def svg(
    draw: Callable[[Axes, Direction], None], way: Direction, title: str, size: tuple[float, float]
) -> Markup:
    """Return one figure as an `<svg>` element, whose title is for screen readers."""
    return figure(lambda axes: draw(axes, way), f"{way.name}: {title}", size)


def figure(draw: Callable[[Axes], None], title: str, size: tuple[float, float]) -> Markup:
    """Return what `draw` puts on axes as an `<svg>` element, whose title is for screen readers."""
    with mpl.rc_context(_STYLE):
        made = Figure(figsize=size, layout="constrained")
        draw(made.subplots())
        out = io.StringIO()
        made.savefig(out, format="svg", metadata={"Date": None, "Title": title})
    text = out.getvalue()
    # Client ids in it are escaped by Matplotlib's SVG writer.
    return Markup(text[text.index("<svg") :])


def draw_demand(axes: Axes, direction: Direction) -> None:
    """Draw bytes/s over time: the heaviest clients stacked, all others above them."""
    shown = direction.heavy[:_SHOWN]
    rest = [
        max(0.0, total - sum(heavy.series[index] for heavy in shown))
        for index, total in enumerate(direction.total)
    ]
    series = [list(heavy.series) for heavy in shown] + [rest]
    names = [_short(heavy.name) for heavy in shown] + ["all others"]
    colours = (*COLOURS[: len(shown)], COLOURS[-1])
    if len(shown) == direction.clients:  # there are no others
        series, names, colours = series[:-1], names[:-1], colours[:-1]
    scaled = _times(axes, direction.steps_s)
    areas = axes.stackplot(scaled, series, colors=colours, linewidth=0)
    _rates(axes.yaxis)
    axes.set_ylim(bottom=0)
    legend(axes, areas, names)


def draw_heaviest(axes: Axes, direction: Direction) -> None:
    """Draw the peaks of the heaviest clients beside their recommended quotas."""
    shown = list(reversed(direction.heavy[:10]))
    places = range(len(shown))
    peaks = [heavy.peak_10s for heavy in shown]
    quotas = [heavy.peak_10s if heavy.quota is None else heavy.quota for heavy in shown]
    axes.hlines(places, quotas, peaks, color="#c8ccd0", linewidth=1.5)
    # No bars: on a log scale lengths mean nothing.
    (dots,) = axes.plot(peaks, places, "o", color=COLOURS[0], label="peak over 10 s")
    handles = [dots]
    if direction.default is not None:
        handles += axes.plot(
            quotas,
            places,
            linestyle="none",
            marker="|",
            markersize=13,
            markeredgewidth=2.5,
            color=COLOURS[1],
            label="recommended quota",
        )
    axes.set_yticks(places, [_short(heavy.name) for heavy in shown])
    axes.set_ylim(-0.6, len(shown) - 0.4)
    axes.grid(visible=False, axis="y")
    _log_rates(axes)
    place = "over all brokers" if direction.gateway else "at its busiest broker"
    axes.set_xlabel(f"bytes/s {place} (log scale)")
    legend(axes, handles)


def draw_curve(axes: Axes, direction: Direction) -> None:
    """Draw the share of throttled clients, and the peak load, over the default quota."""
    quotas = [step.quota for step in direction.curve]
    shares = [100 * step.throttled / max(1, step.clients) for step in direction.curve]
    (share,) = axes.plot(
        quotas, shares, marker="o", markersize=3.5, color=COLOURS[1], label="clients throttled"
    )
    _log_rates(axes)
    axes.set_xlabel("default quota, without overrides (log scale)")
    axes.set_ylabel("% of clients throttled")
    axes.set_ylim(-3, 103)
    assert direction.default is not None, "a curve is of what was recommended from"
    line = axes.axvline(
        direction.default, color=_INK, linewidth=1.1, linestyle=":", label="recommended default"
    )
    loads = axes.twinx()
    peaks = [step.peak for step in direction.curve]
    (load,) = loads.plot(
        quotas, peaks, marker="s", markersize=3.5, linestyle="--", color=COLOURS[0], label=direction.where
    )
    _rates(loads.yaxis)
    top = max((*peaks, direction.capacity or 0.0)) * 1.06
    loads.set_ylim(-0.03 * top, top)
    loads.grid(visible=False)
    loads.spines["right"].set_visible(True)
    loads.set_ylabel(f"{direction.where}, peak over 10 s")
    handles = [share, load, line]
    if direction.capacity is not None:
        bound = loads.axhline(
            direction.capacity, color=COLOURS[0], linewidth=0.9, linestyle=(0, (1, 2)), label="capacity"
        )
        handles.append(bound)
    legend(axes, handles)


def draw_before_after(axes: Axes, direction: Direction) -> None:
    """Draw the busiest broker's load as recorded, and with the recommendation."""
    step_s = direction.blocks_s[1] - direction.blocks_s[0] if len(direction.blocks_s) > 1 else 10.0
    times = _times(axes, [*direction.blocks_s, direction.blocks_s[-1] + step_s])
    before = axes.stairs(direction.before, times, color=COLOURS[1], linewidth=1.3, label="as recorded")
    handles: list[Any] = [before]
    if direction.default is not None:
        after = axes.stairs(
            direction.after,
            times,
            color=COLOURS[0],
            linewidth=1.3,
            fill=True,
            alpha=0.35,
            label="with the recommendation",
        )
        handles.append(after)
    if direction.capacity is not None:
        handles.append(
            axes.axhline(
                direction.capacity, color=_INK, linestyle="--", linewidth=0.9, label="stated capacity"
            )
        )
    _rates(axes.yaxis)
    axes.set_ylim(0, 1.06 * max((*direction.before, *direction.after, direction.capacity or 1.0)))
    legend(axes, handles)


def draw_shared(axes: Axes, direction: Direction) -> None:
    """Draw what clients would use of their rates, and beyond them, below the capacity."""
    shared, capacity = direction.shared, direction.capacity
    assert shared is not None, "a capacity is shared"
    assert capacity is not None, "what is shared is stated"
    times = _times(axes, direction.blocks_s)
    areas = axes.stackplot(
        times, [shared.promised, shared.lent], colors=(COLOURS[0], COLOURS[2]), linewidth=0, step="post"
    )
    line = axes.axhline(capacity, color=_INK, linestyle="--", linewidth=0.9)
    _rates(axes.yaxis)
    axes.set_ylim(0, 1.06 * max(capacity, *map(sum, zip(shared.promised, shared.lent, strict=True))))
    legend(axes, [*areas, line], ["promised", "lent", "capacity"])


def draw_day(axes: Axes, direction: Direction) -> None:
    """Draw bytes/s by hour of the day."""
    axes.bar(range(24), list(direction.hours), color=COLOURS[3], width=0.85)
    axes.set_xlabel("hour of the day, UTC")
    axes.set_xlim(-0.6, 23.6)
    axes.set_xticks(range(0, 24, 3))
    axes.grid(visible=False, axis="x")
    _rates(axes.yaxis)


def _short(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…"


def legend(axes: Axes, handles: Sequence[Any], names: Sequence[str] = (), columns: int = 6) -> None:
    """Add a legend; clients' names are given as `names`, since Matplotlib ignores a label that begins with `_`."""
    labels = list(names) or [str(handle.get_label()) for handle in handles]
    axes.legend(
        handles=handles,
        labels=labels,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        borderaxespad=0.2,
        handlelength=1.6,
    )


def _rates(axis: Axis) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: rate(max(value, 0.0))))


def _log_rates(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.08)
    _rates(axes.xaxis)


def _times(axes: Axes, seconds: Sequence[float]) -> list[float]:
    """Convert seconds since the recording began to a suitable unit, and name it on the axis."""
    length_s = seconds[-1] if seconds else 0.0
    size, unit = next((size, unit) for least, size, unit in _UNITS if length_s >= least)
    axes.set_xlabel(f"{unit} since the recording began")
    axes.margins(x=0)
    return [second / size for second in seconds]
