"""`sluice top` in its plain form, against served admin ports."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from console.top import Members, warnings
from proxy import cli
from proxy.commands.servers import read_all, read_present
from tests.cluster import free_ports
from tests.support.scripted_member import HOST, ScriptedMember, row, rule, times

WAITS = row("web-1", "alice", connections=3, time=times(held=0.62), rule=rule())
OTHER = row("batch", "bob", time=times(broker=0.3))


@pytest.fixture
def member() -> Iterator[ScriptedMember]:
    with ScriptedMember("gw-1") as found:
        found.set_clients(OTHER, WAITS)
        yield found


Top = Callable[..., tuple[int, str, str]]


@pytest.fixture
def top(capsys: pytest.CaptureFixture[str]) -> Top:
    def run(*arguments: str) -> tuple[int, str, str]:
        """Return exit code, output and errors of a command line."""
        return cli.main(["top", *arguments]), *capsys.readouterr()

    return run


def test_plain_output_lists_clients_and_why(member: ScriptedMember, top: Top) -> None:
    code, text, _ = top("-b", "--admin", member.admin)
    out = text.splitlines()
    assert code == 0
    assert out[0].endswith("last minute  enforcing  2 clients")
    assert out[3].startswith("web-1   alice    62%  producer_byte_rate 2.0 MB/s of client-id <default>")
    assert out[4].startswith("batch   bob       0%  at its broker")


CAPACITIES = {
    "divided_by": "gw-1",
    "capacities": [
        {
            "key": "producer_byte_rate",
            "broker": 1,
            "value": 8e6,
            "promised": 5e6,
            "lent": 2e6,
            "left": 1e6,
            "shrunk": 1.0,
            "classes_total": 2,
            "waiting": 1,
            "classes": [
                {
                    "entity": "client-id 'batch'",
                    "rate": 3e6,
                    "ceiling": 8e6,
                    "has": 3e6,
                    "lent": 2e6,
                    "demand": 8e6,
                    "waits": True,
                },
                {"entity": "group 'web'", "rate": 4e6, "ceiling": 4e6, "has": 2e6, "demand": 2e6},
            ],
        }
    ],
}


def test_capacity_is_a_bar_with_those_who_have_most(member: ScriptedMember, top: Top) -> None:
    member.documents["/v1/capacities"] = CAPACITIES
    _, text, _ = top("-b", "--admin", member.admin)
    said = "in, broker 1: 8.0 MB/s, 5.0 MB/s promised, 2.0 MB/s lent, 1.0 MB/s left, 1 class waits"
    who = "client-id 'batch' 5.0 MB/s (borrows 2.0 MB/s), waits; group 'web' 2.0 MB/s"
    assert text.splitlines()[1] == f"[{'#' * 12}{'+' * 5}{'.' * 3}] {said}: {who}"


def test_members_of_a_fleet_say_the_same_capacity_once(member: ScriptedMember, top: Top) -> None:
    member.documents["/v1/capacities"] = CAPACITIES
    with ScriptedMember("gw-2") as other:
        other.documents["/v1/capacities"] = CAPACITIES
        _, text, _ = top("-b", "--admin", member.admin, "--admin", other.admin, "--format", "json")
        assert [(one["member"], one["value"]) for one in json.loads(text)["capacities"]] == [("", 8e6)]
        other.documents["/v1/capacities"] = {**CAPACITIES, "divided_by": ""}
        _, text, _ = top("-b", "--admin", member.admin, "--admin", other.admin, "--format", "json")
    assert [one["member"] for one in json.loads(text)["capacities"]] == ["gw-1", "gw-2"]


def test_member_of_a_version_without_capacities_is_shown_all_the_same(
    member: ScriptedMember, top: Top
) -> None:
    del member.documents["/v1/capacities"]
    code, text, _ = top("-b", "--admin", member.admin)
    assert (code, len(text.splitlines())) == (0, 5)


def test_capacity_of_nothing_is_refused_and_the_member_shown_all_the_same(
    member: ScriptedMember, top: Top
) -> None:
    member.documents["/v1/capacities"] = {"capacities": [{"key": "producer_byte_rate", "value": 0}]}
    code, text, _ = top("-b", "--admin", member.admin)
    assert (code, len(text.splitlines())) == (0, 5)


def test_piped_output_is_plain_and_filtered(member: ScriptedMember, top: Top) -> None:
    code, out, _ = top("--admin", member.admin, "--filter", "BOB", "--sort", "client")
    assert code == 0
    assert "1 of them are listed" in out
    assert "web-1" not in out


def test_json_is_one_document_a_line(member: ScriptedMember, top: Top) -> None:
    code, out, _ = top(
        *["--format", "json", "-n", "2", "-d", "0.5", "--window", "10", "--admin"], member.admin
    )
    assert code == 0
    documents = [json.loads(line) for line in out.splitlines()]
    assert [one["window_seconds"] for one in documents] == [10, 10]
    assert [one["client_id"] for one in documents[0]["clients"]] == ["web-1", "batch"]


def test_silent_member_is_said_and_the_others_are_shown(member: ScriptedMember, top: Top) -> None:
    with ScriptedMember("gw-2") as other:
        other.freeze()
        gone = f"{HOST}:{free_ports(1)[0]}"
        code, out, _ = top("-b", "--admin", member.admin, "--admin", other.admin, "--admin", gone)
        other.thaw()
    assert code == 0
    assert f"WARNING: {other.admin} does not respond: " in out
    assert f"WARNING: {gone} does not respond: " in out
    assert "web-1" in out


LATE = [{"worker": 2, "problem": "silent for 4 s"}]
LACKS = "gw-1 lacks worker 2 (silent for 4 s): clients connected there are not shown"


def test_workers_that_a_member_lacks_are_said(member: ScriptedMember, top: Top) -> None:
    member.documents["/v1/clients"]["missing"] = LATE
    code, out, _ = top("-b", "--admin", member.admin)
    assert code == 0
    assert f"WARNING: {LACKS}" in out.splitlines()


def test_member_without_any_worker_is_an_error_and_not_an_empty_list(
    member: ScriptedMember, top: Top
) -> None:
    member.unavailable["/v1/clients"] = {"error": "no worker process responds", "missing": LATE}
    code, out, err = top("-b", "--admin", member.admin)
    assert (code, out) == (1, "")
    assert err.endswith(": no worker process responds: worker 2 (silent for 4 s)\n")


def test_verdict_says_what_it_lacks(member: ScriptedMember) -> None:
    with ScriptedMember("gw-2") as other:
        of_all = partial(read_all, seconds_max=5.0, bytes_max=100_000)
        members = Members([member.admin, other.admin], read_present, of_all)
        members.page(60)
        member.details["alice", "web-1"]["missing"] = LATE
        other.unavailable["/v1/client"] = {"error": "not certain", "missing": LATE}
        lines = members.verdict("alice", "web-1", 60)
    assert "web-1" in lines[0]
    assert lines[-2] == LACKS
    assert lines[-1].endswith("not certain: worker 2 (silent for 4 s)")


def test_verdict_does_not_wait_for_a_member_that_sends_a_byte_now_and_then(member: ScriptedMember) -> None:
    """Each byte comes in time, and the last one never."""
    with dripping(member.documents) as drips:
        of_all = partial(read_all, seconds_max=1.0, bytes_max=100_000)
        members = Members([member.admin, drips], read_present, of_all)
        assert not list(warnings(members.page(60)))
        began = time.monotonic()
        lines = members.verdict("alice", "web-1", 60)
        assert time.monotonic() - began < 20
    assert "web-1" in lines[0]


@contextmanager
def dripping(documents: Mapping[str, object]) -> Iterator[str]:
    """An admin port that has these documents, and of any other page sends a byte in 0.2 s."""
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            path = connection.recv(4096).split(b" ")[1].partition(b"?")[0].decode()
            body = json.dumps(documents[path]).encode() if path in documents else b""
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(body) or 1000) + body)
            while not body and not over.wait(0.2):
                connection.sendall(b" ")

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"{HOST}:{listener.getsockname()[1]}"
        over.set()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("body", [b"\xff", b"[]"])
def test_member_that_is_not_sluice_is_said(member: ScriptedMember, body: bytes, top: Top) -> None:
    member.bodies["/v1/clients"] = body
    code, out, err = top("--admin", member.admin)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"sluice: {member.admin}: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["-d", "0"], "-d 0: must be from 0.5 to 3600 seconds"), (["-n", "-1"], "-n -1: must be 0 or more")],
)
def test_wrong_arguments_are_refused(arguments: list[str], said: str, top: Top) -> None:
    code, _, err = top(*arguments)
    assert code == 2
    assert said in err


def test_reader_that_closes_the_pipe_ends_it_quietly(member: ScriptedMember) -> None:
    member.set_clients(*(row(f"client-{number}") for number in range(3000)))
    command = [sys.executable, "-m", "proxy", "top", "-n", "0", "-d", "0.5", "--admin", member.admin]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"sluice top")
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_terminal_without_textual_gets_plain_output_and_a_hint(
    member: ScriptedMember, top: Top, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "console.screen", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "textual"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    code, out, err = top("--admin", member.admin)
    assert code == 0
    assert "requirements/operator.txt" in err
    assert "web-1" in out


def test_plain_output_needs_no_textual(member: ScriptedMember) -> None:
    code = (
        "import sys; from proxy import cli; "
        f"cli.main(['top', '--admin', {member.admin!r}]); "
        "print([name for name in sys.modules if name.split('.')[0] in ('textual', 'rich', 'httpx')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
