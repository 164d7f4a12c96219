"""The pages' text."""

from proxy.admin import Page, pages


def test_readyz_names_the_problem() -> None:
    assert pages.ready("") == Page(200, pages.TEXT, b"ready\n")
    assert pages.ready("no broker answers") == Page(503, pages.TEXT, b"not ready: no broker answers\n")
    assert pages.ready("\udce4").status == 503


def test_health_page_says_ok() -> None:
    assert pages.health() == Page(200, pages.TEXT, b"ok\n")


def test_index_links_every_page_and_says_whether_quotas_are_enforced() -> None:
    page = pages.index("1.2.3", True)
    for path in (b"/metrics", b"/clients", b"/healthz", b"/readyz"):
        assert b'href="' + path + b'"' in page.body
    assert b"1.2.3. Quotas are enforced." in page.body
    assert b"not enforced" in pages.index("1", False).body
