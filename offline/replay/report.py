"""A replay's result as one self-contained HTML page: figures, latency by API beside the recording, and two curves."""

import html
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["page"]

_WIDTH: Final = 860
_HEIGHT: Final = 180
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}svg{background:#fafafa;border:1px solid #ddd}"
    ".a{stroke:#0a58ca}.b{stroke:#c2410c}path{fill:none;stroke-width:1.5}small{color:#666}"
)
_COLUMNS: Final = ("p50", "p90", "p99", "p99.9", "max")

Series = Sequence[tuple[float, int, int, float, float]]


def page(title: str, target: str, result: Mapping[str, Any], series: Series) -> str:
    """Write the page."""
    planned, requests, achieved = result["planned"], result["requests"], result["achieved"]
    figures = [
        ("requests planned", planned["requests"]),
        ("sent, answered", f"{requests['sent']}, {requests['answered']}"),
        (
            "requests/s planned, achieved",
            f"{planned['requests_per_second']}, {achieved['requests_per_second']}",
        ),
        ("connections", planned["connections"]),
        ("seconds, speed", f"{planned['seconds']}, × {result['speed']:g}"),
        ("bytes sent, received", f"{achieved['request_bytes']:,}, {achieved['response_bytes']:,}"),
        (
            "lost with a connection, unanswered",
            f"{requests['lost_with_connection']}, {requests['unanswered']}",
        ),
        ("dropped here, connect errors", f"{requests['dropped_here']}, {requests['connect_errors']}"),
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
        _curves("requests/s due (blue) and answered (red)", [(row[0], row[1], row[2]) for row in series]),
        _curves("latency in ms: p50 (blue) and p99 (red)", [(row[0], row[3], row[4]) for row in series]),
        "<p><small>Recorded is the broker's own time; a latency counts the way and its own lateness too.</small></p>",
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style>{''.join(body)}</html>\n"
    )


def _rows(figures: Sequence[tuple[str, object]]) -> str:
    cells = "".join(f"<tr><td>{name}</td><td>{html.escape(str(value))}</td></tr>" for name, value in figures)
    return f"<table>{cells}</table>"


def _spread(name: str, count: object, spread: Mapping[str, float] | None) -> str:
    values = (
        "".join(f"<td>{spread[column]:g}</td>" for column in _COLUMNS)
        if spread
        else "<td>–</td>" * len(_COLUMNS)
    )
    return f"<tr><td>{html.escape(name)}</td><td>{count}</td>{values}</tr>"


def _head() -> str:
    return "<tr><th></th><th>requests</th>" + "".join(f"<th>{column}</th>" for column in _COLUMNS) + "</tr>"


def _latencies(result: Mapping[str, Any]) -> str:
    rows = [_spread("all", result["requests"]["answered"], result["latency_ms"])]
    rows.append(_spread("recorded: the broker's time", "", result["recorded"]["upstream_ms"]))
    rows.append(_spread("how late the replay was itself", result["requests"]["sent"], result["late_ms"]))
    for name, found in result["apis"].items():
        rows.append(_spread(name, found["answered"], found["latency_ms"]))
        rows.append(_spread(f"{name}, recorded", "", found["recorded"]["upstream_ms"]))
    return f"<table>{_head()}{''.join(rows)}</table>"


def _throttles(result: Mapping[str, Any]) -> str:
    rows = []
    for name, found in (("all", result), *result["apis"].items()):
        now, then = found["throttle_ms"], found["recorded"]["throttle_ms"]
        rows.append(_spread(name, now["requests"], now["spread"]))
        rows.append(_spread(f"{name}, recorded", then["requests"], then["spread"]))
    return f"<table>{_head()}{''.join(rows)}</table>"


def _curves(title: str, points: Sequence[tuple[float, float, float]]) -> str:
    if len(points) < 2:
        return ""
    last = points[-1][0] or 1.0
    top = max(max(row[1], row[2]) for row in points) or 1.0

    def path(column: int) -> str:
        steps = (
            f"{row[0] / last * _WIDTH:.1f},{_HEIGHT - row[column] / top * (_HEIGHT - 10):.1f}"
            for row in points
        )
        return "M" + " L".join(steps)

    return (
        f"<p>{html.escape(title)}; top {top:g}, {last:g} s</p>"
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f'<path class="a" d="{path(1)}"/><path class="b" d="{path(2)}"/></svg>'
    )
