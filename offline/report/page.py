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
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    return template.render(report=report, figures={way.name: _figures(way) for way in report.directions})


def _figures(way: Direction) -> dict[str, Markup]:
    made = {
        "demand": (plots.demand, f"{way.name}: demand over time"),
        "heaviest": (plots.heaviest, f"{way.name}: the heaviest clients"),
        "curve": (plots.curve, f"{way.name}: default quota, clients throttled, peak load"),
        "before_after": (plots.before_after, f"{way.name}: busiest broker before and after"),
        "day": (plots.day, f"{way.name}: shape of the day"),
    }
    # Matplotlib's own text: client ids in it are escaped by its SVG writer.
    return {name: Markup(plots.svg(draw(way), title=title)) for name, (draw, title) in made.items()}
