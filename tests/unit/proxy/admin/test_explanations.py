"""/v1: which question is asked for a request, and what is refused."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.admin import Explanations, Request
from proxy.admin.http import RefusedError
from proxy.explain.documents import Missing
from proxy.explain.explanation import Origin
from proxy.explain.parts import MINUTE, QUARTER
from proxy.explain.report import ClientReport, Query, Seen, brokers_of
from proxy.explain.watch import Watch
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.support import situations
from tests.support.documents import as_json

NO_QUOTAS = Definitions()


def client(client_id: str, user: str = "", muted: float = 0.0) -> ClientReport:
    return situations.client(situations.connection(muted=muted), name=(user, client_id))


class Source:
    """Clients that are known, and the questions that were asked."""

    def __init__(self, *clients: ClientReport) -> None:
        self.clients = clients
        self.asked: list[Query] = []
        self.missing: tuple[Missing, ...] = ()

    async def seen(self, query: Query) -> Seen:
        self.asked.append(query)
        found = [
            one
            for one in self.clients
            if query.client in (None, (one.user, one.client_id)) and query.client_id in (None, one.client_id)
        ]
        watch = Watch()
        watch.latencies.add(2, 3_000_000, 0)
        return Seen(tuple(found), {}, tuple(brokers_of(watch, query.window, 0)), missing=self.missing)


async def page(
    source: Source, path: str, query: str = "", quotas: Definitions = NO_QUOTAS
) -> tuple[int, dict[str, Any]]:
    pages = Explanations(source.seen, Engine(EngineOptions(), quotas), lambda _entity, _name: Origin("", ""))
    found = await pages.handlers()[path](Request("GET", path, "", False, query=query))
    assert found.content_type == "application/json"
    document: dict[str, Any] = json.loads(found.body)
    return found.status, document


async def test_all_clients_the_one_that_waits_longest_first() -> None:
    source = Source(client("calm"), client("held", muted=0.7), client("slow", muted=0.2))
    status, document = await page(source, "/v1/clients", "window=900")
    assert (status, document["window_seconds"], document["clients_total"]) == (200, 900, 3)
    assert [one["client_id"] for one in document["clients"]] == ["held", "slow", "calm"]
    assert source.asked == [Query(QUARTER)]


async def test_one_client_by_user_and_client_id() -> None:
    source = Source(client("web 1", "ann"))
    status, document = await page(source, "/v1/client", "client_id=web+1&user=ann")
    assert (status, document["client_id"], document["user"]) == (200, "web 1", "ann")
    assert source.asked == [Query(MINUTE, ("ann", "web 1"))]


async def test_connections_of_one_address() -> None:
    source = Source(replace(client("web", "ann"), address="::1"))
    status, document = await page(source, "/v1/client", "client_id=web&user=ann&address=0:0::1")
    assert (status, document["address"]) == (200, "::1")
    assert document["sentence"].startswith("web of user ann at ::1 ")
    assert source.asked == [Query(MINUTE, ("ann", "web"), address="::1")]


async def test_without_a_user_a_client_at_the_address_is_looked_for() -> None:
    class Elsewhere(Source):
        async def seen(self, query: Query) -> Seen:
            found = await super().seen(query)
            return found if query.client != ("bob", "a") else replace(found, clients=())

    source = Elsewhere(client("a", "ann", 0.1), client("a", "bob", 0.5))
    _, document = await page(source, "/v1/client", "client_id=a&address=10.0.0.9")
    assert document["user"] == "ann"
    assert [query.client for query in source.asked] == [None, ("bob", "a"), ("ann", "a")]


async def test_address_that_is_none() -> None:
    with pytest.raises(RefusedError, match="address must be an IP address"):
        await page(Source(client("a")), "/v1/client", "client_id=a&address=web-1")


async def test_without_a_user_the_client_that_waits_longest_is_meant() -> None:
    source = Source(client("a", "ann", 0.1), client("a", "bob", 0.5), client("b", "cid", 0.9))
    _, document = await page(source, "/v1/client", "client_id=a")
    assert document["user"] == "bob"


LATE = Missing(2, "no response within 4 s")


@pytest.mark.parametrize("query", ["client_id=b", "client_id=a&user=bob"])
@pytest.mark.parametrize(
    ("missing", "status", "said"),
    [((), 404, "was seen"), ((LATE,), 503, "was seen, which is not certain: workers are missing")],
)
async def test_client_that_was_not_seen(
    query: str, missing: tuple[Missing, ...], status: int, said: str
) -> None:
    source = Source(client("a", "ann"))
    source.missing = missing
    found, document = await page(source, "/v1/client", query)
    assert (found, document["missing"]) == (status, list(map(as_json, missing)))
    assert document["error"].endswith(said)


@pytest.mark.parametrize("path", ["/v1/clients", "/v1/rules", "/v1/brokers"])
async def test_document_says_which_workers_it_lacks(path: str) -> None:
    source = Source(client("a"))
    assert (await page(source, path))[1]["missing"] == []
    source.missing = (LATE,)
    status, document = await page(source, path)
    assert (status, document["missing"]) == (200, [as_json(LATE)])


@pytest.mark.parametrize("query", ["client_id=a", "client_id=a&user=ann"])
async def test_client_that_is_known_in_part(query: str) -> None:
    source = Source(client("a", "ann"))
    source.missing = (LATE,)
    status, document = await page(source, "/v1/client", query)
    assert (status, document["client_id"], document["missing"]) == (200, "a", [as_json(LATE)])


async def test_client_is_looked_for_by_its_client_id_without_a_look_at_all_rates() -> None:
    source = Source(client("a", "ann"))
    await page(source, "/v1/client", "client_id=a")
    assert source.asked == [Query(MINUTE, client_id="a"), Query(MINUTE, ("ann", "a"))]
    assert not any(query.of_all for query in source.asked)


async def test_rules_with_their_clients() -> None:
    quotas = Definitions({Entity(client_id=DEFAULT): {"producer_byte_rate": 5}})
    status, document = await page(Source(client("a"), client("b")), "/v1/rules", "window=10", quotas)
    assert (status, document["entities_total"], document["window_seconds"]) == (200, 1, 10)
    (rule,) = document["rules"]
    expected = {"entity": "client-id <default>", "value": 5, "clients": 2, "waiting": 0}
    assert rule == {**rule, **expected}


async def test_no_rule_and_no_client() -> None:
    assert (await page(Source(), "/v1/rules"))[1]["rules"] == []
    assert (await page(Source(), "/v1/clients"))[1]["clients"] == []


async def test_brokers() -> None:
    source = Source()
    _, document = await page(source, "/v1/brokers")
    assert source.asked == [Query(MINUTE, brokers_only=True)]
    ms = dict.fromkeys(("median_ms", "p99_ms", "median_by_time_ms", "slowest_ms"), 3.072)
    broker = {"broker": 2, "timed": 1, **ms, "under_way": 0, "oldest_ms": 0}
    assert document == {"enforcing": True, "missing": [], "brokers": [broker]}


@pytest.mark.parametrize(
    ("path", "query", "problem"),
    [
        ("/v1/client", "", "client_id is missing"),
        ("/v1/client", "client_id=a&client_id=b", "more than one client_id"),
        ("/v1/clients", "window=30", "window must be one of 10, 60, 900 seconds"),
        ("/v1/clients", "color=red", "unknown field 'color'; known fields: window"),
        ("/v1/clients", "&".join(f"a{number}=1" for number in range(20)), "invalid query"),
        ("/v1/brokers", "window=10", "known fields: none"),
    ],
)
async def test_wrong_query_is_refused(path: str, query: str, problem: str) -> None:
    with pytest.raises(RefusedError) as caught:
        await page(Source(), path, query)
    assert caught.value.status == 400
    assert problem in caught.value.problem
