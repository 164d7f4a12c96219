"""`sluice console` in front of members that lack worker processes: each page says so, and none is empty by silence."""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from tests.support.console_process import ConsoleProcess
from tests.support.scripted_member import ScriptedMember, row, rule, times

LATE = [{"worker": 2, "problem": "no response within 4 s"}]
ALL = [{"worker": 1, "problem": "silent for 5 s"}, {"worker": 2, "problem": "silent for 5 s"}]
SAID = "Member gw-1 lacks worker 2 (no response within 4 s): clients connected there are not shown."
OF_WORKERS = ("/v1/clients", "/v1/client", "/v1/rules", "/v1/brokers")
SECONDS_MAX = 20.0


@pytest.fixture
def member() -> Iterator[ScriptedMember]:
    with ScriptedMember("gw-1") as found:
        found.set_clients(row("web-1", time=times(muted=0.62), rule=rule()))
        yield found


@pytest.fixture
def console(member: ScriptedMember) -> Iterator[ConsoleProcess]:
    with ConsoleProcess([member.admin], refresh=0.5) as found:
        yield found


class Text(HTMLParser):
    """The text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def page(console: ConsoleProcess, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(console.url.rstrip("/") + path, timeout=10) as response:
            status, body = response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            status, body = error.code, error.read()
    text = Text()
    text.feed(body.decode())
    return status, " ".join(text.words).replace(" :", ":")


def until(console: ConsoleProcess, path: str, status: int, *parts: str) -> str:
    """Wait until a page has a status, and says all of this."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        found, text = page(console, path)
        if found == status and all(part in text for part in parts):
            return text
        assert time.monotonic() < deadline, (found, text)
        time.sleep(0.1)


def test_every_page_names_the_workers_that_a_member_lacks(
    console: ConsoleProcess, member: ScriptedMember
) -> None:
    assert "lacks" not in until(console, "/", 200, "web-1")
    member.documents["/v1/clients"]["missing"] = LATE
    for path in ("/", "/rules", "/events", "/client?user=ANONYMOUS&client_id=web-1"):
        until(console, path, 200, SAID)


def test_client_that_is_not_found_while_a_worker_is_missing_is_not_unknown(
    console: ConsoleProcess, member: ScriptedMember
) -> None:
    until(console, "/client?user=&client_id=other", 404, "No member that responds has seen this client")
    member.unavailable["/v1/client"] = {"error": "not certain", "missing": LATE}
    until(console, "/client?user=&client_id=other", 503, SAID, "which is not certain")
    until(console, "/", 200, "web-1")  # its other documents are shown


def test_member_without_any_worker_shows_no_empty_list_as_if_nothing_were_there(
    console: ConsoleProcess, member: ScriptedMember
) -> None:
    for path in OF_WORKERS:
        member.unavailable[path] = {"error": "no worker process responds", "missing": ALL}
    member.documents["/v1/status"]["missing"] = ALL
    said = "Member gw-1 lacks worker 1 (silent for 5 s), worker 2 (silent for 5 s)"
    until(console, "/", 200, said, "No client of those that respond has connected")
    text = until(console, "/rules", 200, said)
    assert "No quota is set" not in text
    assert "Not offered by this version" not in text
    until(console, "/client?user=&client_id=web-1", 503, said)
