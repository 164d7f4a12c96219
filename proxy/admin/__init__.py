"""The read-only HTTP port: /metrics /healthz /readyz, and two pages for humans.

    http      bytes <-> requests and responses
    pages     the pages' text: pure
    clients   /clients: pure too
    explanations  /v1: where clients' time goes, as JSON
    figures   where the figures come from
    site      which page shows what
    server    asyncio streams, bounded

The port changes nothing.
"""

from proxy.admin.explanations import Explanations
from proxy.admin.figures import Figures, OwnFigures, count_clients
from proxy.admin.http import Page, Request
from proxy.admin.server import AdminServer
from proxy.admin.site import Site

__all__ = ["AdminServer", "Explanations", "Figures", "OwnFigures", "Page", "Request", "Site", "count_clients"]
