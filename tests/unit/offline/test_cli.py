"""The command line: what is said where something is missing, in one line and with exit code 1."""

import sys
from pathlib import Path

import pytest

from offline.cli import main


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("sluice-offline: ")
    assert error.count("\n") == 1
    return error


def test_a_missing_java_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = failed(capsys, "demand", "--input", str(tmp_path))
    assert "java is not on the PATH and JAVA_HOME is not set" in said


def test_a_java_home_without_java_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"JAVA_HOME is {tmp_path}" in failed(capsys, "demand", "--input", str(tmp_path))


def test_jars_that_are_not_there_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = failed(capsys, "ingest", "--output", str(tmp_path), "--kafka", "x:1", "--jars", str(tmp_path))
    assert "has no jars: `make spark-jars` brings them" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["recommend", "--input", "w", "--throttled-share", "1.5"],
        ["recommend", "--input", "w", "--capacity-in", "fast"],
        ["recommend", "--input", "w", "--sample", "0"],
        ["recommend", "--input", "w", "--sample", "1.01"],
        ["run", "--input", "c", "--output", "w", "--sample", "0.0"],
        ["backtest", "--input", "w", "--candidates", "1"],
        ["ingest", "--input", "c"],
        ["guess"],
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_replay_without_pyarrow_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "capture-p-1.parquet").write_bytes(b"")
    assert main(["replay", str(tmp_path), "--target", "127.0.0.1:1"]) == 1
    said = capsys.readouterr().err
    assert said == "sluice-offline replay: pyarrow is not installed: Sluice's extra `offline` brings it\n"
