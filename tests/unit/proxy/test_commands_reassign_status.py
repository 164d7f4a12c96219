"""`sluice reassign status`: what it prints, from the admin port and from a list of version 1."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from protocol.messages.reassignments import Ongoing, Reassignments, Stepping
from proxy.cli import main
from proxy.commands.reassign_status import listed, table

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


@contextmanager
def admin_port(body: str) -> Iterator[str]:
    """An admin port that has this page."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/reassignments" else 404)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_moves_are_written_with_bars() -> None:
    assert list(table(STATUS)) == [
        "2 partitions under way, 1 with a step",
        "carried out by here:1:ab, this process",
        "replicas  [######..................]  25 %  1 of 4",
        "bytes     [######..................]  25 %  10.0 of 40.0 MB, 0.25 MB/s, done in 2 min 0 s",
        "  t-0  1,2 -> 3,4              [############............]  50 %  step: 1,2 -> 3,1",
        "  t-1  1,2 -> 1,2 (cancelled)  waits for broker 2, which is not alive",
    ]


def test_nothing_under_way_is_short() -> None:
    idle = {"mode": "batch", "problem": "", "moves": 0, "steps": 0, "leads": False, "holder": ""}
    assert list(table(idle)) == ["0 partitions under way, 0 with a step", "carried out by nobody"]


def test_problem_comes_first() -> None:
    assert next(table({**STATUS, "problem": "the disk is full"})) == "problem: the disk is full"


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
        {
            ("t", 0): Ongoing((3, 4, 1, 2), (3, 4), (1, 2)),
            ("t", 1): Ongoing((3, 1, 2), (3,), (2,)),
        },
    )
    lines = list(table(listed(found, {("t", 0): Stepping((1, 2), (3, 1))})))
    assert lines == [
        "2 partitions under way, 1 with a step",
        "  t-0  1,2 -> 3,4  step: 1,2 -> 3,1",
        "  t-1  1,2 -> 3,1",
    ]


def test_admin_port_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    with admin_port(json.dumps(STATUS)) as url:
        assert main(["reassign", "status", "--admin", url]) == 0
        assert "2 partitions under way" in capsys.readouterr().out
        assert main(["reassign", "status", "--admin", url, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == STATUS


def test_mode_pass_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with admin_port('{"mode": "pass"}') as url:
        assert main(["reassign", "status", "--admin", url]) == 0
    assert "pass as they are" in capsys.readouterr().out


@pytest.mark.parametrize(
    "where", ["--admin=http://127.0.0.1:1", "--admin=127.0.0.1:1", "--bootstrap-server=127.0.0.1:1"]
)
def test_nobody_there_is_one_line(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reassign", "status", where]) != 0
    error = capsys.readouterr().err
    assert "127.0.0.1:1" in error
    assert error.count("\n") == 1
