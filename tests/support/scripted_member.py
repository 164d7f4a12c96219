"""A member that serves documents of /v1 which a test has written: the real admin port, in a thread, without a proxy."""

import asyncio
import copy
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Self
from urllib.parse import parse_qs

from proxy.admin import AdminServer, Admission, Page, Request
from tests.support.admin_papers import AdminPapers

HOST: Final = "127.0.0.1"
_PATHS: Final = (
    "/v1/status",
    "/v1/fleet",
    "/v1/brokers",
    "/v1/capacities",
    "/v1/clients",
    "/v1/client",
    "/v1/rules",
    "/v1/events",
    "/fleet",
    "/reassignments",
)
_START_SECONDS_MAX: Final = 10.0
_Document = dict[str, Any]


def times(**parts: float) -> _Document:
    """Return the parts of a time; the rest is idle."""
    found = dict.fromkeys(("held", "muted", "sluice", "broker", "poll", "client"), 0.0) | parts
    return {**found, "idle": round(1 - sum(found.values()), 6)}


def row(client_id: str, user: str = "ANONYMOUS", *, connections: int = 1, **fields: Any) -> _Document:
    """Return a row of /v1/clients."""
    own = {"time": times(), "rule": None, "quotas": [], **fields}
    return {
        "user": user,
        "client_id": client_id,
        "connections": connections,
        "time_of_all_connections": own["time"],
        **own,
    }


def rule(key: str = "producer_byte_rate", value: float = 2_000_000, **fields: Any) -> _Document:
    """Return what a client waits for."""
    return {
        "kind": "produce",
        "key": key,
        "name": "",
        "entity": "client-id <default>",
        "value": value,
        "setting": "",
        "set_by": "User:ops from 10.0.0.4",
        "set_at": "2026-11-23T10:31:00Z",
        "enforced": True,
        **fields,
    }


class ScriptedMember:
    """Serves `documents` by path; what has none is 404. A test may change them at any time.

    Args:
        name: in the fleet.
        port: 0 for a free one.
        papers: with these it speaks TLS and asks for a token.
        client_auth: with papers, whether it asks for a certificate.
        tls: with papers, whether it speaks TLS.
    """

    def __init__(
        self,
        name: str = "gw-1",
        port: int = 0,
        papers: AdminPapers | None = None,
        *,
        client_auth: str = "none",
        tls: bool = True,
    ) -> None:
        self.name = name
        self.port = port
        self._client_auth = client_auth
        self.certificates = None if papers is None else papers.certificates(client_auth, token=True, tls=tls)
        self.asked: dict[str, int] = dict.fromkeys(_PATHS, 0)
        self.queries: dict[str, str] = {}  # the last of each path
        self.bodies: dict[str, bytes] = {}  # in place of a document
        self.unavailable: dict[str, _Document] = {}  # likewise, with status 503
        self.documents: dict[str, _Document] = {}
        self.details: dict[tuple[str, str], _Document] = {}
        self.reset()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member {name}", daemon=True)

    def reset(self) -> None:
        """Serve the documents of a member without clients."""
        self.bodies.clear()
        self.unavailable.clear()
        self.details = {}
        self.documents = {
            "/v1/status": {"version": "0.1.0", "member": self.name, "mode": "enforce"},
            "/v1/fleet": {"member": False},
            "/v1/brokers": {"brokers": [{"broker": 1, "timed": 100, "median_ms": 1.5, "p99_ms": 4.0}]},
            "/v1/capacities": {"capacities": []},
            "/v1/clients": {"window_seconds": 60, "clients_total": 0, "clients": []},
            "/v1/rules": {"rules": []},
            "/v1/events": {"run": "a", "last": 0, "events": []},
        }

    @property
    def admin(self) -> str:
        """The admin port's URL."""
        secure = self.certificates is not None and self.certificates.admin is not None
        return f"{'https' if secure else 'http'}://{HOST}:{self.port}"

    def set_clients(self, *rows: _Document) -> None:
        """Replace the clients, and make a /v1/client document of each."""
        listed = {"window_seconds": 60, "clients_total": len(rows), "clients": list(rows)}
        self.documents["/v1/clients"] = listed
        self.details = {(one["user"], one["client_id"]): _detail(one) for one in rows}

    def freeze(self) -> None:
        """Accept connections from now on, and respond to nothing."""
        self._loop.call_soon_threadsafe(self._thawed.clear)

    def thaw(self) -> None:
        """Respond again."""
        self._loop.call_soon_threadsafe(self._thawed.set)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_START_SECONDS_MAX), "the scripted member has not started"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_START_SECONDS_MAX)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._ended, self._thawed = asyncio.Event(), asyncio.Event()
        self._thawed.set()
        handlers = {path: self._handler(path) for path in _PATHS}
        server = AdminServer(handlers)
        if self.certificates is not None:
            admission = Admission(self.certificates.admin_tokens, self._client_auth)
            server = AdminServer(handlers, admission=admission, tls=self.certificates.admin_tls)
        self._http = await asyncio.start_server(server.serve, HOST, self.port, limit=8192)
        self.port = self._http.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ended.wait()
        self._http.close()
        await server.close()

    def _handler(self, path: str) -> Callable[[Request], Any]:
        async def handle(request: Request) -> Page:
            self.asked[path] += 1
            self.queries[path] = request.query
            await self._thawed.wait()
            if path in self.unavailable:
                return Page(503, "application/json", json.dumps(self.unavailable[path]).encode())
            if path in self.bodies:
                return Page(200, "application/json", self.bodies[path])
            found = self._find(path, request)
            if found is None:
                no_page = b"no such page; / lists them\n"
                missing = b'{"error": "not seen"}\n' if path == "/v1/client" else no_page
                return Page(404, "text/plain", missing)
            return Page(200, "application/json", json.dumps(found).encode())

        return handle

    def _find(self, path: str, request: Request) -> Mapping[str, Any] | None:
        query = {name: values[0] for name, values in parse_qs(request.query, keep_blank_values=True).items()}
        if path == "/v1/client":
            return self.details.get((query.get("user", ""), query.get("client_id", "")))
        found = self.documents.get(path)
        if found is not None and path == "/v1/clients" and "user" in query:
            rows = [one for one in found["clients"] if one["user"] == query["user"]]
            found = {**found, "clients": rows, "clients_total": len(rows)}
        if found is not None and path == "/v1/events":
            after = int(query.get("after", "0"))
            found = {**found, "events": [one for one in found["events"] if one["id"] > after]}
        return copy.copy(found)


def _detail(one: _Document) -> _Document:
    """Return the document of one client, made of its row."""
    own = {"user": one["user"], "client_id": one["client_id"], "rate": 2_000_000.0}
    waited = one["time"]["held"] + one["time"]["muted"]
    connection = {"peer": "10.0.0.7:51234", "broker": 1, "seconds": 72.5, "time": one["time"]}
    connection |= {"library": "apache-kafka-java 4.4.0", "batch_bytes": 16_384, "in_flight": 2}
    return {
        **one,
        "window_seconds": 60,
        "sentence": f"{one['client_id']} waited {waited:.0%} of the last minute.",
        "neighbours": [own] if one["rule"] else [],
        "broker": {"broker": 1, "timed": 100, "median_ms": 1.5, "p99_ms": 4.0},
        "broker_ms_per_request": 1.7,
        "connections_total": one["connections"],
        "connections": [connection],
    }
