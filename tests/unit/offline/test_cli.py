"""The command line: what is said where something is missing, in one line and with exit code 1."""

import sys
from pathlib import Path

import pytest

from commandline.arguments import not_installed
from offline import session
from offline.cli import main
from offline.errors import SetupError
from offline.inputs import new_mark


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("sluice-offline: ")
    assert error.count("\n") == 1
    return error


@pytest.fixture
def ingested(tmp_path: Path) -> str:
    """A work directory whose stage ingest looks finished."""
    work = tmp_path / "work"
    (work / "ingest").mkdir(parents=True)
    (work / "ingest" / "_SUCCESS").write_text(new_mark("ingest", {}))
    return str(work)


def test_a_missing_java_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ingested: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"JAVA_HOME is {tmp_path}" in failed(capsys, "demand", "--input", ingested)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    said = failed(capsys, "demand", "--input", ingested)
    assert "java is not on the PATH and JAVA_HOME is not set" in said


def test_jars_that_are_not_there_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    topic = ("--kafka", "x:1", "--topic", "t")
    said = failed(capsys, "ingest", "--output", str(tmp_path), *topic, "--jars", str(tmp_path))
    assert "has no jars: run `make spark-jars`" in said


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever starts Spark fails."""

    def start(_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "spark_session", start)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run --input captur --output new", "captur does not exist; did you mean capture?"),
        ("ingest --input work --output new", "no capture in work: no file is named capture-*.parquet"),
        ("ingest --input zzz --output new", "zzz does not exist\n"),
        ("ingest --output new --kafka h:1", "no input is given: use --input CAPTURE ..., or --kafka"),
        ("run --input file --output new", "file is no whole Parquet file: cut off, or something else"),
        ("ingest --input capture --output new", "capture-p-1.parquet is no whole Parquet file"),
        ("demand --input file", "--input file: is a file, not a work directory"),
        ("run --input capture --output file/w", "--output file/w: "),
        ("run --input capture --output new --fetch-quotas 1M,fast", "--fetch-quotas"),
        ("demand", "no work directory is given: use --input DIR"),
        ("demand --input wrk", "wrk does not exist; did you mean work?"),
        ("backtest --input work", "work has no finished stage demand: run `sluice-offline demand` first"),
        ("demand --input work --output file", "file is a file, not a directory"),
        ("evaluate --input captur --output new", "captur does not exist; did you mean capture?"),
        (
            "evaluate --input work --output new",
            "no recording in work: no subdirectory has capture files, or a",
        ),
        ("evaluate --input file --output new", "--input file: is a file, not a directory of recordings"),
        ("evaluate --input work --output new --quotas-file quotas", "quotas is not a valid quotas file: "),
        (
            "evaluate --input work --output new --quotas-file quotas.toml --policy kip13",
            'quotas.toml states a capacity, which the policy "kip13" has not: use --policy schedule',
        ),
        (
            "evaluate --input work --output new --quotas-file quotas.toml --scope broker",
            "quotas.toml states a capacity of scope cluster",
        ),
    ],
)
def test_mistyped_input_is_reported_before_spark_starts(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    ingested: str,
    arguments: str,
    said: str,
) -> None:
    assert ingested == str(tmp_path / "work")
    (tmp_path / "capture").mkdir()
    (tmp_path / "capture" / "capture-p-1.parquet").write_bytes(b"")
    (tmp_path / "file").write_text("")
    (tmp_path / "quotas.toml").write_text('[[capacity]]\nscope = "cluster"\nin = "10M"\n')
    monkeypatch.chdir(tmp_path)
    assert said in failed(capsys, *arguments.split())
    assert not (tmp_path / "new").exists()


def test_start_of_spark_is_announced_before_it_and_bad_files_are_left_to_lenient_ingest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start(_: object) -> None:
        assert capsys.readouterr().out == "starting Spark with master local[3]\n"
        raise SetupError("Spark was started")

    monkeypatch.setattr(session, "spark_session", start)
    (tmp_path / "file").write_text("")
    arguments = ["run", "--input", str(tmp_path / "file"), "--output", str(tmp_path / "new"), "--lenient"]
    assert failed(capsys, *arguments, "--master", "local[3]") == "sluice-offline: Spark was started\n"


@pytest.mark.parametrize(
    "arguments",
    [
        "recommend --input w --throttled-share 1.5",
        "recommend --input w --capacity-in fast",
        "recommend --input w --sample 0",
        "recommend --input w --sample 1.01",
        "run --input c --output w --sample 0.0",
        "backtest --input w --candidates 1",
        "evaluate --input r",
        "evaluate --input r --output w --day 1",
        "ingest --input c",
        "guess",
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(arguments: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2


def test_replay_without_pyarrow_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "capture-p-1.parquet").write_bytes(b"")
    assert main(["replay", str(tmp_path), "--target", "127.0.0.1:1"]) == 1
    said = capsys.readouterr().err
    assert said == f"sluice-offline replay: {not_installed('pyarrow', 'offline')}\n"
