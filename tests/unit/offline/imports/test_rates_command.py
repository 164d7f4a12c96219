"""`sluice-offline import prometheus` and `import csv` as commands: what they write, say and refuse."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from offline.cli import main
from offline.inputs import files_of, read_footers
from protocol.capture import SOURCE_KEY

CSV = "time,web,app\n2026-01-01T00:00:15,1000000,2000\n2026-01-01T00:00:30,500000,0\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Two clients, two steps of 15 s."""
    path = tmp_path / "rates.csv"
    path.write_text(CSV, encoding="utf-8")
    return str(path)


def test_rates_become_a_capture_that_says_what_it_cannot_know(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, file: str
) -> None:
    output = tmp_path / "out"
    assert main(["import", "csv", file, "--direction", "produce", "--output", str(output)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("import: 4 points of 2 series: 2 clients, 30.0 s\n")
    (checked,) = read_footers(files_of([str(output)]))
    assert checked.problem == ""
    written = pq.ParquetFile(checked.path)
    source = written.metadata.metadata[SOURCE_KEY.encode()].decode()
    assert source.startswith("low: rates by steps of 15 s, so bursts within a step are not known; ")
    assert source in said
    rows = [row for row in written.read().to_pylist() if row["api_key"] == 0]
    # web: 15 MB and 7.5 MB; app: 30 kB and nothing.
    assert sum(row["request_bytes"] for row in rows if row["client_id"] == "web") == 22_500_000
    assert [row["request_bytes"] for row in rows if row["client_id"] == "app"] == [30_000]
    assert [path.name for path in output.iterdir()] == [Path(checked.path).name]


def test_same_rates_make_the_same_file(tmp_path: Path, file: str) -> None:
    for name in ("one", "two"):
        assert main(["import", "csv", file, "--direction", "fetch", "--output", str(tmp_path / name)]) == 0
    (one,), (two,) = ([*(tmp_path / name).iterdir()] for name in ("one", "two"))
    assert one.name == two.name
    assert one.read_bytes() == two.read_bytes()


def test_files_follow_each_other_and_a_wrong_order_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = []
    for number in range(2):
        values = [[1_767_225_600 + 15 * (4 * number + place), "1000000"] for place in range(4)]
        labels = {"__name__": "kafka_server_produce_byte_rate", "client_id": "web"}
        data = {"resultType": "matrix", "result": [{"metric": labels, "values": values}]}
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps({"status": "success", "data": data}), encoding="utf-8")
    assert main(["import", "prometheus", *map(str, files), "--output", str(tmp_path / "out")]) == 0
    assert "8 points of 1 series: 1 client, 2 min 0 s\n" in capsys.readouterr().out
    assert main(["import", "prometheus", *map(str, files[::-1]), "--output", str(tmp_path / "other")]) == 1
    assert "0.json: the series kafka_server_produce_byte_rate" in capsys.readouterr().err
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("csv FILE --output out", "use --direction (2 series)"),
        ("csv none --output out", "none: No such file"),
        ("csv FILE --direction fetch --output FILE", "File exists"),
        ("csv FILE --direction fetch --output full", "has a capture already (capture-p-1.parquet)"),
        ("prometheus FILE --output out", "is no response of Prometheus"),
        ("prometheus --output out", "use either files, or --url with --start"),
        ("prometheus FILE --url http://x --output out", "use either files, or --url with --start"),
        ("prometheus --url http://x --output out", "--url needs --start"),
        ("prometheus --url http://x --start 9 --end 8 --output out", "--start must be before --end"),
        ("prometheus --url x --start 9 --output out", "is no URL"),
        ("prometheus --url https://x --start 9 --token-file none --output out", "cannot be read as a token"),
        ("prometheus --url https://x --start 9 --token-file FILE --output out", "is no token"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    file: str,
    arguments: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "capture-p-1.parquet").touch()
    assert main(["import", *arguments.replace("FILE", file).split()]) == 1
    error = capsys.readouterr().err
    assert error.startswith("sluice-offline: ")
    assert error.count("\n") == 1
    assert said in error
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize(
    "arguments", ["--label name=x", "--step 0", "--step x", "--start soon", "--end inf", "--direction up"]
)
def test_arguments_that_are_none_of_their_kind_end_with_2(
    capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["import", "prometheus", "--url", "http://x", "--output", "out", *arguments.split()])
    assert ended.value.code == 2
    assert arguments.split(maxsplit=1)[0] in capsys.readouterr().err
