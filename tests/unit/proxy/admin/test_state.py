"""/v1/status, /v1/events and the switch of all enforcement: what is served, and to which requests."""

import asyncio
import ipaddress
import json
from collections import Counter
from typing import Any

import pytest

from proxy.admin import Request, State
from proxy.admin.http import RefusedError, parse
from proxy.config import AdminOptions, Network
from proxy.control.enforcement import Enforcement
from proxy.events import Events
from proxy.events.kinds import BrokerLost
from proxy.explain.documents import EVENTS_MAX, Missing, StatusDocument
from proxy.system.stats import Stats
from tests.support.documents import as_json

MISSING = (Missing(2, "it does not run"),)
STATUS = StatusDocument(
    version="1.2.3", member="gw-1", mode="enforce", policy="kip13", scope="broker", workers=2, missing=MISSING
)


class Rig:
    """The pages of one process."""

    def __init__(self, actions_from: tuple[Network, ...] = AdminOptions().actions_from) -> None:
        self.events = Events(Counter(), lambda: 0.0)
        self.switch = Enforcement(None, lambda _: None, Stats(), self.events.tell)
        self.state = State(lambda: STATUS, self.events, self.switch, actions_from)

    def get(self, target: str) -> dict[str, Any]:
        request = parse(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        page = asyncio.run(self._call(self.state.handlers()[request.path], request))
        found: dict[str, Any] = json.loads(page)
        return found

    def post(self, query: str, *headers: str, peer: str = "127.0.0.1") -> dict[str, Any]:
        lines = "".join(f"{header}\r\n" for header in ("Host: localhost", *headers))
        request = parse(f"POST /v1/enforcement?{query} HTTP/1.1\r\n{lines}\r\n".encode())
        handler = self.state.actions()["/v1/enforcement"]
        found: dict[str, Any] = json.loads(asyncio.run(self._call(handler, request._replace(peer=peer))))
        return found

    async def _call(self, handler: Any, request: Request) -> bytes:
        page = await handler(request)
        assert (page.status, page.content_type) == (200, "application/json")
        body: bytes = page.body
        return body


ACTION = "Sluice-Action: enforcement"


def test_status_says_what_runs() -> None:
    found = Rig().get("/v1/status")
    assert found["started_at"].endswith("Z")
    assert found == as_json(STATUS) | {"started_at": found["started_at"]}


def test_events_are_paged_by_id() -> None:
    rig = Rig()
    assert rig.get("/v1/events")["events"] == []
    for broker in range(5):
        rig.events.tell(BrokerLost(broker))
    found = rig.get("/v1/events?after=2&limit=2")
    assert [one["broker"] for one in found["events"]] == [2, 3]
    assert (found["last"], found["lost"], found["left_out"]) == (5, 0, {})
    assert found["run"] == rig.events.run
    assert found["missing"] == [{"worker": 2, "problem": "it does not run"}]
    assert [one["id"] for one in rig.get("/v1/events?limit=1")["events"]] == [5]


@pytest.mark.parametrize(
    "query",
    [
        *("after=x", "after=-1", "after=", "after=1&after=2", "other=1", "after=" + "9" * 400),
        *("limit=0", f"limit={EVENTS_MAX + 1}", "limit=²"),
    ],
)
def test_wrong_query_of_events_is_refused(query: str) -> None:
    request = Request("GET", "/v1/events", "", False, query=query)
    with pytest.raises(RefusedError) as caught:
        asyncio.run(Rig().state.handlers()["/v1/events"](request))  # type: ignore[arg-type]
    assert caught.value.status == 400


def test_switch_is_taken_with_its_reason_and_where_it_came_from_and_it_is_said_that_it_is_not_kept() -> None:
    rig = Rig()
    found = rig.post("enforcing=false&reason=on+fire&by=ops", ACTION)
    assert (found["changed"], found["kept"]) == (True, False)
    assert found["problem"] == "[state] directory is not configured"
    assert found["switched"].pop("at").endswith("Z")
    assert found["switched"] == {"enforcing": False, "by": "ops", "from": "127.0.0.1", "reason": "on fire"}
    assert not rig.switch.on
    assert not rig.post("enforcing=false", ACTION)["changed"]


@pytest.mark.parametrize(
    ("headers", "peer"),
    [
        ((), "127.0.0.1"),
        (("Sluice-Action: 1",), "127.0.0.1"),
        ((ACTION,), "10.0.0.4"),
        ((ACTION,), "::ffff:10.0.0.4"),
        ((ACTION,), "fe80::1%eth0"),
        ((ACTION,), ""),
    ],
)
def test_request_from_elsewhere_switches_nothing(headers: tuple[str, ...], peer: str) -> None:
    rig = Rig()
    with pytest.raises(RefusedError) as caught:
        rig.post("enforcing=false", *headers, peer=peer)
    assert caught.value.status == 403
    assert rig.switch.on


@pytest.mark.parametrize(
    "name",
    [
        *("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"),
        *("X-Original-Host", "X-Original-URL", "X-Rewrite-URL", "X-ProxyUser-Ip", "CF-Connecting-IP"),
        *("True-Client-IP", "X-Client-IP", "X-Cluster-Client-IP", "Fastly-Client-IP", "X-Request-Id"),
        *(
            "Origin",
            "Sec-Fetch-Site",
            "X-Amzn-Trace-Id",
            "traceparent",
            "X-Envoy-Internal",
            "A-Header-That-Is-Not-Known-Yet",
            "Cookie",
        ),
    ],
)
def test_header_that_no_command_sends_is_refused_and_named(name: str) -> None:
    rig = Rig()
    with pytest.raises(
        RefusedError, match=f"not for browsers and proxies: {name.lower()} is refused"
    ) as caught:
        rig.post("enforcing=false", ACTION, f"{name}: 127.0.0.1")
    assert caught.value.status == 403
    assert rig.switch.on


@pytest.mark.parametrize(
    "headers",
    [
        ("User-Agent: curl/8.5.0", "Accept: */*"),
        ("Accept-Encoding: identity", "Content-Length: 0", "User-Agent: Python-urllib", "Connection: close"),
        ("User-Agent: Wget/1.21", "Accept: */*", "Connection: Keep-Alive", "Content-Length: 0"),
        ("Content-Type: application/x-www-form-urlencoded",),
    ],
    ids=["curl", "sluice enforcement", "wget", "content type"],
)
def test_headers_that_commands_send_are_no_obstacle(headers: tuple[str, ...]) -> None:
    assert Rig().post("enforcing=false", ACTION, *headers)["changed"]


def test_http_1_0_as_nginx_speaks_it_to_what_is_behind_it_is_refused() -> None:
    request = parse(f"POST /v1/enforcement HTTP/1.0\r\nHost: localhost\r\n{ACTION}\r\n\r\n".encode())
    assert request.relayed == "HTTP/1.0"


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_loopback_may_switch(peer: str) -> None:
    assert Rig().post("enforcing=false", ACTION, peer=peer)["changed"]


def test_configured_addresses_may_switch_and_no_other() -> None:
    networks = (ipaddress.ip_network("10.0.0.0/30"),)
    assert Rig(networks).post("enforcing=false", ACTION, peer="10.0.0.2")["changed"]
    for rig, peer in ((Rig(networks), "127.0.0.1"), (Rig(()), "127.0.0.1")):
        with pytest.raises(RefusedError):
            rig.post("enforcing=false", ACTION, peer=peer)


@pytest.mark.parametrize(
    "query",
    [
        *("", "enforcing=", "enforcing=off", "enforcing=true&enforcing=false", "enforcing=true&x=1"),
        "enforcing=true&reason=" + "a" * 201,
    ],
)
def test_wrong_query_of_the_switch_is_refused(query: str) -> None:
    with pytest.raises(RefusedError) as caught:
        Rig().post(query, ACTION)
    assert caught.value.status == 400
