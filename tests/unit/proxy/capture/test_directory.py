"""Names, leftovers and the bound of a directory of captures."""

import os
from pathlib import Path

import pytest

from proxy.capture.directory import Directory
from proxy.errors import StartError


def finished(directory: Directory, name: str, size: int, age: int = 0) -> Path:
    path, file = directory.create(name)
    file.write(bytes(size))
    final = directory.finish(path, file)
    if age:
        os.utime(final, (1_000_000 - age, 1_000_000 - age))
    return final


def test_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    directory = Directory(tmp_path, 1000)
    path, file = directory.create("p-000001")
    file.write(b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["capture-p-000001.parquet.inprogress"]
    assert directory.finished() == []
    directory.finish(path, file)
    assert [entry.path.name for entry in directory.finished()] == ["capture-p-000001.parquet"]


def test_file_is_nobody_elses_business(tmp_path: Path) -> None:
    assert finished(Directory(tmp_path, 1000), "p-1", 1).stat().st_mode & 0o007 == 0


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    directory = Directory(tmp_path, 1000)
    whole = finished(directory, "p-000001", 10)
    (tmp_path / "capture-dead-000001.parquet.inprogress").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    under_way, file = directory.create("p-000002")
    assert Directory(tmp_path, 1000).prepare() == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(
        [whole.name, under_way.name, "notes.txt"]
    )
    file.close()


def test_oldest_files_make_room(tmp_path: Path) -> None:
    directory = Directory(tmp_path, 250)
    for index in range(4):
        finished(directory, f"p-{index}", 100, age=100 - index)
    assert [file.path.name for file in directory.make_room()] == [
        "capture-p-2.parquet",
        "capture-p-3.parquet",
    ]
    assert directory.make_room() == directory.finished()


def test_newest_file_stays_whatever_its_size(tmp_path: Path) -> None:
    directory = Directory(tmp_path, 50)
    finished(directory, "p-0", 100, age=1)
    assert [file.size for file in directory.make_room()] == [100]


def test_directory_is_made(tmp_path: Path) -> None:
    Directory(tmp_path / "a" / "b", 50).prepare()
    assert (tmp_path / "a" / "b").is_dir()


def test_directory_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(StartError, match=r"capture.directory: .*file can not be used: File exists"):
        Directory(path, 50).prepare()
