"""`compare` with a quotas file: what it prints and writes, its exit codes, and its errors. No Spark is started."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline.cli import main
from offline.inputs import MARK, new_mark
from offline.options import Goal, RecommendSettings, settings_text
from offline.schemas import TABLES
from proxy.commands.quota_formats import read
from quotas.definitions.alterations import Quotas, differences
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.toml_file import parse

SURE: Final = "high: 30.0 days of 500 clients"
DAY_S: Final = 86_400
_TYPES: Final = {"string": pa.string(), "double": pa.float64(), "bigint": pa.int64(), "boolean": pa.bool_()}
_EMPTY: Final = {"string": "", "double": -1.0, "bigint": -1, "boolean": False}


def write_recommendation(
    work: Path,
    needs: Mapping[str, float],
    default: float,
    overrides: Mapping[str, float],
    *,
    ladder: Sequence[float],
    seconds: int = 30 * DAY_S,
    confidence: str = SURE,
    sample: float = 1.0,
) -> None:
    """Write what is recommended for produce, for clients with these needs in bytes/s."""
    lines = [("default", "<default>", default), *(("override", name, one) for name, one in overrides.items())]
    tables: dict[str, list[dict[str, Any]]] = {
        "demand/span": [{"recorded_seconds": seconds}],
        "recommend/needs": [
            {"direction": "produce", "client_id": name, "need": need, "quota": overrides.get(name, default)}
            for name, need in needs.items()
        ],
        "recommend/recommendations": [
            {
                "kind": kind,
                "client_id": name,
                "user": "<default>" if kind == "default" else "",
                "key": "producer_byte_rate",
                "value": value,
                "confidence": confidence,
            }
            for kind, name, value in lines
        ],
        "recommend/curve": [{"direction": "produce", "quota": quota} for quota in ladder],
    }
    for name, rows in tables.items():
        columns = TABLES[name]
        schema = pa.schema([(column.name, _TYPES[column.type]) for column in columns])
        filled = [
            {column.name: row.get(column.name, _EMPTY[column.type]) for column in columns} for row in rows
        ]
        (work / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(filled, schema=schema), work / name / "part-0.parquet")
    settings = RecommendSettings(
        goal=Goal(sample=sample),
        by="client-id",
        policy="schedule",
        scope="cluster",
        confidence=confidence,
        today={},
    )
    (work / "recommend" / "settings.json").write_text(settings_text(settings))
    for stage in ("demand", "recommend"):
        (work / stage / MARK).write_text(new_mark(stage, {}))


LADDER = (110e3, 220e3, 500e3, 1e6, 2e6, 2.2e6, 10e6)
NOTE = (
    'for policy "schedule" and scope "cluster": each quota holds over all brokers together; 30.0 days recorded, '
    "lowest confidence high: 30.0 days of 500 clients"
)
TABLE = (
    f"{NOTE}\n"
    "drift      entity              quota               in force    needs     proposed   why\n"
    "too tight  client-id 'report'  producer_byte_rate  500.0 kB/s  2.0 MB/s  2.2 MB/s   its requests would have "
    "waited; it needs 2.0 MB/s\n"
    "new        client-id 'hog'     producer_byte_rate  none        9.0 MB/s  10.0 MB/s  only the default of 220.0 "
    "kB/s covers it; it needs 9.0 MB/s\n"
    "unused     client-id 'old'     producer_byte_rate  1.0 MB/s    –         remove     no produce request in "
    "30.0 days\n"
    "unchanged: 1 quota\n"
    "not judged: a group: the recording has clients, and no groups (group 'team' producer_byte_rate; "
    "client-id 'team-*', group 'team' member)\n"
    "not judged: no quota of bytes: the recording recommends byte rates (client-id 'report' request_percentage)\n"
    "{file}: 3 quotas to change\n"
)
IN_FORCE = """\
# Ours.
[[quota]]
client_id = "<default>"
producer_byte_rate = "220k"

