"""`sluice console` in a real Chromium, in front of members whose documents the test writes.

Every page is watched: an error on the browser's console, a violation of the content security policy, an exception, or a
request to elsewhere fails the test.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import BrowserContext, Locator, expect

from tests.support.chromium import Watched, chromium
from tests.support.console_process import ConsoleProcess
from tests.support.scripted_member import ScriptedMember, row, rule, times

SECONDS_MAX = 30_000  # ms, for what another process has still to do
USED = {"kind": "produce", "entity": "client-id <default>", "value": 2e6, "rate": 1.98e6, "part": 0.7}
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"
expect.set_options(timeout=SECONDS_MAX)


@pytest.fixture(scope="module")
def browser() -> Iterator[BrowserContext]:
    with chromium() as context:
        context.set_default_timeout(SECONDS_MAX)
        yield context


@pytest.fixture(scope="module")
def served() -> Iterator[ScriptedMember]:
    with ScriptedMember("gw-1") as found:
        yield found


@pytest.fixture(scope="module")
def console(served: ScriptedMember) -> Iterator[ConsoleProcess]:
    with ConsoleProcess([served.admin], refresh=0.5) as found:
        yield found


@pytest.fixture
def member(served: ScriptedMember) -> ScriptedMember:
    """The member with three clients, as every test finds it."""
    served.reset()
    served.set_clients(
        row("web-1", time=times(muted=0.62, broker=0.02), rule=rule(), quotas=[USED]),
        row("etl", "alice", connections=3, time=times(held=0.3, poll=0.1), rule=rule()),
        row("calm", time=times(poll=0.5)),
    )
    return served


@pytest.fixture
def watched(browser: BrowserContext, console: ConsoleProcess, member: ScriptedMember) -> Iterator[Watched]:
    with opened(browser, console) as found:
        expect(names(found)).to_have_text(["web-1", "etl", "calm"])  # the documents of this test
        yield found


@contextmanager
def opened(browser: BrowserContext, console: ConsoleProcess) -> Iterator[Watched]:
    """Open the first page, and look at the end whether the browser complained."""
    page = browser.new_page()
    found = Watched(page, console.url)
    page.goto(console.url)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    yield found
    page.close()
    found.check()


def names(watched: Watched) -> Locator:
    return watched.page.locator(".panel-clients tbody th .client")


def test_who_waits_is_said_first(watched: Watched) -> None:
    page = watched.page
    expect(page.locator(".headline")).to_contain_text("2 of 3 clients wait for a quota")
    first = page.locator(".troubled li").first
    expect(first).to_contain_text("62 %")
    expect(first).to_contain_text("web-1 waited 62% of the last minute.")
    expect(page.locator(".panel-uses")).to_contain_text("2.0 MB/s of 2.0 MB/s")
    expect(page.locator(".panel-members")).to_contain_text("gw-1")


def test_list_is_sorted_by_a_column(watched: Watched) -> None:
    page = watched.page
    expect(names(watched)).to_have_text(["web-1", "etl", "calm"])
    page.get_by_role("link", name="Client", exact=True).click()
    expect(names(watched)).to_have_text(["calm", "etl", "web-1"])
    page.get_by_role("link", name="Client", exact=True).click()
    expect(names(watched)).to_have_text(["web-1", "etl", "calm"])
    page.go_back()
    expect(names(watched)).to_have_text(["calm", "etl", "web-1"])


def test_list_is_filtered_while_one_types(watched: Watched) -> None:
    page = watched.page
    page.get_by_label("Filter").press_sequentially("ALI")
    expect(names(watched)).to_have_text(["etl"])
    expect(page.get_by_label("Filter")).to_be_focused()
    page.get_by_label("Filter").fill("nothing like it")
    expect(page.locator(".panel-clients .none")).to_have_text("No client matches.")
    page.get_by_label("Filter").fill("")
    page.get_by_role("link", name="waiting", exact=True).click()
    expect(names(watched)).to_have_text(["web-1", "etl"])


def test_capacity_is_a_bar_with_who_has_what_of_it(watched: Watched, member: ScriptedMember) -> None:
    page = watched.page
    panel = page.locator("#panel-capacities")
    expect(panel).to_be_hidden()  # there is none
    member.documents["/v1/capacities"] = {
        "capacities": [
            {
                "key": "producer_byte_rate",
                "value": 8e6,
                "promised": 4e6,
                "lent": 2e6,
                "left": 2e6,
                "classes_total": 1,
                "waiting": 1,
                "classes": [
                    {"entity": "client-id '<b>a'", "has": 4e6, "lent": 2e6, "demand": 8e6, "waits": True}
                ],
            }
        ]
    }
    expect(panel.locator("figcaption")).to_have_text(
        "in, all brokers: 8.0 MB/s, 4.0 MB/s promised, 2.0 MB/s lent, 2.0 MB/s left, 1 class waits"
    )
    bar = panel.locator("figure > svg")
    assert [bar.locator(name).get_attribute("width") for name in (".fill-own", ".fill-lent")] == [
        "50.0",
        "25.0",
    ]
    expect(panel.locator("tbody th")).to_have_text("client-id '<b>a' waits")
    expect(panel.locator("tbody td.n")).to_have_text("6.0 MB/s 2.0 MB/s borrowed")
    page.get_by_role("link", name="Quotas").click()
    expect(page.locator("#panel-capacities figcaption")).to_be_visible()


def test_client_is_opened(watched: Watched) -> None:
    page = watched.page
    page.locator(".panel-clients").get_by_role("link", name="web-1").click()
    expect(page.locator("h1")).to_have_text("web-1")
    expect(page.locator(".panel-verdict")).to_contain_text("web-1 waited 62% of the last minute.")
    row = page.locator(".panel-connections tbody tr").first
    expect(row).to_contain_text("10.0.0.7:51234apache-kafka-java 4.4.0")  # then the broker, and the time
    expect(row).to_contain_text("16.4 kB2–")  # batches, responses owed, no wait
    expect(page.locator(".parts")).to_contain_text("62 %")
    expect(page.locator("svg.timeline path.line-muted")).to_have_count(1)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")


def test_what_a_client_asks_for_is_a_bound_or_not_known(watched: Watched, member: ScriptedMember) -> None:
    page = watched.page
    page.locator(".panel-clients").get_by_role("link", name="web-1").click()
    panel = page.locator(".panel-wants")
    expect(panel).to_contain_text("How much it asks for is not known, nor what it would wait")
    wants = {"rate": 5e6, "at_least": False, "assumed": "it waits", "wait_seconds_per_minute": None}
    for details in member.details.values():
        details["wants"] = wants
    expect(panel).to_contain_text("It asks for at most about 5.0 MB/s")
    expect(panel).to_contain_text("What it would wait with another limit is not known.")
    wants |= {"rate": 4e6, "at_least": True}
    expect(panel).to_contain_text("It took up to 4.0 MB/s; how much more it asks for is not known.")


def test_what_the_clients_library_says_is_below_the_cause(watched: Watched, member: ScriptedMember) -> None:
    page = watched.page
    for details in member.details.values():
        details["telemetry"] = [
            {"kind": "<b>x</b>", "longest_ms": 5.0, "seconds_ago": 1.0},
            {"kind": "produce", "average_ms": 118.2, "longest_ms": 480.0, "seconds_ago": 12.0},
        ]
    page.locator(".panel-clients").get_by_role("link", name="web-1").click()
    panel = page.locator(".panel-verdict .sentence")
    said = "Its own client library says of its {} requests: throttled {}"
    expect(panel.nth(1)).to_have_text(said.format("<b>x</b>", "5.0 ms at most, 1.0 s ago."))
    expect(panel.nth(2)).to_have_text(
        said.format("Produce", "118 ms on average, 480 ms at most, 12.0 s ago.")
    )


def test_rule_lists_the_clients_under_it(watched: Watched) -> None:
    page = watched.page
    page.locator(".panel-clients").get_by_role("link", name=re.compile("producer_byte_rate")).first.click()
    expect(page.locator("h1")).to_contain_text("producer_byte_rate")
    expect(page.locator(".panel-rule_head")).to_contain_text("2 of 2 clients under it wait")
    expect(names(watched)).to_have_text(["web-1", "etl"])


def test_numbers_follow_without_a_reload(watched: Watched, member: ScriptedMember) -> None:
    page = watched.page
    page.evaluate("window.same = true")
    member.set_clients(
        row("web-1", time=times(muted=0.11), rule=rule()), row("new-one", time=times(broker=0.2))
    )
    expect(page.locator(".troubled li").first).to_contain_text("11 %")
    expect(names(watched)).to_have_text(["web-1", "new-one"])
    assert page.evaluate("window.same"), "the page was loaded anew"


def test_focus_stays_on_a_client_that_moves(watched: Watched, member: ScriptedMember) -> None:
    page = watched.page
    page.locator(".panel-clients").get_by_role("link", name="calm").focus()
    member.set_clients(row("calm", time=times(muted=0.9), rule=rule()), row("web-1", time=times(broker=0.1)))
    expect(names(watched)).to_have_text(["calm", "web-1"])
    assert page.evaluate("document.activeElement.textContent") == "calm"


def test_client_id_of_markup_is_text(watched: Watched, member: ScriptedMember) -> None:
    page = watched.page
    member.set_clients(
        row(MARKUP, "<b>u</b>", time=times(muted=0.9), rule=rule(entity=f"client-id '{MARKUP}'")),
        row("a\n\x1b[2J\u202eb\ud800", time=times(broker=0.2)),
    )
    expect(page.locator(".panel-clients tbody th .client").first).to_have_text(MARKUP)
    assert page.locator("main img, main script, main b").count() == 0
    expect(names(watched).nth(1)).to_have_text(r"a\n\x1b[2J\u202eb\ud800")
    page.locator(".panel-clients").get_by_role("link", name=MARKUP).first.click()
    expect(page.locator("h1")).to_contain_text(MARKUP)
    expect(page.locator(".panel-rule")).to_contain_text(MARKUP)
    assert page.locator("main img, main script, main b").count() == 0


@pytest.fixture
def beside(browser: BrowserContext, member: ScriptedMember) -> Iterator[tuple[ScriptedMember, Watched]]:
    """A second member, and a page of a console for both."""
    with (
        ScriptedMember("gw-2") as other,
        ConsoleProcess([member.admin, other.admin], refresh=0.5) as console,
        opened(browser, console) as watched,
    ):
        yield other, watched


def test_stopped_member_is_said(beside: tuple[ScriptedMember, Watched]) -> None:
    other, watched = beside
    other.set_clients(row("elsewhere", time=times(broker=0.3)))
    banners, members = (watched.page.locator(f".panel-{name}") for name in ("banners", "members"))
    expect(names(watched)).to_have_text(["web-1", "etl", "calm", "elsewhere"])
    other.freeze()
    expect(banners).to_contain_text(re.compile(r"Member gw-2 does not respond since \d"))
    expect(members).to_contain_text("1 of 2 respond")
    expect(members).to_contain_text(re.compile(r"\d+ requests? to members failed"))
    expect(names(watched)).to_have_text(["web-1", "etl", "calm"])
    other.thaw()
    expect(banners).not_to_contain_text("gw-2")
    expect(names(watched)).to_have_text(["web-1", "etl", "calm", "elsewhere"])


def test_broken_member_is_said_and_others_shown(beside: tuple[ScriptedMember, Watched]) -> None:
    other, watched = beside
    other.bodies["/v1/clients"] = b'{"clients": [{"user": 7}]}'
    said = "/v1/clients is not Sluice's: Expected `str`, got `int` - at `$.clients[0].user`"
    expect(watched.page.locator(".panel-banners")).to_contain_text(said)
    expect(names(watched)).to_have_text(["web-1", "etl", "calm"])


def test_enforcement_that_is_off_is_said_on_every_page(watched: Watched, member: ScriptedMember) -> None:
    page = watched.page
    switched = {"at": "2026-11-23T10:00:00Z", "by": "User:ops", "from": "10.0.0.4", "reason": "incident 7"}
    member.documents["/v1/status"] |= {"enforcing": False, "switched": switched}
    expect(page.locator(".panel-banners")).to_contain_text("Enforcement is off at gw-1")
    for name in ("Quotas", "Events"):
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator(".panel-banners")).to_contain_text("incident 7")


def test_events_are_shown_as_they_happen(watched: Watched, member: ScriptedMember) -> None:
    happened = {"id": 1, "at": "2026-11-23T10:31:02.125Z", "kind": "broker_lost", "text": "broker 2 is lost"}
    member.documents["/v1/events"] = {"run": "b", "last": 1, "lost": 0, "events": [happened]}
    expect(watched.page.locator(".panel-events")).to_contain_text("10:31:02 broker 2 is lost")


def test_version_without_the_newer_documents(browser: BrowserContext, member: ScriptedMember) -> None:
    for path in ("/v1/status", "/v1/fleet", "/v1/events", "/v1/rules"):
        del member.documents[path]
    with ConsoleProcess([member.admin], refresh=0.5) as console, opened(browser, console) as watched:
        expect(names(watched)).to_have_text(["web-1", "etl", "calm"])
        said = "Not offered by this version: /v1/events."
        expect(watched.page.locator(".panel-events")).to_contain_text(said)


def test_keyboard_alone(watched: Watched) -> None:
    page = watched.page
    page.keyboard.press("/")
    expect(page.get_by_label("Filter")).to_be_focused()
    page.keyboard.type("web")
    expect(names(watched)).to_have_text(["web-1"])
    for _ in range(40):
        if page.evaluate("document.activeElement.matches('.panel-clients tbody .client')"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".panel-verdict h1")).to_have_text("web-1")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.keyboard.press("Escape")
    expect(page.locator(".panel-troubled h1")).to_have_text("Who waits, and why")


def test_held_page_stays_still(watched: Watched, member: ScriptedMember) -> None:
    page = watched.page
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#live")).to_contain_text("held at")
    asked = member.asked["/v1/client"]
    member.set_clients(row("other", time=times(muted=0.5), rule=rule()))
    page.wait_for_timeout(1500)
    expect(names(watched)).to_have_text(["web-1", "etl", "calm"])
    assert member.asked["/v1/client"] <= asked + 2  # what was asked already
    page.get_by_role("button", name="Continue").click()
    expect(names(watched)).to_have_text(["other"])


def test_ten_thousand_clients_stay_usable(browser: BrowserContext) -> None:
    """At a console of its own: it asks a member for a long list so seldom that other tests would wait for theirs."""
    waiting = row("needle", time=times(muted=0.4), rule=rule())
    many = (row(f"svc-{number:05}", time=times(broker=0.1, poll=number / 20_000)) for number in range(9_999))
    with (
        ScriptedMember("gw-1") as member,
        ConsoleProcess([member.admin], refresh=0.5) as console,
        opened(browser, console) as watched,
    ):
        member.set_clients(waiting, *many)
        page = watched.page
        expect(page.locator(".panel-clients h2")).to_contain_text("10000")
        assert names(watched).count() == 50
        began = time.monotonic()
        page.get_by_role("link", name="Client", exact=True).click()
        expect(names(watched).nth(1)).to_have_text("svc-00000")
        page.get_by_role("link", name="Next").click()
        expect(names(watched).first).to_have_text("svc-00049")
        page.get_by_label("Filter").fill("svc-0777")
        expect(names(watched)).to_have_count(10)
        took = time.monotonic() - began
        print(f"sorted, turned and filtered in {took:.2f} s")
        assert took < 20.0
        assert page.evaluate("document.getElementsByTagName('*').length") < 4_000


def test_narrow_window_has_no_sideways_scroll(watched: Watched) -> None:
    page = watched.page
    for width in (1280, 480):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
    page.set_viewport_size({"width": 1280, "height": 900})
