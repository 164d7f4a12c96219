"""The HTTP port for operators: /metrics /healthz /readyz, and two pages for humans.

    http          bytes <-> requests and responses; the fields of a query
    pages         the pages' text, and what they say of workers whose figures they lack: pure
    clients       /clients: pure too
    explanations  /v1: where clients' time goes
    state         /v1/status, /v1/events, and the switch of all enforcement
    site          where the figures come from, and which page shows what
    admission     who may have a page: tokens and certificates
    streams       the bytes of a connection, plain or within TLS
    server        asyncio streams, bounded; large documents row by row

The port changes nothing but that switch.
"""

from proxy.admin.admission import Admission
from proxy.admin.explanations import Explanations
from proxy.admin.http import Page, Request
from proxy.admin.pages import NoWorkersError
from proxy.admin.server import AdminServer
from proxy.admin.site import Figures, OwnFigures, Site, count_clients
from proxy.admin.state import State, status_of

__all__ = [
    "AdminServer",
    "Admission",
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
