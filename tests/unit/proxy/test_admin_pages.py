"""The pages' text."""

from proxy.admin import Page, pages
from quotas.engine import QuotaView

VIEW = QuotaView("", "a", "Produce", 3000.0, 2000.0, 5000, 2500, 3, 0, 0, 1234.0)


def test_ready_says_why_not() -> None:
    assert pages.ready("") == Page(200, pages.TEXT, b"ready\n")
    assert pages.ready("no broker answers") == Page(503, pages.TEXT, b"not ready: no broker answers\n")
    assert pages.ready("\udce4").status == 503


def test_health_is_ok_while_it_can_be_said() -> None:
    assert pages.health() == Page(200, pages.TEXT, b"ok\n")


def test_index_links_every_page_and_says_whether_quotas_are_enforced() -> None:
    page = pages.index("1.2.3", True)
    for path in (b"/metrics", b"/clients", b"/healthz", b"/readyz"):
        assert b'href="' + path + b'"' in page.body
    assert b"1.2.3. Quotas are enforced." in page.body
    assert b"not enforced" in pages.index("1", False).body


def test_only_clients_over_their_quota_are_shown_worst_first() -> None:
    views = [
        VIEW._replace(client_id="twice", byte_rate=4000.0),
        VIEW._replace(client_id="under", byte_rate=1000.0, debt_bytes=0.0),
        VIEW._replace(client_id="in debt", byte_rate=1000.0, debt_bytes=1.0),
        VIEW._replace(client_id="unlimited", quota=None),
        VIEW._replace(client_id="thrice", byte_rate=6000.0),
    ]
    assert [view.client_id for view in pages.over_quota(views)] == ["thrice", "twice", "in debt"]


def test_clients_shown_are_bounded_and_the_worst_in_portions_too() -> None:
    views = [VIEW._replace(client_id=str(n), byte_rate=2001.0 + n) for n in range(1000)]
    whole = pages.over_quota(views)
    assert len(whole) == pages.CLIENTS_MAX
    over: list[QuotaView] = []
    for start in range(0, 1000, 100):
        over = pages.over_quota([*over, *views[start : start + 100]])
    assert over == whole
    assert b"the 200 furthest over, of 1000" in pages.clients(whole, 1000, True).body


def test_client_is_shown_with_its_figures() -> None:
    body = pages.clients([VIEW], 7, True).body.decode()
    assert "throttled: 1, of 7 clients" in body
    for cell in ("a", "Produce", "3,000", "2,000", "1.50", "1,234", "2.5"):
        assert f"<td>{cell}</td>" in body


def test_page_says_when_nothing_is_enforced() -> None:
    assert "not throttled: nothing is enforced: 0, of 0" in pages.clients([], 0, False).body.decode()


def test_client_ids_are_escaped_and_bounded() -> None:
    body = pages.clients([VIEW._replace(client_id="<script>" + "x" * 5000)], 1, True).body
    assert b"<script>" not in body
    assert b"&lt;script&gt;" in body
    assert len(body) < 2500
    assert b"(empty)" in pages.clients([VIEW._replace(client_id="")], 1, True).body
    assert pages.clients([VIEW._replace(client_id="\udce4")], 1, True).status == 200
