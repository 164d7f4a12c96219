"""Which files are refused before Spark reads anything, and what is said."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline.capture_files import files_of, read_footers
from offline.errors import InputError
from offline.synthetic import Client, arrow_schema, write_capture
from protocol.capture import SCHEMA_KEY

CLIENT = Client(name="a", shape="steady", rate=1e6)


def problem(path: Path) -> str:
    return next(read_footers([str(path)])).problem


def test_a_complete_capture_has_no_problem(tmp_path: Path) -> None:
    rows = write_capture(tmp_path, [CLIENT], 2)
    (name,) = files_of([str(tmp_path)])
    assert list(read_footers([name])) == [(name, rows, "")]
    assert rows > 50  # 1 MB/s in requests of 16 KiB, 2 s


def test_unfinished_files_are_passed_over(tmp_path: Path) -> None:
    write_capture(tmp_path, [CLIENT], 1)
    (tmp_path / "capture-x-9.parquet.inprogress").write_bytes(b"half")
    assert len(files_of([str(tmp_path)])) == 1


def test_a_directory_without_captures_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no capture in"):
        files_of([str(tmp_path)])


def test_an_input_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        files_of([str(tmp_path / "nowhere")])


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    write_capture(tmp_path, [CLIENT], 2)
    (name,) = files_of([str(tmp_path)])
    Path(name).write_bytes(Path(name).read_bytes()[:-40])
    assert "is no whole Parquet file" in problem(Path(name))


def test_foreign_parquet_is_no_capture(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    assert problem(tmp_path / "x.parquet").startswith("is Parquet, and no capture")


def test_an_older_version_of_the_layout_is_reported(tmp_path: Path) -> None:
    schema = arrow_schema().with_metadata({SCHEMA_KEY: "0"})
    pq.write_table(schema.empty_table(), tmp_path / "x.parquet")
    assert problem(tmp_path / "x.parquet") == "was written by an older version of the layout (0; this is 1)"


def test_a_missing_column_and_a_wrong_type_are_named(tmp_path: Path) -> None:
    schema = arrow_schema()
    less = schema.remove(schema.get_field_index("seq"))
    pq.write_table(less.empty_table(), tmp_path / "less.parquet")
    other = schema.set(schema.get_field_index("broker"), pa.field("broker", pa.string()))
    pq.write_table(other.empty_table(), tmp_path / "other.parquet")
    assert problem(tmp_path / "less.parquet") == "has no column seq"
    assert problem(tmp_path / "other.parquet") == "has a column broker of type string, which should be int32"


def test_the_same_call_writes_the_same_rows(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_capture(tmp_path / name, [CLIENT], 1, seed=3)
    one, two = (pq.read_table(files_of([str(tmp_path / name)])[0]) for name in ("one", "two"))
    assert one.equals(two)
