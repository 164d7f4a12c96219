"""`sluice capture inspect` and `frames`: what is printed, and what is configured."""

from pathlib import Path

import pytest

from commandline.arguments import not_installed
from proxy import cli
from proxy.capture.tables import Tables
from proxy.config import Config
from tests.unit.proxy.capture.rows import batch, row


def written(path: Path, *, frames: bool = False) -> Path:
    made = Tables("p", lambda _id: None, frames=frames)
    rows = [[*row(0), bytes(161)], [*row(1), b""]] if frames else [row(0), row(1)]
    with path.open("wb") as file:
        writer = made.writer(file)
        writer.write_table(
            made.concatenate([made.convert(batch(*rows, wall_minus_mono_ns=1_700_000_000_000_000_000))])
        )
        writer.close()
    return path


def test_inspect_shows_the_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "capture-p-000001.parquet")
    (tmp_path / "capture-p-000002.parquet.inprogress").write_bytes(bytes(2000))
    assert cli.main(["capture", "inspect", str(tmp_path)]) == 0
    found = capsys.readouterr().out
    assert "2 rows of 1 connection\n  2023-11-14 22:13:25 UTC to" in found
    assert "  requests: Produce 2" in found
    assert "'c' 434 B" in found  # 2 requests of 157 bytes and responses of 60
    assert "capture-p-000002.parquet.inprogress: 2.0 kB, not finished" in found


def test_inspect_counts_complete_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "capture-p-000001.parquet", frames=True)
    assert cli.main(["capture", "inspect", str(tmp_path / "capture-p-000001.parquet")]) == 0
    assert "2 rows of 1 connection, 1 whole request" in capsys.readouterr().out


def test_inspect_names_unreadable_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "capture-p-000001.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    assert cli.main(["capture", "inspect", str(tmp_path)]) == 1
    assert "capture-p-000001.parquet: cannot be read: " in capsys.readouterr().out


def test_inspect_of_nothing_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["capture", "inspect", str(tmp_path)]) == 1
    assert "no capture-*.parquet in" in capsys.readouterr().err


def test_frames_is_a_relay_that_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Config] = []

    def run(config: Config) -> int:
        ran.append(config)
        return 0

    monkeypatch.setattr("proxy.app.run", run)
    words = ["capture", "frames", "--bootstrap-server", "h:1", "--listen", "127.0.0.1:20000"]
    assert cli.main([*words, "--directory", str(tmp_path), "--payload", "keep"]) == 0
    (config,) = ran
    assert (config.capture.directory, config.capture.frames) == (tmp_path.resolve(), "keep")
    assert (config.listeners[0].bootstrap_port, config.admin.bind) == (20000, None)


def test_missing_pyarrow_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    words = ["capture", "frames", "--bootstrap-server", "127.0.0.1:1", "--listen", "127.0.0.1:20000"]
    assert cli.main([*words, "--directory", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"sluice: capture.directory: {not_installed('pyarrow', 'capture')}\n"


def test_captures_are_not_inspected_without_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    assert cli.main(["capture", "inspect", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"sluice: captures are Parquet: {not_installed('pyarrow', 'capture')}\n"
