"""`sluice capture inspect` and `frames`: what is printed, and what is configured."""

from pathlib import Path

import pytest

from commandline.arguments import not_installed
from proxy.capture.tables import Tables
from proxy.config import Config
from quotas.definitions.definitions import Definitions
from tests.support.command_line import Sluice
from tests.unit.proxy.capture.rows import batch, row


def written(path: Path, *, frames: bool = False) -> Path:
    made = Tables("p", lambda _id: None, Definitions().limit, frames=frames)
    rows = [[*row(0), bytes(161)], [*row(1), b""]] if frames else [row(0), row(1)]
    with path.open("wb") as file:
        writer = made.writer(file)
        writer.write_table(
            made.concatenate([made.convert(batch(*rows, wall_minus_mono_ns=1_700_000_000_000_000_000))])
        )
        writer.close()
    return path


def test_inspect_shows_the_capture(tmp_path: Path, sluice: Sluice) -> None:
    written(tmp_path / "capture-p-000001.parquet")
    (tmp_path / "capture-p-000002.parquet.inprogress").write_bytes(bytes(2000))
    found = sluice("capture", "inspect", tmp_path)
    assert "2 rows of 1 connection\n  2023-11-14 22:13:25 UTC to" in found
    assert "  requests: Produce 2" in found
    assert "'c' 434 B" in found  # 2 requests of 157 bytes and responses of 60
    assert "capture-p-000002.parquet.inprogress: 2.0 kB, not finished" in found


def test_inspect_counts_complete_requests(tmp_path: Path, sluice: Sluice) -> None:
    path = written(tmp_path / "capture-p-000001.parquet", frames=True)
    assert "2 rows of 1 connection, 1 whole request" in sluice("capture", "inspect", path)


def test_inspect_names_unreadable_files(tmp_path: Path, sluice: Sluice) -> None:
    path = written(tmp_path / "capture-p-000001.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    said = sluice("capture", "inspect", tmp_path, code=1)
    assert "capture-p-000001.parquet: cannot be read: " in said


def test_inspect_of_nothing_is_an_error(tmp_path: Path, sluice: Sluice) -> None:
    sluice("capture", "inspect", tmp_path, code=1)
    assert "no capture-*.parquet in" in sluice.err


def frames(directory: Path) -> tuple[object, ...]:
    words = ("capture", "frames", "--bootstrap-server", "127.0.0.1:1", "--listen", "127.0.0.1:20000")
    return (*words, "--directory", directory)


def test_frames_is_a_relay_that_records(tmp_path: Path, served: list[Config], sluice: Sluice) -> None:
    sluice(*frames(tmp_path), "--payload", "keep")
    (config,) = served
    assert (config.capture.directory, config.capture.frames) == (tmp_path.resolve(), "keep")
    assert (config.listeners[0].bootstrap_port, config.admin.bind) == (20000, None)


def test_missing_pyarrow_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sluice: Sluice
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    said = not_installed("pyarrow", "capture")
    sluice(*frames(tmp_path), code=1)
    assert sluice.err == f"sluice: capture.directory: {said}\n"
    sluice("capture", "inspect", tmp_path, code=1)
    assert sluice.err == f"sluice: captures are Parquet: {said}\n"
