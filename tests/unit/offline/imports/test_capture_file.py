"""The files that an import writes are those of the proxy's capture."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline.imports.capture_file import CaptureFile, schema
from protocol.capture import CLASS, COLUMNS, SOURCE_KEY
from proxy.capture.tables import Tables
from quotas.definitions.entities import BucketKey
from tests.support.captures import row

PARTITIONS = [("t", 0, 100, 1), ("", -1, 200, -1)]


def limit(key: str, user: str, client_id: str) -> tuple[None, BucketKey]:
    return None, BucketKey(None, client_id)


def values(number: int, **fields: object) -> list[object]:
    """A row as values in the order of the columns."""
    made = row(number, **fields)
    return [made[column.name] for column in COLUMNS]


def test_the_schema_is_the_proxys_without_the_class_of_quotas_in_force() -> None:
    proxys = Tables("p", lambda _: None, limit).schema
    assert schema() == proxys.remove(proxys.get_field_index(CLASS.name))
    assert schema().metadata == proxys.metadata


def test_rows_come_back_as_they_were_added(tmp_path: Path) -> None:
    file = CaptureFile(tmp_path / "new", "p")
    file.add(values(0, partitions=PARTITIONS))
    file.add(values(1))
    assert list((tmp_path / "new").glob("*.parquet")) == []  # not complete yet
    file.finish("high: made up")
    assert file.path.name == "capture-p-000001.parquet"
    names = ("topic", "partition", "bytes", "records")
    expected = [row(0, partitions=[dict(zip(names, entry, strict=True)) for entry in PARTITIONS]), row(1)]
    found = pq.read_table(file.path)
    assert found.to_pylist() == expected
    assert pq.read_metadata(file.path).metadata[SOURCE_KEY.encode()] == b"high: made up"


def test_many_rows_are_written_as_they_come(tmp_path: Path) -> None:
    file = CaptureFile(tmp_path, "p")
    for number in range(70_000):
        file.add(values(number))
    file.finish("high: made up")
    metadata = pq.read_metadata(file.path)
    assert (metadata.num_rows, metadata.num_row_groups) == (70_000, 2)  # 65,536 weigh a group
    assert file.rows == 70_000


def test_an_import_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    file = CaptureFile(tmp_path, "p")
    file.add(values(0))
    file.discard()
    assert list(tmp_path.iterdir()) == []


def test_an_import_replaces_an_earlier_one_of_the_same_recording(tmp_path: Path) -> None:
    for rows in (2, 1):
        file = CaptureFile(tmp_path, "p")
        file.add_table(pa.Table.from_pylist([row(number) for number in range(rows)], schema()))
        file.finish("high: made up")
    (path,) = tmp_path.iterdir()
    assert path.name == "capture-p-000001.parquet"
    assert pq.read_metadata(path).num_rows == 1


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        CaptureFile(tmp_path / "file", "p")
