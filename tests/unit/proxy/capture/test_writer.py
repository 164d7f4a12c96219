"""Names, leftovers and the bound of a directory of captures."""

import errno
import fcntl
import os
import time
from pathlib import Path

import pytest

from proxy.capture.writer import Directory
from proxy.system.errors import StartError


def finished(directory: Directory, name: str, size: int, age: int = 0) -> Path:
    path, file = directory.create(name)
    file.write(bytes(size))
    final = directory.finish(path, file)
    if age:
        os.utime(final, (1_000_000 - age, 1_000_000 - age))
    return final


def test_file_has_its_name_when_it_is_complete(tmp_path: Path) -> None:
    directory = Directory(tmp_path, 1000)
    path, file = directory.create("p-000001")
    file.write(b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["capture-p-000001.parquet.inprogress"]
    assert directory.finished() == []
    assert directory.finish(path, file).stat().st_mode & 0o007 == 0, "not for others"
    assert [entry.path.name for entry in directory.finished()] == ["capture-p-000001.parquet"]


def test_only_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("room", "stay"), [(250, ["p-2", "p-3"]), (50, ["p-3"])])
def test_oldest_files_make_room_and_the_newest_stays_at_any_size(
    tmp_path: Path, room: int, stay: list[str]
) -> None:
    directory = Directory(tmp_path, room)
    for index in range(4):
        finished(directory, f"p-{index}", 100, age=100 - index)
    assert [file.path.name for file in directory.make_room()] == [f"capture-{name}.parquet" for name in stay]
    assert directory.make_room() == directory.finished()


def test_file_finished_after_the_clock_was_set_back_is_not_the_oldest(tmp_path: Path) -> None:
    directory = Directory(tmp_path, 250)
    hour_later = time.time() + 3600
    for index in range(3):
        os.utime(finished(directory, f"old-{index}", 100), (hour_later + index, hour_later + index))
    stays = []
    for index in range(3):
        newest = finished(directory, f"new-{index}", 100, age=100 - index)
        stays.append([file.path.name[8:13] for file in directory.make_room(newest)])
    assert stays == [["old-2", "new-0"], ["new-0", "new-1"], ["new-1", "new-2"]]


def test_file_that_another_process_finishes_a_moment_later_is_not_old(tmp_path: Path) -> None:
    directory = Directory(tmp_path, 250)
    now = time.time()
    old, own, other = (finished(directory, name, 100) for name in ("old", "own", "other"))
    for path, at in ((old, now - 10), (own, now), (other, now + 1)):
        os.utime(path, (at, at))
    assert [file.path for file in directory.make_room(own)] == [other, own]


def test_only_a_file_that_cannot_be_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = Directory(tmp_path, 250)
    (tmp_path / "capture-mine.parquet").mkdir()
    (tmp_path / "capture-link.parquet").symlink_to("/nowhere")
    paths = [finished(directory, f"p-{index}", 100, age=100 - index) for index in range(4)]
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path == paths[0]:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    for _ in range(2):
        assert [file.path for file in directory.make_room(paths[3])] == [paths[0], paths[3]]
    assert caplog.text.count("cannot remove an old capture file") == 1
    assert (tmp_path / "capture-mine.parquet").is_dir()


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOLCK, errno.ENOENT, errno.EAGAIN])
def test_unfinished_file_stays_without_file_locks(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_descriptor: int, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    left = tmp_path / "capture-dead-000001.parquet.inprogress"
    left.write_bytes(b"half")
    (tmp_path / "capture-dead-000002.parquet.inprogress").mkdir()
    monkeypatch.setattr(fcntl, "flock", fails)
    assert Directory(tmp_path, 1000).prepare() == 0
    assert left.exists()
    said = "cannot remove an unfinished capture file" in caplog.text
    assert said == (number in (errno.ENOTSUP, errno.ENOLCK))


def test_directory_is_made(tmp_path: Path) -> None:
    Directory(tmp_path / "a" / "b", 50).prepare()
    assert (tmp_path / "a" / "b").is_dir()


def test_directory_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(StartError, match=r"capture.directory: .*file cannot be used: File exists"):
        Directory(path, 50).prepare()
