"""A replay's result as one self-contained HTML page: figures, latency and bytes by API, and pictures."""

import html
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["fetched_more", "page", "shown"]

_MORE: Final = 1.1  # times the recorded bytes: fields around the records differ by a little
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222;"
    "background:#fff}h2{margin-top:2em}table{border-collapse:collapse;margin:1em 0}"
    "td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:right;font-variant-numeric:tabular-nums}"
    "td:first-child,th:first-child{text-align:left}.then td{color:#777;padding-left:.8em}"
    ".then td:first-child{padding-left:2em}figure{margin:1.5em 0}"
    "svg{width:100%;height:auto;font:12px system-ui,sans-serif}"
    "line{stroke:#e5e5e5}text{fill:#666}path{fill:none;stroke-width:1.5;stroke-linecap:round}"
    "path.a{stroke:#0a58ca}path.b{stroke:#c2410c}span.a{color:#0a58ca}span.b{color:#c2410c}small{color:#666}"
)
_COLUMNS: Final = ("p50", "p90", "p99", "p99.9", "max")
_NOTE: Final = (
    "Percentiles are over all requests that expect a response. A missing response counts as longer than any, and "
    "a curve has a gap there. Recorded is the broker's own time; a latency also has the time on the way, and how late "
    "the replay was itself."
)


def page(title: str, target: str, result: Mapping[str, Any], pictures: Sequence[str]) -> str:
    """Write the page; pictures are HTML figures."""
    planned, requests, achieved = result["planned"], result["requests"], result["achieved"]
    figures = [
        ("requests planned", planned["requests"]),
        ("sent / with a response", f"{requests['sent']:,} / {requests['answered']:,}"),
        (
            "requests/s planned / achieved",
            f"{planned['requests_per_second']:g} / {achieved['requests_per_second']:g}",
        ),
        ("connections", planned["connections"]),
        ("seconds / speed", f"{planned['seconds']:g} / × {result['speed']:g}"),
        (
            "lost with a connection / without a response",
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
        "<h2>Bytes</h2>",
        _bytes(result),
        f"<p>{html.escape(more)}</p>" if (more := fetched_more(result)) else "",
        "<h2>Over time</h2>",
        *pictures,
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
    """Format a time in ms; None: no response in time."""
    return "no response" if value is None else f"{value:g}"


def _spread(name: str, count: object, spread: Mapping[str, float | None] | None, kind: str = "") -> str:
    """One row of the table; of the kind `then` for recorded figures."""
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


def _bytes(result: Mapping[str, Any]) -> str:
    """The bytes of requests with a response, and of the responses."""
    rows = ["<tr><th></th><th>requests</th><th>sent</th><th>received</th></tr>"]
    for name, found in (("all", result), *result["apis"].items()):
        then = found["recorded"]
        count = result["requests"]["answered"] if name == "all" else found["answered"]
        rows.append(
            f"<tr><td>{html.escape(name)}</td><td>{count:,}</td><td>{found['request_bytes']:,}</td>"
            f"<td>{found['response_bytes']:,}</td></tr>"
            f'<tr class="then"><td>recorded</td><td></td><td>{then["request_bytes"]:,}</td>'
            f"<td>{then['response_bytes']:,}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"


def fetched_more(result: Mapping[str, Any]) -> str:
    """A sentence if Fetches brought clearly more bytes than recorded; else ""."""
    found = result["fetched"]
    if found["bytes"] <= _MORE * found["recorded_bytes"]:
        return ""
    return (
        f"Fetches brought {found['bytes']:,} bytes, and {found['recorded_bytes']:,} when they were recorded: "
        f"{found['larger_than_recorded']:,} of {found['answers']:,} responses were larger. A broker responds with at "
        "least one whole batch, and the target's batches are larger than what these Fetches brought. Topics that "
        "--create makes have small batches."
    )
