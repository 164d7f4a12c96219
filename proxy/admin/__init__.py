"""The HTTP port for operators: /metrics /healthz /readyz, and two pages for humans.

    http      bytes <-> requests and responses
    pages     the pages' text: pure
    clients   /clients: pure too
    explanations  /v1: where clients' time goes, as JSON
    state     /v1/status, /v1/events, and the switch of all enforcement
    query     the fields of a query
    missing   what pages say of workers whose figures they lack
    figures   where the figures come from
    site      which page shows what
    server    asyncio streams, bounded

The port changes nothing but that switch.
"""

from proxy.admin.explanations import Explanations
from proxy.admin.http import Page, Request
from proxy.admin.pages import NoWorkersError
from proxy.admin.server import AdminServer
from proxy.admin.site import Figures, OwnFigures, Site, count_clients
from proxy.admin.state import State, status_of

__all__ = [
    "AdminServer",
    "Explanations",
    "Figures",
    "NoWorkersError",
    "OwnFigures",
    "Page",
    "Request",
    "Site",
    "State",
    "count_clients",
    "status_of",
]
