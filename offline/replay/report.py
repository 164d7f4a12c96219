"""A replay's result as one self-contained HTML page: figures, latency by API beside the recording, and two curves."""

import html
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["page", "shown"]

_WIDTH: Final = 860
_HEIGHT: Final = 180
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222;"
    "background:#fff}h2{margin-top:2em}table{border-collapse:collapse;margin:1em 0}"
    "td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:right;font-variant-numeric:tabular-nums}"
    "td:first-child,th:first-child{text-align:left}.then td{color:#777;padding-left:.8em}"
    ".then td:first-child{padding-left:2em}svg{width:100%;font:12px system-ui,sans-serif}figure{margin:1.5em 0}"
    "line{stroke:#e5e5e5}text{fill:#666}path{fill:none;stroke-width:1.5}"
    "path.a{stroke:#0a58ca}path.b{stroke:#c2410c}span.a{color:#0a58ca}span.b{color:#c2410c}small{color:#666}"
)
_COLUMNS: Final = ("p50", "p90", "p99", "p99.9", "max")
_NOTE: Final = (
    "Percentiles are over all requests that wanted an answer; what never came is longer than any, and a curve has a "
    "gap there. Recorded is the broker's own time; a latency counts the way and its own lateness too."
)

Series = Sequence[tuple[float, float, float, float | None, float | None]]


def page(title: str, target: str, result: Mapping[str, Any], series: Series) -> str:
    """Write the page."""
    planned, requests, achieved = result["planned"], result["requests"], result["achieved"]
    recorded = result["recorded"]
    figures = [
        ("requests planned", planned["requests"]),
        ("sent / answered", f"{requests['sent']:,} / {requests['answered']:,}"),
        (
            "requests/s planned / achieved",
            f"{planned['requests_per_second']:g} / {achieved['requests_per_second']:g}",
        ),
        ("connections", planned["connections"]),
        ("seconds / speed", f"{planned['seconds']:g} / × {result['speed']:g}"),
        ("bytes sent / received", f"{achieved['request_bytes']:,} / {achieved['response_bytes']:,}"),
        ("recorded of those answered", f"{recorded['request_bytes']:,} / {recorded['response_bytes']:,}"),
        (
            "lost with a connection / unanswered",
            f"{requests['lost_with_connection']:,} / {requests['unanswered']:,}",
        ),
        (
            "never sent: no room here / no connection",
            f"{requests['dropped_here']:,} / {requests['never_connected']:,}",
        ),
        (
            "left out: partitions / bytes / requests",
            f"{requests['partitions_left_out']:,} / {requests['bytes_left_out']:,} / {requests['nothing_left_of']:,}",
        ),
        ("not reached before it was stopped", f"{requests['not_reached']:,}"),
        ("errors by Kafka's code", requests["errors"] or "none"),
    ]
    body = [
        f"<h1>{html.escape(title)}</h1><p>against <b>{html.escape(target)}</b></p>",
        _rows(figures),
        "<h2>Latency, ms from when a request was due</h2>",
        _latencies(result),
        "<h2>Throttle time, ms</h2>",
        _throttles(result),
        "<h2>Over time</h2>",
        _curves("Requests/s", ("due", "answered"), [(row[0], row[1], row[2]) for row in series]),
        _curves("Latency, ms", ("p50", "p99"), [(row[0], row[3], row[4]) for row in series]),
        f"<p><small>{_NOTE}</small></p>",
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style>{''.join(body)}</html>\n"
    )


def _rows(figures: Sequence[tuple[str, object]]) -> str:
    cells = "".join(f"<tr><td>{name}</td><td>{html.escape(str(value))}</td></tr>" for name, value in figures)
    return f"<table>{cells}</table>"


def shown(value: float | None) -> str:
    """A time in ms; None: longer than was waited for."""
    return "no answer" if value is None else f"{value:g}"


def _spread(name: str, count: object, spread: Mapping[str, float | None] | None, kind: str = "") -> str:
    """One row; of the kind `then` where it is the recording's."""
    values = "".join(f"<td>{shown(spread[column]) if spread else '–'}</td>" for column in _COLUMNS)
    return f'<tr class="{kind}"><td>{html.escape(name)}</td><td>{count}</td>{values}</tr>'


def _head() -> str:
    return "<tr><th></th><th>requests</th>" + "".join(f"<th>{column}</th>" for column in _COLUMNS) + "</tr>"


def _latencies(result: Mapping[str, Any]) -> str:
    rows = [_spread("all", result["requests"]["answered"], result["latency_ms"])]
    rows.append(_spread("recorded: the broker's time", "", result["recorded"]["upstream_ms"], "then"))
    rows.append(_spread("how late the replay was itself", result["requests"]["sent"], result["late_ms"]))
    for name, found in result["apis"].items():
        rows.append(_spread(name, found["answered"], found["latency_ms"]))
        rows.append(_spread("recorded", "", found["recorded"]["upstream_ms"], "then"))
    return f"<table>{_head()}{''.join(rows)}</table>"


def _throttles(result: Mapping[str, Any]) -> str:
    rows = []
    for name, found in (("all", result), *result["apis"].items()):
        now, then = found["throttle_ms"], found["recorded"]["throttle_ms"]
        if name != "all" and not now["requests"] and not then["requests"]:
            continue
        rows.append(_spread(name, now["requests"], now["spread"]))
        rows.append(_spread("recorded", then["requests"], then["spread"], "then"))
    return f"<table>{_head()}{''.join(rows)}</table>"


def _curves(
    title: str, names: tuple[str, str], points: Sequence[tuple[float, float | None, float | None]]
) -> str:
    """Two curves over time, with axes and a legend, and gaps for None; nothing where there are no two points."""
    if len(points) < 2:
        return ""
    last = points[-1][0] or 1.0
    top = max((value for row in points for value in row[1:] if value is not None), default=0.0) or 1.0

    def path(column: int) -> str:
        steps = []
        pen = "M"
        for row in points:
            value = row[column]
            if value is not None:
                steps.append(f"{pen}{row[0] / last * _WIDTH:.1f},{_HEIGHT * (1 - value / top):.1f}")
            pen = "M" if value is None else "L"
        return " ".join(steps)

    marks = []
    for share in (0.0, 0.5, 1.0):
        x, y = share * _WIDTH, _HEIGHT * (1 - share)
        marks.append(f'<line x1="0" x2="{_WIDTH}" y1="{y:g}" y2="{y:g}"/>')
        marks.append(f'<text x="-8" y="{y + 4:g}" text-anchor="end">{share * top:.3g}</text>')
        marks.append(f'<text x="{x:g}" y="{_HEIGHT + 20}" text-anchor="middle">{share * last:.3g} s</text>')
    legend = f'<span class="a">━</span> {names[0]} &nbsp; <span class="b">━</span> {names[1]}'
    return (
        f"<figure><figcaption>{html.escape(title)}: {legend}</figcaption>"
        f'<svg viewBox="-60 -10 {_WIDTH + 90} {_HEIGHT + 40}" role="img" aria-label="{html.escape(title)}">'
        f'{"".join(marks)}<path class="a" d="{path(1)}"/><path class="b" d="{path(2)}"/></svg></figure>'
    )
