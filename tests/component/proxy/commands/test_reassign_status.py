"""`sluice reassign status`: what it prints, from the admin port and from a list of version 1."""

import json
import socket

import pytest

from protocol.messages.reassignments import Ongoing, Reassignments, Stepping
from proxy.commands import reassign_status, servers
from proxy.commands.reassign_status import document_of_list, table, watch
from proxy.commands.servers import Document
from proxy.system.errors import ServerError
from tests.support.command_line import Sluice
from tests.support.scripted_member import ScriptedMember

SHOWN = ("reassign", "status")
STATUS: dict[str, object] = {
    "mode": "batch",
    "process": "here:1:ab",
    "leads": True,
    "holder": "here:1:ab",
    "problem": "",
    "moves": 2,
    "steps": 1,
    "replicas_total": 4,
    "replicas_done": 1,
    "bytes_total": 40_000_000,
    "bytes_done": 10_000_000,
    "bytes_per_second": 250_000.0,
    "finish_seconds": 120.0,
    "partitions": [
        {
            "topic": "t",
            "partition": 0,
            "original": [1, 2],
            "target": [3, 4],
            "cancelled": False,
            "state": "step",
            "step": {"current": [1, 2], "target": [3, 1]},
            "reason": "",
            "replicas_total": 2,
            "replicas_done": 1,
            "bytes_total": 20_000_000,
            "bytes_done": 19_800_000,
        },
        {
            "topic": "t",
            "partition": 1,
            "original": [1, 2],
            "target": [1, 2],
            "cancelled": True,
            "state": "waiting",
            "step": None,
            "reason": "waits for broker 2, which is not alive",
            "replicas_total": 0,
            "replicas_done": 0,
        },
    ],
}


def test_moves_are_written_with_bars() -> None:
    assert list(table(STATUS)) == [
        "2 partitions under way, 1 with a step",
        "carried out by here:1:ab, this process",
        "replicas  [######..................]  25 %  1 of 4",
        "bytes     [######..................]  25 %  10.0 MB of 40.0 MB, 250.0 kB/s, done in 2 min 0 s",
        "  t-0  1,2 -> 3,4              bytes [#######################.]  99 %  1 of 2 replicas  step: 1,2 -> 3,1",
        "  t-1  1,2 -> 1,2 (cancelled)  waits for broker 2, which is not alive",
    ]
    assert list(table({**STATUS, "leads": False, "holder": ""}))[1] == "carried out by no process"
    assert next(table({**STATUS, "problem": "the disk is full"})) == "problem: the disk is full"


def test_nothing_under_way_is_short() -> None:
    idle = {"mode": "batch", "problem": "", "moves": 0, "steps": 0, "leads": False, "holder": ""}
    assert list(table(idle)) == ["no reassignment is under way"]
    led = {**idle, "leads": True, "holder": "here:1:ab"}
    assert list(table(led)) == ["no reassignment is under way", "carried out by here:1:ab, this process"]
    over = {**idle, "moves_total": 3, "moves_done": 3, "moves_not_done": 0}
    assert list(table(over)) == ["no reassignment is under way; of 3 in all 3 are done"]


def test_moves_that_are_over_stay_in_the_total() -> None:
    later = {**STATUS, "moves_total": 10, "moves_done": 7, "moves_not_done": 1}
    first = "2 partitions under way, 1 with a step; of 10 in all 7 are done"
    assert next(table(later)) == first + " and 1 were cancelled or are gone"
    assert next(table({**later, "moves_total": 9, "moves_not_done": 0})) == first.replace("10", "9")
    none = {**later, "moves_total": 2, "moves_done": 0, "moves_not_done": 0}
    assert next(table(none)) == "2 partitions under way, 1 with a step"


class Reading:
    """Documents one after the other; an error is raised."""

    def __init__(self, *found: Document | ServerError) -> None:
        self.found = list(found)
        self.pauses: list[float] = []

    def __call__(self) -> Document:
        found = self.found.pop(0)
        if isinstance(found, ServerError):
            raise found
        return found


IDLE: Document = {"mode": "batch", "problem": "", "moves": 0, "steps": 0}


def watched(reading: Reading, wait: float = 60.0, form: str = "table") -> int:
    """Watch every 2 s."""
    return watch(reading, form, 2.0, wait, reading.pauses.append)


def test_watch_ends_when_nothing_is_under_way(capsys: pytest.CaptureFixture[str]) -> None:
    reading = Reading(STATUS, {**STATUS, "moves": 1}, IDLE)
    assert watched(reading, form="json") == 0
    shown = [json.loads(line)["moves"] for line in capsys.readouterr().out.splitlines()]
    assert (shown, reading.pauses) == ([2, 1, 0], [2.0, 2.0])


