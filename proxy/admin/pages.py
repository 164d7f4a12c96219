"""The pages of the read-only port as pure functions: values in, `Page` out.

`/metrics` is written by `proxy.metrics`. Nothing here knows sockets or the clock. Client ids are what peers
chose, so every one of them is escaped.
"""

import heapq
import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

from proxy.admin.http import Page
from quotas.engine import QuotaView

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"
CLIENTS_MAX: Final = 200
NAME_CHARACTERS_MAX: Final = 200
_STYLE: Final = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em;max-width:72em}table{border-collapse:collapse}"
    "td,th{padding:.2em 1em;text-align:right;border-bottom:1px solid #ccc}"
    "td:first-child,th:first-child{text-align:left}"
)
_LINKS: Final = (
    ("/metrics", "for Prometheus"),
    ("/clients", "who is over the quota now"),
    ("/healthz", "200 while the process answers"),
    ("/readyz", "200 when clients can be served; else 503 and why not"),
    ("/reassignments", "reassignments that are carried out in steps, as JSON"),
)


def index(version: str, enforcing: bool) -> Page:
    """List the pages."""
    links = "".join(f'<li><a href="{path}">{path}</a> {text}</li>' for path, text in _LINKS)
    state = (
        "Quotas are enforced."
        if enforcing
        else "Quotas are <strong>not enforced</strong>, only observed or off."
    )
    return _html("Sluice", f"<p>Sluice {escape(version)}. {state}</p><ul>{links}</ul>")


def health() -> Page:
    """Say that the process answers."""
    return Page(200, TEXT, b"ok\n")


def ready(reason: str) -> Page:
    """Say whether clients can be served; an empty reason means they can."""
    if reason:
        return Page(503, TEXT, f"not ready: {reason}\n".encode("utf-8", "backslashreplace"))
    return Page(200, TEXT, b"ready\n")


def document(content: Mapping[str, object]) -> Page:
    """Show JSON."""
    return Page(200, JSON, (json.dumps(content) + "\n").encode())


def missing() -> Page:
    """Say that there is no such page."""
    return Page(404, TEXT, b"no such page; / lists them\n")


def refusal(status: int, problem: str) -> Page:
    """Say what is wrong with a request."""
    return Page(status, TEXT, f"{problem}\n".encode())


def over_quota(views: Iterable[QuotaView]) -> list[QuotaView]:
    """Pick the clients that are over their quota now, the furthest over it first."""
    over = (
        view
        for view in views
        if view.quota is not None and (view.debt_bytes > 0 or view.byte_rate > view.quota)
    )
    return heapq.nlargest(CLIENTS_MAX, over, key=_excess)


def clients(over: list[QuotaView], known: int, enforcing: bool) -> Page:
    """Show the clients over their quota, for a human."""
    effect = "throttled" if enforcing else "not throttled: nothing is enforced"
    shown = f"the {CLIENTS_MAX} furthest over" if len(over) >= CLIENTS_MAX else str(len(over))
    text = f"<p>Over the quota now, and {effect}: {shown}, of {known} clients and directions.</p>"
    if not over:
        return _html("Clients", text)
    titles = (
        "Client id",
        "User",
        "Direction",
        "Rate, B/s",
        "Quota, B/s",
        "Rate / quota",
        "Debt, B",
        "Throttled, s",
    )
    head = "".join(f"<th>{title}</th>" for title in titles)
    return _html("Clients", f"{text}<table><tr>{head}</tr>{''.join(map(_line, over))}</table>")


def _excess(view: QuotaView) -> float:
    return view.byte_rate / view.quota if view.quota else 0.0


def _line(view: QuotaView) -> str:
    cells = (
        _name(view.client_id) or "(empty)",
        _name(view.user),
        view.type,
        f"{view.byte_rate:,.0f}",
        f"{view.quota or 0:,.0f}",
        f"{_excess(view):.2f}",
        f"{view.debt_bytes:,.0f}",
        f"{view.throttle_ms_total / 1000:,.1f}",
    )
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _name(text: str) -> str:
    return text if len(text) <= NAME_CHARACTERS_MAX else text[:NAME_CHARACTERS_MAX] + "…"


def _html(title: str, body: str) -> Page:
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{body}</body></html>\n"
    )
    return Page(200, HTML, page.encode("utf-8", "backslashreplace"))
