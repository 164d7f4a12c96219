"""The command line: what is checked before, what ends it, and with which code."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offline.cli import main
from offline.replay.messages import Broker, Topic
from offline.replay.target import Placement
from protocol.api import HEARTBEAT, PRODUCE
from tests.cluster import HOST, free_port
from tests.support.captures import row, write
from tests.support.frame_server import serving
from tests.unit.offline.replay.rows import response_to

asked = threading.Event()


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that responds to everything."""

    def respond(frame: bytes) -> bytes:
        asked.set()
        return response_to(frame[4:])

    asked.clear()
    with serving(respond) as port:
        yield port


def capture(directory: Path, count: int, api_key: int = HEARTBEAT, **more: Any) -> Path:
    """A request every 20 ms, on one connection."""
    rows = [row(number, api_key=api_key, **more) for number in range(count)]
    return write(directory / "capture-p-000001.parquet", rows)


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Run the command against a port; nothing is asked of the target before."""

    def run(port: int, rows: Path, *words: str) -> tuple[int, dict[str, Any]]:
        async def prepared(address: Broker, *_args: object, **_more: object) -> Placement:
            return Placement({-1: address, 1: address}, {-1: 1, 1: 1}, {"a": Topic(0, {0: 1})})

        monkeypatch.setattr("offline.replay.prepare.prepare", prepared)
        report = tmp_path / "found.json"
        line = ["replay", str(rows), "--target", f"{HOST}:{port}", "--no-progress", "--json", str(report)]
        code = main([*line, *words])
        assert sorted(path.name for path in tmp_path.glob("*.inprogress")) == []
        return code, json.loads(report.read_text()) if report.exists() else {}

    return run


Replay = Callable[..., tuple[int, dict[str, Any]]]


def test_replay_with_responses_exits_0(tmp_path: Path, echo: int, replay: Replay) -> None:
    code, found = replay(echo, capture(tmp_path, 5), "--html", str(tmp_path / "found.html"))
    assert (code, found["requests"]["answered"], found["stopped_by_signal"]) == (0, 5, 0)
    assert found["apis"]["Heartbeat (as Metadata)"]["answered"] == 5
    assert (tmp_path / "found.html").exists()


@pytest.mark.parametrize(("there", "expected"), [(True, (0, 5)), (False, (3, 0))])
def test_replay_without_expected_responses_succeeds_if_the_target_is_reached(
    tmp_path: Path, echo: int, replay: Replay, there: bool, expected: tuple[int, int]
) -> None:
    part = {"topic": "a", "partition": 0, "bytes": 100, "records": 1}
    rows = capture(tmp_path, 5, PRODUCE, response_bytes=-1, partitions=[part])
    code, found = replay(echo if there else free_port(), rows)
    assert (code, found["requests"]["sent"]) == expected


def test_exit_code_reports_that_no_request_had_a_response(tmp_path: Path, replay: Replay) -> None:
    code, found = replay(free_port(), capture(tmp_path, 5))
    assert (code, found["requests"]["never_connected"]) == (3, 5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_replay_reports_its_results_so_far(
    tmp_path: Path, echo: int, replay: Replay, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """A minute's recording."""
    before = signal.getsignal(number)

    def stop() -> None:
        asked.wait(30)
        os.kill(os.getpid(), number)

    threading.Thread(target=stop, daemon=True).start()
    began = time.monotonic()
    code, found = replay(echo, capture(tmp_path, 3000))
    assert time.monotonic() - began < 30
    assert (code, found["stopped_by_signal"]) == (128 + number, number)
    assert found["requests"]["not_reached"] > 1000
    assert f"stopped by {number.name}" in capsys.readouterr().out
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is a directory"),
        ("not/there.json", "not/there.json"),
        ("capture-p-000001.parquet/x", "Not a dir"),
    ],
)
def test_unwritable_report_is_reported_before_the_start(
    tmp_path: Path, echo: int, replay: Replay, name: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = replay(echo, capture(tmp_path, 3), "--html", str(tmp_path / name))
    assert code == 1
    captured = capsys.readouterr()
    assert problem in captured.err
    assert (len(captured.err.splitlines()), captured.out) == (1, "")


@pytest.mark.parametrize("text", ["x", "h:0", "h:99999", ":1", "h:x", "x..y:9092", "a" * 64 + ":1"])
def test_impossible_address_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["replay", str(tmp_path), "--target", text])
    assert "is not HOST:PORT" in capsys.readouterr().err