# The nightly report.
[[quota]]
client_id = "report"
producer_byte_rate = "500k"  # asked for in May
request_percentage = 50

[[quota]]
client_id = "old"
producer_byte_rate = "1M"

[[quota]]
group = "team"
producer_byte_rate = "1M"

[[group]]
name = "team"
client_ids = ["team-*"]
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work directory with a recommendation for three clients."""
    needs = {"report": 2e6, "hog": 9e6, "a": 200e3}
    write_recommendation(tmp_path / "work", needs, 220e3, {"hog": 10e6}, ladder=LADDER)
    return tmp_path / "work"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The quotas file that is in force."""
    found = tmp_path / "quotas.toml"
    found.write_text(IN_FORCE)
    return found


def run(work: Path, file: Path, *more: str) -> int:
    return main(["compare", "--input", str(work), "--quotas-file", str(file), *more])


def applied(current: Quotas, wanted: Quotas) -> Quotas:
    """The quotas after `sluice quotas apply`."""
    found = {entity: dict(values) for entity, values in current.items()}
    for entity, key, _, new in differences(current, wanted, prune=False):
        values = found.setdefault(entity, {})
        values.pop(key, None)
        if new is not None:
            values[key] = new
    return {entity: values for entity, values in found.items() if values}


def test_table_names_each_drift_and_what_is_not_judged(
    work: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(work, file) == 3
    assert capsys.readouterr().out == TABLE.format(file=file)
    assert file.read_text() == IN_FORCE


def test_changes_alone_are_written_with_their_reasons(work: Path, file: Path, tmp_path: Path) -> None:
    changes = tmp_path / "changes.toml"
    assert run(work, file, "--write", str(changes)) == 3
    assert (
        changes.read_text()
        == f"""\
# Changes {NOTE}.

# producer_byte_rate, too tight: its requests would have waited; it needs 2.0 MB/s
[[quota]]
client_id = "report"
producer_byte_rate = 2200000
request_percentage = 50.0

# producer_byte_rate, new: only the default of 220.0 kB/s covers it; it needs 9.0 MB/s
[[quota]]
client_id = "hog"
producer_byte_rate = 10000000

# producer_byte_rate, unused: no produce request in 30.0 days
[[quota]]
client_id = "old"
remove = true
"""
    )
    before = dict(parse(IN_FORCE).entries())
    assert applied(before, read(changes.read_text(), "toml")) == {
        **{entity: values for entity, values in before.items() if entity != Entity(client_id="old")},
        Entity(client_id="report"): {"producer_byte_rate": 2.2e6, "request_percentage": 50.0},
        Entity(client_id="hog"): {"producer_byte_rate": 10e6},
    }


def test_the_quotas_file_itself_is_edited_and_then_there_is_nothing_to_change(
    work: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(work, file, "--write", str(file)) == 3
    assert file.read_text() == (
        IN_FORCE.replace('"500k"', '"2200k"').replace(
            '[[quota]]\nclient_id = "old"\nproducer_byte_rate = "1M"\n\n', ""
        )
        + '\n[[quota]]\nclient_id = "hog"\nproducer_byte_rate = 10000000\n\n'
    )
    capsys.readouterr()
    before = file.stat().st_mtime_ns
    assert run(work, file, "--write", str(file)) == 0
    assert file.stat().st_mtime_ns == before
    assert capsys.readouterr().out.splitlines()[-1] == f"{file}: nothing to change"


def test_without_changes_the_file_says_so(work: Path, file: Path, tmp_path: Path) -> None:
    changes = tmp_path / "changes.toml"
    changes.write_text("those of last week")
    assert (
        run(work, file, "--confidence", "high", "--change", "99", "--wide", "1e9", "--write", str(changes))
        == 3
    )
    file.write_text('[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = 10000000\n')
    assert run(work, file, "--wide", "100", "--write", str(changes)) == 0
    assert changes.read_text() == f"# Changes {NOTE}.\n# Nothing to change.\n"
    assert read(changes.read_text(), "toml") == {}


def test_json_has_every_quota_in_base_units(
    work: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(work, file, "--format", "json") == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["changes"], found["recorded_seconds"], found["by"]) == (3, 30 * 86_400, "client-id")
    assert found["quotas"][0] == {
        "client_id": "report",
        "key": "producer_byte_rate",
        "drift": "too tight",
        "in_force": 500_000.0,
        "need": 2_000_000.0,
        "proposed": 2_200_000.0,
        "reason": "its requests would have waited; it needs 2.0 MB/s",
        "changes": True,
        "held_back": "",
    }
    assert [one["drift"] for one in found["quotas"]] == ["too tight", "new", "unused", "unchanged"]
    assert [one["key"] for one in found["not_judged"]] == [
        "request_percentage",
        "producer_byte_rate",
        "member",
    ]


def test_a_short_recording_proposes_nothing_and_says_why(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = "low: 40 s recorded, so no daily peak"
    write_recommendation(
        tmp_path / "work", {"report": 2e6}, 220e3, {}, ladder=LADDER, seconds=40, confidence=short
    )
    assert run(tmp_path / "work", file) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith(f"40 s recorded, lowest confidence {short}")
    assert said[2] == (
        "too tight  client-id 'report'  producer_byte_rate  500.0 kB/s  2.0 MB/s  held back  its requests would have "
        f"waited; it needs 2.0 MB/s [confidence {short}]"
    )
    assert said[-1] == f"{file}: nothing to change"
    assert run(tmp_path / "work", file, "--confidence", "low") == 3


def test_names_cannot_break_out_of_a_comment(tmp_path: Path) -> None:
    name = 'x"\n[[quota]]\nuser = "root"\nproducer_byte_rate = 1\n#'
    write_recommendation(tmp_path / "work", {name: 9e6}, 220e3, {name: 10e6}, ladder=LADDER)
    file, changes = tmp_path / "quotas.toml", tmp_path / "changes.toml"
    file.write_text('[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = 220000\n')
    assert run(tmp_path / "work", file, "--write", str(changes)) == 3
    assert read(changes.read_text(), "toml") == {Entity(client_id=name): {"producer_byte_rate": 10e6}}


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["compare", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_wrong_input_is_one_line(work: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, quotas = ("--input", str(work)), ("--quotas-file", str(file))
    where = "say where the quotas in force are: --quotas-file FILE, or --bootstrap-server HOST:PORT"
    assert where in failed(capsys, *own)
    assert where in failed(capsys, *own, *quotas, "--bootstrap-server", "h:1")
    assert "has no finished stage recommend: run `sluice-offline recommend` first" in failed(
        capsys, "--input", str(work.parent), *quotas
    )
    assert "is not a valid quotas file" in failed(capsys, *own, "--quotas-file", str(work / "nope.toml"))
    nowhere = work / "no" / "changes.toml"
    assert f"{nowhere} cannot be written" in failed(capsys, *own, *quotas, "--write", str(nowhere))
    (work / "recommend" / "needs" / "part-0.parquet").write_bytes(b"PAR1")
    assert f"{work}/recommend/needs cannot be read" in failed(capsys, *own, *quotas)


def test_a_sample_is_refused(tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_recommendation(tmp_path / "work", {}, -1.0, {}, ladder=(), sample=0.1)
    assert "only 0.1 of the connections were captured" in failed(
        capsys, "--input", str(tmp_path / "work"), "--quotas-file", str(file)
    )


def test_a_default_client_named_in_force_is_kept_by_the_file(work: Path, file: Path) -> None:
    assert Entity(client_id=DEFAULT) in dict(parse(file.read_text()).entries())
    assert run(work, file, "--write", str(file)) == 3
    assert dict(parse(file.read_text()).entries())[Entity(client_id=DEFAULT)] == {"producer_byte_rate": 220e3}
