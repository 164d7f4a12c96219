"""Files that can be read, and what is said of those that can not."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from offline.errors import CaptureError
from offline.replay import reading
from offline.replay.reading import capture_files, read
from offline.replay.schedule import Part
from protocol.capture import COLUMNS
from tests.support.captures import schema, write

EXAMPLES: dict[str, Any] = {
    "string": "x",
    "list<struct>": [{"topic": "t", "partition": 1, "bytes": 2, "records": 3}],
}


ROW = {column.name: EXAMPLES.get(column.type, 7) for column in COLUMNS}


def written(path: Path, rows: int = 2, columns: pa.Schema | None = None) -> Path:
    return write(path, [ROW] * rows, columns)


def with_field(name: str, field: pa.Field) -> pa.Schema:
    columns = schema()
    return columns.set(columns.get_field_index(name), field)


def test_rows_are_read_in_order_of_the_files(tmp_path: Path) -> None:
    written(tmp_path / "capture-p-000002.parquet", 1)
    written(tmp_path / "capture-p-000001.parquet", 2)
    (tmp_path / "capture-p-000003.parquet.inprogress").write_bytes(b"half")
    (tmp_path / "other.parquet").write_bytes(b"foreign")
    files = capture_files([tmp_path])
    assert [path.name for path in files] == ["capture-p-000001.parquet", "capture-p-000002.parquet"]
    rows = read(files)
    assert len(rows) == 3
    assert (rows[0].client_id, rows[0].api_key, rows[0].partitions) == ("x", 7, (Part("t", 1, 2, 3),))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing", "there is no such file"),
        ("capture-p-1.parquet.inprogress", "is not finished"),
        ("empty", "no capture-\\*.parquet there"),
    ],
)
def test_missing_path_is_named(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "capture-p-1.parquet.inprogress").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CaptureError, match=f"{name}.*{problem}"):
        capture_files([tmp_path / name])


def test_file_that_was_cut_short_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "capture-p-1.parquet", 100)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(CaptureError, match=r"capture-p-1.parquet: is not a Parquet file, or was cut short"):
        read([path])


def test_foreign_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="is Parquet, and no capture of Sluice"):
        read([written(tmp_path / "x.parquet", columns=schema(None))])


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("client_id", None, r"Expected `str`, got `null` - at `\$.client_id`"),
        ("request_bytes", 1 << 40, r"Expected `int` <= 2147483647 - at `\$.request_bytes`"),
    ],
)
def test_malformed_row_is_named(tmp_path: Path, column: str, value: object, problem: str) -> None:
    nullable = with_field(column, schema().field(column).with_nullable(nullable=True))
    path = write(tmp_path / "x.parquet", [ROW, ROW | {column: value}], nullable)
    with pytest.raises(CaptureError, match=f"x.parquet: row 2 is not of the layout: .*{problem}"):
        read([path])


def test_capture_without_rows_says_so(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="nothing was captured"):
        read([written(tmp_path / "x.parquet", 0)])


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"bytes": None}, r"got `null` - at `\$.partitions\[0\].bytes`"),
        ({"topic": None}, r"got `null` - at `\$.partitions\[0\].topic`"),
        ({"partition": None}, r"got `null` - at `\$.partitions\[0\].partition`"),
        (None, "missing required field `bytes`"),
    ],
)
def test_malformed_partition_is_named(tmp_path: Path, entry: dict[str, object] | None, problem: str) -> None:
    fields = [field.with_nullable(nullable=True) for field in schema().field("partitions").type.value_type]
    if entry is None:
        fields = [field for field in fields if field.name != "bytes"]
    columns = with_field("partitions", pa.field("partitions", pa.list_(pa.struct(fields)), nullable=False))
    row = ROW | {"partitions": [EXAMPLES["list<struct>"][0] | (entry or {})]}
    with pytest.raises(CaptureError, match=f"row 1 is not of the layout: .*{problem}"):
        read([write(tmp_path / "x.parquet", [row], columns)])


def with_frames(path: Path, frames: list[bytes | None]) -> Path:
    columns = schema().append(pa.field("frame", pa.binary()))
    return write(path, [ROW | {"frame": frame} for frame in frames], columns)


def test_frames_are_read_with_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FRAMES_AT_ONCE", 2)
    path = with_frames(tmp_path / "x.parquet", [b"a", b"", b"c"])
    assert [row.frame for row in read([path])] == [b"a", b"", b"c"]
    with pytest.raises(CaptureError, match="row 1 is not of the layout: Expected `bytes`, got `null`"):
        read([with_frames(tmp_path / "y.parquet", [None])])


def test_more_than_memory_holds_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A row, its one partition, and a frame of 1 MiB; of the second there is no room.
    monkeypatch.setattr(reading, "HELD_BYTES_MAX", 2 << 20)
    path = with_frames(tmp_path / "x.parquet", [bytes(1 << 20)] * 2)
    with pytest.raises(CaptureError, match=r"x.parquet: takes more than 2 MiB of memory, .*after 1 requests"):
        read([path])
    monkeypatch.setattr(reading, "HELD_BYTES_MAX", 3 << 20)
    assert len(read([path])) == 2
