"""The page: figures and tables put into `page.html`, everything inline; nothing is fetched when it is read."""

from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from offline.advice.words import amount
from offline.report import plots
from offline.report.content import Direction, Report

__all__ = ["page"]

_TEMPLATE = Path(__file__).with_name("page.html")


def page(report: Report) -> str:
    """The whole page as text."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["amount"] = amount
    environment.filters["duration"] = duration
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    return template.render(report=report, figures={way.name: _figures(way) for way in report.directions})


def duration(seconds: float) -> str:
    """As a person says it.

    >>> duration(0.25), duration(89.0), duration(5400), duration(200_000)
    ('0.2 s', '89 s', '1.5 h', '2.3 days')
    """
    for least, size, unit in ((172_800, 86_400, "days"), (5400, 3600, "h"), (120, 60, "min")):
        if seconds >= least:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 or not seconds else f"{seconds:.1f} s"


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
