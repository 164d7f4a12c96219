"""The writing thread: rotation, a disk that is full, and the end."""

import errno
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from proxy.capture import Capture
from proxy.capture import capture as stopping
from proxy.capture import writer as module
from proxy.capture.recorder import Recorder
from proxy.capture.tables import Tables
from proxy.capture.writer import Directory, Writer
from proxy.system.stats import CaptureStats
from quotas.definitions.definitions import Definitions
from tests.support.waiting import until
from tests.unit.proxy.capture.rows import TOPIC_ID, row

SECONDS_MAX = 20.0


class Rig:
    """A writer with a recorder in front of it."""

    def __init__(
        self, place: Path | Directory, *, rotate_bytes: int = 10**9, rotate_seconds: float = 3600.0
    ) -> None:
        directory = Directory(place, 10**9) if isinstance(place, Path) else place
        self.path = directory.path
        self.stats = CaptureStats()
        self.recorder = Recorder("p", 1.0, self.stats)
        names: dict[bytes, str] = {}  # learned when they are asked for
        tables, rotate = Tables("p", names.get, Definitions().limit), (rotate_bytes, rotate_seconds)
        self.writer = Writer(
            *(self.recorder, directory, tables, self.stats, "p", *rotate),
            names.get,
            lambda topic_ids: names.update(dict.fromkeys(topic_ids, "orders")),
        )
        self.writer.start()

    def record(self, count: int, first: int = 0, **fields: Any) -> None:
        for index in range(count):
            self.recorder.add(row(first + index, **fields))
        self.recorder.full()

    def end(self) -> None:
        self.recorder.queue.put(None)
        self.writer.thread.join(SECONDS_MAX)
        assert not self.writer.thread.is_alive()

    def rows(self) -> list[int]:
        return [
            seq
            for path in sorted(self.path.glob("*.parquet"))
            for seq in pq.read_table(path)["seq"].to_pylist()
        ]


def test_recorded_rows_are_written_at_the_end(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.record(3)
    rig.record(2, first=3)
    rig.end()
    assert rig.rows() == [0, 1, 2, 3, 4]
    assert (rig.stats.rows, rig.stats.files, sum(rig.stats.dropped.values())) == (5, 1, 0)
    assert rig.stats.bytes == rig.stats.bytes_written > 0
    assert [path.name for path in tmp_path.iterdir()] == ["capture-p-000001.parquet"]


def test_no_rows_write_no_file(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.end()
    assert list(tmp_path.iterdir()) == []


def test_file_is_rotated_by_size(tmp_path: Path) -> None:
    rig = Rig(tmp_path, rotate_bytes=10_000)
    for first in range(0, 4000, 1000):
        rig.record(1000, first)
    rig.end()
    assert rig.stats.files > 1
    assert rig.rows() == list(range(4000))


def test_file_is_rotated_by_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path, rotate_seconds=0.1)
    rig.record(1)
    until(lambda: rig.stats.files == 1, "a file is written")
    rig.record(1, first=1)
    until(lambda: rig.stats.files == 2, "another file is written")
    assert rig.rows() == [0, 1]
    rig.end()


def test_old_files_make_room(tmp_path: Path) -> None:
    rig = Rig(Directory(tmp_path, 1), rotate_bytes=1)
    for first in range(5):
        rig.record(1, first)
    rig.end()
    assert rig.rows() == [4]
    assert (rig.stats.rows, rig.stats.files) == (5, 1)


def test_full_disk_drops_the_file_and_counts_its_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "RETRY_SECONDS", 0.5)
    rig = Rig(tmp_path, rotate_seconds=0.1)
    rig.record(1000)
    until(lambda: rig.stats.rows == 1000, "a file is whole")
    with monkeypatch.context() as patched:
        patched.setattr(Tables, "concatenate", full)
        rig.record(1000, 1000)
        until(lambda: rig.stats.dropped["disk"] == 1000, "the next one is dropped")
    rig.record(7, 2000)  # while the disk is left alone
    until(lambda: rig.stats.dropped["disk"] == 1007, "the rows are dropped")
    time.sleep(0.6)
    rig.record(5, 3000)
    rig.end()
    assert rig.rows() == [*range(1000), *range(3000, 3005)]
    assert (rig.stats.rows, rig.stats.dropped["disk"]) == (1005, 1007)
    assert not list(tmp_path.glob("*.inprogress"))
    assert "cannot write the capture" in caplog.text


def test_directory_that_is_gone_drops_rows(tmp_path: Path) -> None:
    directory = tmp_path / "gone"
    directory.mkdir()
    rig = Rig(directory)
    directory.rmdir()
    rig.record(4)
    rig.end()
    assert rig.stats.dropped["disk"] == 4


def test_names_of_topics_are_asked_for_before_rows_are_written(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.record(1, version=13, partitions=[(TOPIC_ID, 0, 1, 1)])
    rig.end()
    (path,) = tmp_path.iterdir()
    assert pq.read_table(path)["partitions"].to_pylist()[0][0]["topic"] == "orders"


def test_unexpected_failure_drops_the_file_and_keeps_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, rotate_seconds=0.1)
    with monkeypatch.context() as patched:
        patched.setattr(Tables, "concatenate", lambda *_: 1 / 0)
        rig.record(3)
        until(lambda: rig.stats.dropped["internal"] == 3, "the rows are dropped")
    rig.record(2, first=3)
    rig.end()
    assert rig.rows() == [3, 4]
    assert not list(tmp_path.glob("*.inprogress"))


@pytest.mark.parametrize("hurried", [False, True])
def test_disk_that_stands_still_does_not_keep_a_stopping_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hurried: bool
) -> None:
    monkeypatch.setattr(stopping, "_HURRIED_SECONDS_MAX" if hurried else "_STOP_SECONDS_MAX", 0.2)
    rig = Rig(tmp_path)
    free = threading.Event()
    monkeypatch.setattr(Tables, "convert", lambda *_: free.wait(SECONDS_MAX))
    for first in (0, 2, 4):
        rig.record(2, first)
    until(lambda: rig.recorder.queue.qsize() == 2, "the first batch is taken")
    capture = Capture(rig.recorder, rig.writer, rig.stats)
    began = time.monotonic()
    capture.close()
    capture.wait(lambda: hurried)
    assert time.monotonic() - began < 9  # of the 10 s that it may take
    assert rig.stats.dropped["stopped"] == 6  # two of them in hand
    free.set()


def test_row_that_can_not_be_converted_is_dropped_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(tmp_path)
    rows = [row(seq) for seq in range(1000)]
    rows[7] = row(7, partitions=[(b"t", 0, 100, 0x7FFFFFFF + 1)])
    rows[999] = [None] * len(row())
    for each in rows:
        rig.recorder.add(each)
    rig.recorder.full()
    rig.record(2, first=1000)
    rig.end()
    assert rig.stats.dropped["internal"] == 2
    assert caplog.text.count("cannot convert 2 captured rows") == 1
    assert rig.rows() == [seq for seq in range(1002) if seq not in (7, 999)]
