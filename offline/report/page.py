"""Fills `page.html` with figures and tables; everything is inline, so a browser fetches nothing else."""

from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from commandline.amounts import duration, rate
from offline.advice.explain import scope_note
from offline.report import plots
from offline.report.content import Direction, Report

_TEMPLATE = Path(__file__).with_name("page.html")


def page(report: Report) -> str:
    """The whole page as text."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["rate"] = rate
    environment.filters["duration"] = duration
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    return template.render(
        report=report, scope_note=scope_note, figures={way.name: _figures(way) for way in report.directions}
    )


def _figures(way: Direction) -> dict[str, Markup]:
    made = {
        "demand": (plots.demand, plots.WHOLE, "demand over time"),
        "heaviest": (plots.heaviest, plots.HALF, "the heaviest clients"),
        "before_after": (
            plots.before_after,
            plots.HALF if way.hours else plots.WHOLE,
            f"{way.where} before and after",
        ),
    }
    if way.curve:
        made["curve"] = (plots.curve, plots.HALF, "default quota, clients throttled, peak load")
    if way.hours:
        made["day"] = (plots.day, plots.HALF, "shape of the day")
    # Matplotlib's own text: client ids in it are escaped by its SVG writer.
    return {
        name: Markup(plots.svg(draw(way), title=f"{way.name}: {title}", size=size))
        for name, (draw, size, title) in made.items()
    }