@pytest.mark.parametrize("form", ["json", "table"])
def test_watch_that_is_started_first_waits_for_a_reassignment(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reading = Reading(IDLE, IDLE, ServerError("nothing listens"), STATUS, IDLE)
    assert watched(reading, form=form) == 0
    captured = capsys.readouterr()
    assert captured.err == (
        "sluice: no reassignment is under way: waiting 60 s for one (Ctrl-C ends)\n"
        "sluice: nothing listens; trying again\n"
    )
    assert (reading.found, reading.pauses) == ([], [2.0] * 4)
    shown = captured.out.splitlines()
    assert ["moves" in line or "under way" in line for line in shown].count(True) == 2, "none while it waits"


def test_watch_waits_for_a_process_that_is_not_up_yet(capsys: pytest.CaptureFixture[str]) -> None:
    down = ServerError("nothing listens")
    reading = Reading(down, down, IDLE, STATUS, IDLE)
    assert watched(reading, form="json") == 0
    captured = capsys.readouterr()
    assert captured.err == (
        "sluice: nothing listens: waiting 60 s for a response (Ctrl-C ends)\n"
        "sluice: no reassignment is under way: waiting 56 s for one (Ctrl-C ends)\n"
    )
    assert (reading.found, reading.pauses) == ([], [2.0] * 4)
    assert [json.loads(line)["moves"] for line in captured.out.splitlines()] == [2, 0]


def test_watch_ends_where_no_process_comes_up_in_time() -> None:
    reading = Reading(*[ServerError(str(number)) for number in range(5)])
    with pytest.raises(ServerError, match=r"^3$"):
        watched(reading, 6.0)
    assert reading.pauses == [2.0] * 3


def test_watch_waits_for_a_limited_time(capsys: pytest.CaptureFixture[str]) -> None:
    reading = Reading(*[IDLE] * 4)
    assert watched(reading, 6.0) == 0
    assert (reading.found, reading.pauses) == ([], [2.0, 2.0, 2.0])
    assert capsys.readouterr().out == "no reassignment is under way\n\n"


@pytest.mark.parametrize(("document", "wait"), [(IDLE, 0.0), ({"mode": "pass"}, 60.0)])
def test_watch_does_not_wait_where_told_so_or_where_none_is_ever_shown(
    document: Document, wait: float, capsys: pytest.CaptureFixture[str]
) -> None:
    reading = Reading(document)
    assert watched(reading, wait) == 0
    assert (reading.pauses, capsys.readouterr().err) == ([], "")


def test_watch_outlasts_a_restart_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    reading = Reading(STATUS, ServerError("nothing listens"), IDLE)
    assert watched(reading) == 0
    captured = capsys.readouterr()
    assert captured.err == "sluice: nothing listens; trying again\n"
    assert captured.out.endswith("no reassignment is under way\n\n")


def test_watch_gives_up_after_many_failures() -> None:
    with pytest.raises(ServerError, match="at once"):
        watched(Reading(ServerError("at once")), 0.0)
    failing = Reading(STATUS, *[ServerError(str(number)) for number in range(40)])
    with pytest.raises(ServerError, match=r"^29$"):
        watched(failing, 0.0)


def test_watch_writes_over_itself_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    watched(Reading(IDLE), 0.0)
    assert capsys.readouterr().out == "\x1b[H\x1b[Jno reassignment is under way\n"


def test_more_than_can_be_shown_is_counted() -> None:
    partitions = STATUS["partitions"]
    assert isinstance(partitions, list)
    many = {**STATUS, "moves": 2000, "partitions": [partitions[0]] * 1000}
    lines = list(table(many))
    assert len(lines) == 4 + 50 + 1
    assert lines[-1] == "and 1950 more; --format json has 1000"


def test_list_of_version_1_has_moves_and_steps() -> None:
    found = Reassignments(
        0,
        0,
        None,
        {("t", 0): Ongoing((3, 4, 1, 2), (3, 4), (1, 2)), ("t", 1): Ongoing((3, 1, 2), (3,), (2,))},
    )
    lines = list(table(document_of_list(found, {("t", 0): Stepping((1, 2), (3, 1))})))
    assert lines == [
        "2 partitions under way, 1 with a step",
        "  t-0  1,2 -> 3,4  step: 1,2 -> 3,1",
        "  t-1  1,2 -> 3,1",
    ]


def test_status_is_read_from_the_admin_port(sluice: Sluice) -> None:
    with ScriptedMember() as member:
        member.documents["/reassignments"] = STATUS
        assert "2 partitions under way" in sluice(*SHOWN, "--admin", member.admin.removeprefix("http://"))
        assert json.loads(sluice(*SHOWN, "--admin", member.admin, "--format", "json")) == STATUS
        member.documents["/reassignments"] = {"mode": "pass"}
        assert "pass unchanged" in sluice(*SHOWN, "--admin", member.admin)


@pytest.mark.parametrize("option", ["--admin", "--bootstrap-server"])
def test_server_that_never_responds_is_left(
    option: str, monkeypatch: pytest.MonkeyPatch, sluice: Sluice
) -> None:
    for module in (servers, reassign_status):
        monkeypatch.setattr(module, "SECONDS_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system accepts, and nothing reads
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        sluice(*SHOWN, option, where, code=1)
    page = f"http://{where}/reassignments" if option == "--admin" else where
    assert sluice.err == f"sluice: {page}: no response within 0.05 s\n"


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("--admin=http://127.0.0.1:1", 1),
        ("--admin=127.0.0.1:1", 1),
        ("--admin=ftp://127.0.0.1:1", 2),
        ("--bootstrap-server=127.0.0.1:1", 1),
    ],
)
def test_unreachable_bootstrap_is_one_line(where: str, code: int, sluice: Sluice) -> None:
    sluice(*SHOWN, where, code=code)
    assert "127.0.0.1:1" in sluice.err
    assert sluice.err.count("\n") == 1
