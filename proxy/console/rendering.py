"""Templates to HTML. Everything that comes from a member or a client is escaped.

Two nets: jinja2 escapes markup in every value, and control characters, line breaks and marks of direction are written
as in a terminal (`commandline.amounts`) before that. No template marks a value as safe.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from commandline.amounts import duration, printable, size
from proxy.console import drawing
from proxy.console.tables import SHOWS, WINDOWS
from proxy.console.views import View
from proxy.explain.parts import NAMES
from proxy.v1.cause import PART_NAMES, amount_of, limit_text

NAME_CHARACTERS_MAX: Final = 80
_HERE: Final = Path(__file__).parent


class Renderer:
    """Renders pages and panels."""

    def __init__(self) -> None:
        environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_finalize,
        )
        environment.filters.update(
            name=shorten,
            percent=percent,
            duration=duration,
            size=size,
            ms=milliseconds,
            clock=clock,
            when=when,
            stamp=stamp,
        )
        environment.globals.update(
            amount=amount_of,
            limit=limit_text,
            part_names=PART_NAMES,
            order=[(name, NAMES.index(name)) for name in drawing.ORDER],
            windows=WINDOWS,
            shows=SHOWS,
            spark=drawing.spark,
            values_spark=drawing.values_spark,
            stack=drawing.stack,
            timeline=drawing.timeline,
        )
        self._environment = environment

    def page(self, view: View) -> str:
        """Return a whole document."""
        return self._environment.get_template("page.html").render(
            **view.values, view=view, bodies=self.panels(view)
        )

    def panels(self, view: View) -> dict[str, str]:
        """Return the HTML of each panel."""
        return {
            name: Markup(
                self._environment.get_template(f"panels/{name}.html").render(**view.values, view=view)
            )
            for name in (*view.panels, *view.side)
        }

    def text(self, template: str, **values: Any) -> str:
        """Return another document."""
        return self._environment.get_template(template).render(**values)


def _finalize(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def shorten(text: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """Return a name of bounded length.

    >>> shorten("web-1"), len(shorten("a" * 100))
    ('web-1', 80)
    """
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def percent(part: float) -> str:
    """Return a part in percent.

    >>> percent(0.624), percent(0.004), percent(0.0), percent(0.998), percent(12.3)
    ('62 %', '<1 %', '0 %', '>99 %', '1230 %')
    """
    if 0.995 <= part < 1:
        return ">99 %"
    return "<1 %" if 0 < part < 0.005 else f"{part * 100:.0f} %"


def milliseconds(ms: float) -> str:
    """Return a time.

    >>> milliseconds(0.42), milliseconds(3.14), milliseconds(140.2), milliseconds(1900)
    ('0.42 ms', '3.1 ms', '140 ms', '1.9 s')
    """
    if ms >= 1000:
        return duration(ms / 1000)
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms" if ms >= 1 else f"{ms:.2f} ms"


def clock(at: datetime) -> str:
    """Return a time of day, UTC."""
    return at.astimezone(UTC).strftime("%H:%M:%S")


def when(at: str) -> str:
    """Return the time of day of ISO 8601; other text as it is.

    >>> when("2026-11-23T03:31:02.125Z"), when("soon")
    ('03:31:02', 'soon')
    """
    try:
        return clock(datetime.fromisoformat(at))
    except ValueError:
        return at


def stamp(at: str) -> str:
    """Return date and time of ISO 8601, to the second; other text as it is.

    >>> stamp("2026-11-23T03:31:02.125Z"), stamp("soon")
    ('2026-11-23 03:31:02', 'soon')
    """
    try:
        return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return at
