"""Which page shows what."""

from proxy.admin import OwnFigures, Request, Site
from proxy.explain.report import NOTHING, Query, Seen
from proxy.metrics.exposition import Metrics
from proxy.system.stats import Stats
from quotas.throttles.figures import QuotaView
from tests.support.engines import KnownClients

VIEW = QuotaView("", "a", "Produce", 3000.0, 2000.0, 5000, 2500, 3, 0, 0, 1234.0)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


async def nothing_seen(_query: Query) -> Seen:
    return NOTHING


def site_of(quotas: KnownClients, not_ready: str = "") -> Site:
    figures = OwnFigures(Metrics(Stats(), quotas, 1000, "1"), quotas, lambda: 42, nothing_seen)
    return Site(figures, lambda: not_ready)


def site(views: list[QuotaView], not_ready: str = "") -> Site:
    return site_of(KnownClients(views), not_ready)


async def body(site: Site, path: str, accept: str = "") -> tuple[int, str, str]:
    page = await site.handlers()[path](Request("GET", path, accept, False))
    return page.status, page.content_type, page.body.decode()


async def test_metrics_in_the_format_asked_for() -> None:
    status, content_type, text = await body(site([VIEW]), "/metrics")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'sluice_client_bytes_total{client_id="a",type="Produce",user=""} 5000' in text
    _, content_type, _ = await body(site([VIEW]), "/metrics", "application/openmetrics-text")
    assert content_type.startswith("application/openmetrics-text")


async def test_figures_are_of_one_time() -> None:
    quotas = KnownClients([VIEW])
    for path in ("/metrics", "/clients"):
        await body(site_of(quotas), path)
    assert quotas.asked_at == {42}


async def test_ready_asks_the_application() -> None:
    assert (await body(site([]), "/readyz"))[0] == 200
    status, _, text = await body(site([], "draining \udce4"), "/readyz")
    assert (status, text) == (503, "not ready: draining \\udce4\n")


async def test_health_and_index() -> None:
    assert await body(site([]), "/healthz") == (200, "text/plain; charset=utf-8", "ok\n")
    assert "/clients" in (await body(site([]), "/"))[2]


async def test_clients_page_is_bounded_for_many_clients() -> None:
    views = [VIEW._replace(client_id=f"under{n}", byte_rate=1.0, debt_bytes=0.0) for n in range(1200)]
    text = (await body(site([*views, VIEW]), "/clients", BROWSER))[2]
    assert "throttled: 1. " in text
    assert "Rows: 200 of 1201" in text
    assert text.index("<td>a</td>") < text.index("<td>under0</td>")


async def test_clients_at_several_brokers_are_added_up() -> None:
    views = [VIEW._replace(broker=broker) for broker in range(1, 300)]
    text = (await body(site(views), "/clients", BROWSER))[2]
    assert text.count("<td>897,000 B/s</td>") == 200  # 299 brokers of 3,000 B/s each


async def test_clients_for_a_terminal() -> None:
    _, content_type, text = await body(site([VIEW]), "/clients", "*/*")
    assert content_type == "text/plain; charset=utf-8"
    assert text.splitlines()[-1].startswith("a                Produce  all ")


async def test_reassignments_as_json() -> None:
    status, content_type, text = await body(site([]), "/reassignments")
    assert (status, content_type, text) == (200, "application/json", '{"mode": "pass"}\n')
