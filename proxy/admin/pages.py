"""The small pages of the admin port. Pure: values in, `Page` out.

`/metrics` is written by `proxy.metrics.exposition`, `/clients` by `clients`. Nothing here knows sockets or the clock.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from commandline.amounts import printable
from proxy.admin.http import Page
from proxy.explain.documents import FleetDocument, FleetMember, Missing

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"
_STYLE: Final = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em;max-width:72em}table{border-collapse:collapse}"
    "td,th{padding:.2em 1em;text-align:right;border-bottom:1px solid #ccc}"
    "td:first-child,th:first-child{text-align:left}"
)
_LINKS: Final = (
    ("/metrics", "for Prometheus"),
    ("/clients", "all clients: their rates and quotas"),
    ("/v1/clients", "where all clients' time goes, as JSON"),
    ("/v1/status", "what runs, and whether quotas are enforced, as JSON"),
    ("/v1/events", "what has happened, as JSON"),
    ("/healthz", "200 while the process responds"),
    ("/readyz", "200 when clients can be served; else 503 and why not"),
    ("/reassignments", "reassignments that are carried out in steps, as JSON"),
    ("/fleet", "the members of the fleet and their shares, as JSON"),
)


def index(version: str, enforcing: bool, *notices: str) -> Page:
    """Return the page at /, with links to all pages.

    Args:
        notices: warnings to show on top; "" for none.
    """
    links = "".join(f'<li><a href="{path}">{path}</a> {text}</li>' for path, text in _LINKS)
    state = (
        "Quotas are enforced."
        if enforcing
        else "Quotas are <strong>not enforced</strong>, only observed or off."
    )
    warnings = "".join(map(strong, notices))
    return html("Sluice", f"{warnings}<p>Sluice {escape(version)}. {state}</p><ul>{links}</ul>")


def strong(notice: str) -> str:
    """Return a warning as an HTML paragraph in bold; "" if it is empty."""
    return f"<p><strong>{escape(printable(notice))}</strong></p>" if notice else ""


def ready(reason: str) -> Page:
    """Return /readyz: status 200 if `reason` is empty, else 503 with the reason why clients cannot be served."""
    if reason:
        return Page(503, TEXT, f"not ready: {reason}\n".encode("utf-8", "backslashreplace"))
    return Page(200, TEXT, b"ready\n")


def document(content: Mapping[str, object]) -> Page:
    """Return a page of status 200 with this content as JSON."""
    return Page(200, JSON, (json.dumps(content) + "\n").encode())


def refusal(status: int, problem: str) -> Page:
    """Return the page of an error status, with the problem as its text."""
    return Page(status, TEXT, f"{problem}\n".encode())


def html(title: str, body: str) -> Page:
    """Return a page of HTML; the caller has escaped names of peers in `body`."""
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{body}</body></html>\n"
    )
    return Page(200, HTML, page.encode("utf-8", "backslashreplace"))


# ----------------------------------------------------------------------------------------------------
# What pages say of worker processes whose figures they lack. Pure.
#
# A page that lacks some says which; where all are missing there is no page, and the response is 503.


class NoWorkersError(Exception):
    """No worker process has responded."""

    def __init__(self, missing: Sequence[Missing]) -> None:
        self.missing = tuple(missing)
        super().__init__("no worker process responds")


def missing_text(missing: Sequence[Missing]) -> str:
    """Return one line on the workers that a page lacks, for people; "" if it lacks none.

    >>> missing_text([Missing(2, "no response within 4 s")])
    'worker 2 is missing (no response within 4 s): clients connected to it are not shown'
    """
    if not missing:
        return ""
    problems = {one.problem for one in missing}
    if len(problems) == 1:
        numbers = ", ".join(str(one.worker) for one in missing)
        named = f"{numbers} {'is' if len(missing) == 1 else 'are'} missing ({problems.pop()})"
    else:
        named = f"{', '.join(f'{one.worker} ({one.problem})' for one in missing)} are missing"
    noun, them = ("worker", "it") if len(missing) == 1 else ("workers", "them")
    return f"{noun} {named}: clients connected to {them} are not shown"


# ----------------------------------------------------------------------------------------------------
# `/v1/fleet`: the members of a fleet with their admin ports, from the document of `/fleet`. Pure.


SILENT_SECONDS_MAX: Final = 5.0  # members report every second


def fleet_document(state: Mapping[str, Any] | None, missing: tuple[Missing, ...] = ()) -> FleetDocument:
    """Return the document of `/v1/fleet`.

    Args:
        state: the document of `/fleet`; None if this process is no member of a fleet.
        missing: the worker processes without a response.

    >>> fleet_document(None).member
    False
    """
    if state is None:
        return FleetDocument(member=False, missing=missing)
    return FleetDocument(
        member=True,
        name=state["name"],
        holder=state["holder"] or "",
        problem=state["problem"],
        members=tuple(_member(place, member, state) for place, member in enumerate(state["members"])),
        disagreements=tuple(state["disagreements"]),
        missing=missing,
    )


def _member(place: int, member: Mapping[str, Any], state: Mapping[str, Any]) -> FleetMember:
    said = ("name", "run", "address", "admin", "version", "mode", "silent_seconds")
    return FleetMember(
        **{name: member[name] for name in said if name in member},
        share=state["default_share"] if member["run"] == state["run"] else None,
        shares={key: shares[place] for key, shares in state["member_shares"].items()},
        reachable=member["silent_seconds"] <= SILENT_SECONDS_MAX,
    )
