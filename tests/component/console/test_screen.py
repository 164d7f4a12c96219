"""The live view under Textual's pilot; nothing here depends on when its threads get their turn."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from console.screen import ROWS_SHOWN, Live, Verdict
from console.top import MemberState, Page, merge
from proxy.explain.documents import ClientsDocument, StatusDocument
from tests.support.documents import read
from tests.support.scripted_member import row, rule, times

MARKUP = "[red]evil[/] \x1b[2J"
SECONDS_MAX = 40.0
ROWS = [
    row("web-1", "alice", connections=3, time=times(held=0.62), rule=rule()),
    row(MARKUP, "mallory", time=times(client=0.7)),
    row("batch", "bob", connections=9),
]


def page(window: int = 60, rows: list[dict[str, object]] = ROWS, **state: object) -> Page:
    found = read(ClientsDocument, {"clients": rows, "clients_total": len(rows)})
    state_of_member = MemberState("a:1", read(StatusDocument, {"mode": "enforce", **state}), found, (), "")
    return merge([state_of_member], datetime.now(UTC), window)


def live(ask: Callable[[int], Page] = page, seconds: float = 3600) -> Live:
    return Live(
        ask, lambda user, client_id, window: [f"{user} {client_id!r} [b]{window}[/b]"], seconds=seconds
    )


async def until(pilot: Pilot[int], condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await pilot.pause(0.02)


@asynccontextmanager
async def shown(app: Live, rows: int = 3) -> AsyncIterator[Pilot[int]]:
    async with app.run_test(size=(150, 30)) as pilot:
        await until(pilot, lambda: len(names(app)) == rows)
        yield pilot


def names(app: Live) -> list[str]:
    table = app.query_one("#clients", DataTable)
    return [str(table.get_row_at(number)[0]) for number in range(table.row_count)]


def text(app: Live, which: str) -> str:
    return str(app.query_one(which, Static).render())


async def test_clients_are_listed_by_waiting_and_sorted_by_keys() -> None:
    app = live()
    async with shown(app) as pilot:
        escaped = r"[red]evil[/] \x1b[2J"
        assert names(app) == ["web-1", escaped, "batch"]
        await pilot.press("6")
        await until(pilot, lambda: names(app) == ["batch", "web-1", escaped])
        await pilot.press("r")
        await until(pilot, lambda: names(app) == [escaped, "web-1", "batch"])
        assert "3 of 3 clients, by connections reversed" in text(app, "#state")
        await pilot.press("q")
    assert app.return_value == 0


async def test_filter_is_applied_while_typed_and_removed_by_escape() -> None:
    app = live()
    async with shown(app) as pilot:
        await pilot.press("slash", "b", "o", "b")
        await until(pilot, lambda: names(app) == ["batch"])
        await pilot.press("enter")  # keeps the filter
        await until(pilot, lambda: app.focused is app.query_one("#clients"))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Verdict))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, Verdict))
        await pilot.press("escape")
        await until(pilot, lambda: len(names(app)) == 3)


async def test_enter_opens_the_verdict_of_the_client_under_the_cursor() -> None:
    app = live()
    async with shown(app) as pilot:
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, Verdict))
        screen = app.screen
        assert isinstance(screen, Verdict)
        await until(pilot, lambda: "mallory" in str(screen.text.render()))
        assert "[b]60[/b]" in str(screen.text.render())  # text, no markup
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, Verdict))


async def test_window_changes_and_pause_stops_to_ask() -> None:
    asked: list[int] = []

    def ask(window: int) -> Page:
        asked.append(window)
        return page(window)

    app = live(ask)
    async with shown(app) as pilot:
        await pilot.press("p")
        await until(pilot, lambda: text(app, "#heading").endswith("PAUSED"))
        await pilot.press("w")  # another window is asked for once, also in a pause
        await until(pilot, lambda: "last 15 min" in text(app, "#heading"))
    assert asked == [60, 900]


async def test_pages_and_verdict_follow_while_a_verdict_is_open() -> None:
    asked: list[str] = []

    def verdict(_user: str, client_id: str, _window: int) -> list[str]:
        asked.append(client_id)
        return [client_id]

    app = Live(page, verdict, seconds=0.05)
    async with shown(app) as pilot:
        await pilot.press("enter")
        await until(pilot, lambda: len(asked) > 5)
        assert isinstance(app.screen, Verdict)
        assert set(asked) == {"web-1"}
        await pilot.press("q")
        await until(pilot, lambda: not isinstance(app.screen, Verdict))
        await pilot.press("q")
    assert app.return_value == 0


async def test_missing_enforcement_is_shown() -> None:
    app = live(lambda window: page(window, enforcing=False))
    async with app.run_test(size=(150, 30)) as pilot:
        await until(pilot, lambda: "NOT ENFORCING" in text(app, "#heading"))
        assert text(app, "#warnings") == "a:1: quotas are NOT enforced"


async def test_of_10_000_clients_the_first_are_shown_and_all_are_found() -> None:
    many = [row(f"client-{number:05}", time=times(held=number / 20_000)) for number in range(10_000)]
    app = live(lambda window: page(window, many))
    async with shown(app, ROWS_SHOWN) as pilot:
        assert names(app)[0] == "client-09999"
        assert f"{ROWS_SHOWN} of 10000 clients" in text(app, "#state")
        await pilot.press("slash", *"00042")
        await until(pilot, lambda: names(app) == ["client-00042"])
        await pilot.press(*["backspace"] * 5)
        await until(pilot, lambda: len(names(app)) == ROWS_SHOWN)
        for which in ("#heading", "#clients", "#state", "#filter"):  # a long table pushes none of them away
            region = app.query_one(which).region
            assert region.height > 0, which
            assert region.bottom <= 29, which


async def test_interrupt_has_its_exit_code() -> None:
    app = live()
    async with app.run_test() as pilot:
        await pilot.press("ctrl+c")
    assert app.return_value == 130
