"""Templates to HTML. Everything that comes from a member or a client is escaped.

Two nets: jinja2 escapes markup in every value, and control characters, line breaks and marks of direction are written
as in a terminal (`commandline.amounts`) before that. No template marks a value as safe.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from commandline.amounts import duration, printable, rate, size
from console.board import Sample
from console.causes import limit_text
from console.merging import capacity_text, class_text
from console.views import SHOWS, WINDOWS, View
from proxy.explain.parts import BROKER, CLIENT, HELD, MUTED, NAMES, SLUICE, amount

# ----------------------------------------------------------------------------------------------------
# Numbers as paths of SVG. Pure; a path is made of numbers alone.


SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 24
BAR_WIDTH: Final = 100
# From the bottom of a stacked timeline: what the client waits for first, then what is its own, idle on top.
ORDER: Final = ("muted", "held", "client", "sluice", "broker", "poll", "idle")
_PART_NAMES: Final = {
    "held": "held before its payload is read",
    "muted": "muted for a quota",
    "client": "on the client",
    "sluice": "in Sluice",
    "broker": "at the broker",
    "poll": "waits for records by its own wish",
    "idle": "asks for nothing",
}
_PARTS: Final = {"broker": (BROKER,), "client": (CLIENT,), "sluice": (SLUICE,)}


def spark(samples: Sequence[Sample], kind: str = "quota") -> str:
    """Return the SVG path of a sparkline: the share of the time that one cause took, in each sample.

    It fills a box of SPARK_WIDTH x SPARK_HEIGHT.

    Args:
        samples: shares of the time (0 to 1) in the order of `NAMES`; None is a gap.
        kind: `broker`, `client` or `sluice`; any other kind is the wait for quotas.

    >>> spark([None, (0, 1, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0, 1)])
    'M40 24V0H80V24H120V24Z'
    """
    parts = _PARTS.get(kind, (HELD, MUTED))
    return values_spark([None if one is None else sum(one[part] for part in parts) for one in samples], 1.0)


def values_spark(values: Sequence[float | None], top: float) -> str:
    """Return the SVG path of the area under a curve of values; the value `top` has the full height, None is a gap."""
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
    """Return name, start and width of each part of a client's time in a stacked bar of BAR_WIDTH.

    Idle and empty parts are left out. `times` are shares of the time (0 to 1) in the order of `NAMES`.

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
    """Return name and SVG path of each part of a client's time: stacked columns, one for each sample, without idle.

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


NAME_CHARACTERS_MAX: Final = 80
_HERE: Final = Path(__file__).parent


class Renderer:
    """Renders views as HTML from the templates."""

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
            rate=rate,
            ms=milliseconds,
            clock=clock,
            when=when,
            stamp=stamp,
        )
        environment.globals.update(
            amount=amount,
            capacity_text=capacity_text,
            class_text=class_text,
            limit=limit_text,
            part_names=_PART_NAMES,
            order=[(name, NAMES.index(name)) for name in ORDER],
            windows=WINDOWS,
            shows=SHOWS,
            spark=spark,
            values_spark=values_spark,
            stack=stack,
            timeline=timeline,
        )
        self._environment = environment

    def page(self, view: View) -> str:
        """Return the whole HTML document of a view."""
        return self._environment.get_template("page.html").render(
            **view.values, view=view, bodies=self.panels(view)
        )

    def panels(self, view: View) -> dict[str, str]:
        """Return the HTML of each panel (section) of a view, by name; a page in a browser is updated panel by panel."""
        return {
            name: Markup(
                self._environment.get_template(f"panels/{name}.html").render(**view.values, view=view)
            )
            for name in (*view.panels, *view.side)
        }

    def text(self, template: str, **values: Any) -> str:
        """Render another template, such as the login page."""
        return self._environment.get_template(template).render(**values)


def _finalize(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def shorten(text: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """Return a name of at most `characters_max` characters; a cut one ends with an ellipsis.

    >>> shorten("web-1"), len(shorten("a" * 100))
    ('web-1', 80)
    """
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def percent(part: float) -> str:
    """Format a share (1 is the whole) in percent.

    >>> percent(0.624), percent(0.004), percent(0.0), percent(0.998), percent(12.3)
    ('62 %', '<1 %', '0 %', '>99 %', '1230 %')
    """
    if 0.995 <= part < 1:
        return ">99 %"
    return "<1 %" if 0 < part < 0.005 else f"{part * 100:.0f} %"


def milliseconds(ms: float) -> str:
    """Format a time in ms, in ms or a larger unit.

    >>> milliseconds(0.42), milliseconds(3.14), milliseconds(140.2), milliseconds(1900)
    ('0.42 ms', '3.1 ms', '140 ms', '1.9 s')
    """
    if ms >= 1000:
        return duration(ms / 1000)
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms" if ms >= 1 else f"{ms:.2f} ms"


def clock(at: datetime) -> str:
    """Format a time of day, UTC, to the second."""
    return at.astimezone(UTC).strftime("%H:%M:%S")


def when(at: str) -> str:
    """Return the time of day (UTC) in ISO 8601 text; other text is returned unchanged.

    >>> when("2026-11-23T03:31:02.125Z"), when("soon")
    ('03:31:02', 'soon')
    """
    try:
        return clock(datetime.fromisoformat(at))
    except ValueError:
        return at


def stamp(at: str) -> str:
    """Return date and time (UTC) of ISO 8601 text, to the second; other text is returned unchanged.

    >>> stamp("2026-11-23T03:31:02.125Z"), stamp("soon")
    ('2026-11-23 03:31:02', 'soon')
    """
    try:
        return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return at
