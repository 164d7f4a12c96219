"""The journal on disk: what was acknowledged is there, what was cut off is not, and what is damaged is set aside."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.control.reassign import file_journal as module
from proxy.control.reassign.file_journal import FileJournal, LeaderLock
from proxy.control.reassign.journal import (
    ConflictError,
    DamagedError,
    Ended,
    EndedTotals,
    Entry,
    FencedError,
    JournalError,
    Term,
    write_line,
)

FIRST = Entry("t", 0, "id", (1, 2), (3, 4))
SECOND = Entry("t", 1, "id", (2, 1), (4, 3))


def entries(journal: FileJournal) -> list[Entry]:
    return list(journal.read().entries.values())


def test_appended_records_are_read_by_another_process(tmp_path: Path) -> None:
    one, other = FileJournal(tmp_path / "new"), FileJournal(tmp_path / "new")
    known = other.read()
    assert (dict(known.entries), known.term, known.sequence) == ({}, Term(0, ""), 0)
    one.append([FIRST, SECOND])
    assert entries(other) == [FIRST, SECOND]
    other.append([Ended("t", 0, "done")])
    assert entries(one) == [SECOND]
    assert one.read().sequence == 3


def test_moves_that_are_over_are_counted_until_new_ones_begin(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    third = replace(FIRST, partition=2, target=(1, 5))
    journal.append([FIRST, SECOND, third, replace(FIRST, partition=3), replace(FIRST, partition=4)])
    journal.append([Ended("t", 0, "done", 700), Ended("t", 2, "done", 30)])
    journal.append([Ended("t", 1, "cancelled"), Ended("t", 3, "refused")])
    over = EndedTotals(done=2, not_done=1, replicas=2 + 1, size=700 + 30)
    assert FileJournal(tmp_path).read().ended_totals == journal.read().ended_totals == over
    journal.append([Ended("t", 4, "gone")])
    assert journal.read().ended_totals == over._replace(not_done=2), "all are over: their count stays"
    journal.append([FIRST])
    assert FileJournal(tmp_path).read().ended_totals == journal.read().ended_totals == EndedTotals()


def test_count_of_ended_moves_survives_a_rewritten_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES_MIN", 0)
    journal = FileJournal(tmp_path)
    journal.append([Term(4, "me"), FIRST, SECOND])
    for _ in range(20):
        journal.append([FIRST])
    journal.append([Ended("t", 1, "done", 9)])
    for _ in range(20):
        journal.append([FIRST])
    assert len((tmp_path / "journal").read_bytes().splitlines()) < 20, "history is dropped"
    known = FileJournal(tmp_path).read()
    assert (known.term, known.ended_totals) == (Term(4, "me"), EndedTotals(1, 0, 2, 9))


def test_record_is_on_disk_before_it_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    sync: Callable[[int], None] = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name.encode())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    FileJournal(tmp_path).append([FIRST])
    assert synced == [b"journal", os.fsencode(tmp_path.name)], "the file, and the directory that names it"


def test_journal_cut_anywhere_keeps_whole_records_and_goes_on(tmp_path: Path) -> None:
    """A kill in the middle of a write, at every byte of it."""
    before = write_line(1, FIRST)
    after = write_line(2, SECOND)
    for size in range(len(after)):
        directory = tmp_path / str(size)
        directory.mkdir()
        (directory / "journal").write_bytes(before + after[:size])
        journal = FileJournal(directory)
        assert entries(journal) == [FIRST]
        journal.append([Ended("t", 0, "done")])
        assert entries(FileJournal(directory)) == []
        assert (directory / "journal").read_bytes() == before + write_line(2, Ended("t", 0, "done"))


def test_append_without_the_last_record_read_or_by_a_former_executor_is_refused(tmp_path: Path) -> None:
    one, other = FileJournal(tmp_path), FileJournal(tmp_path)
    one.append([Term(1, "one")])
    seen = one.read().sequence
    other.append([FIRST])
    with pytest.raises(ConflictError):
        one.append([SECOND], expected=seen)
    assert one.append([], expected=one.read().sequence, term=1) is one.read(), "nothing has changed"
    other.append([Term(2, "other")])
    with pytest.raises(FencedError, match="other"):
        one.append([SECOND], term=1)
    assert entries(one) == [FIRST]


def damaged(path: Path, change: Callable[[list[bytes]], object]) -> bytes:
    lines = path.read_bytes().splitlines(keepends=True)
    change(lines)
    path.write_bytes(b"".join(lines))
    return path.read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines.__setitem__(1, b"garbage\n"),
        lambda lines: lines.pop(1),
        lambda lines: lines.insert(1, lines[1]),
        lambda lines: lines.__setitem__(1, bytes(len(lines[1]) - 1) + b"\n"),
        lambda lines: lines.append(b"x" * 70_000 + b"\n"),
        lambda lines: lines.append(b"\n"),
    ],
)
def test_damaged_journal_is_set_aside_and_read_as_far_as_it_goes(
    tmp_path: Path, change: Callable[[list[bytes]], object]
) -> None:
    journal = FileJournal(tmp_path)
    journal.append([FIRST, SECOND, replace(SECOND, target=(5, 6))])
    content = damaged(tmp_path / "journal", change)
    with pytest.raises(DamagedError, match=r"journal: line \d, byte \d+"):
        FileJournal(tmp_path).read()
    broken = FileJournal(tmp_path)
    known, aside = broken.recover()
    assert aside == str(tmp_path / "journal.damaged-1")
    assert Path(aside).read_bytes() == content
    assert list(known.entries.values()) == [
        replace(FIRST, unsure=True),
        replace(SECOND, target=(5, 6), unsure=True),
    ]
    assert entries(FileJournal(tmp_path)) == list(known.entries.values())
    assert known.sequence > 3, "no number is used twice"
    broken.append([Ended("t", 0, "lost")])


def test_second_damage_gets_a_name_of_its_own(tmp_path: Path) -> None:
    for number in (1, 2):
        FileJournal(tmp_path).append([FIRST])
        damaged(tmp_path / "journal", lambda lines: lines.append(b"garbage\n"))
        assert FileJournal(tmp_path).recover()[1] == str(tmp_path / f"journal.damaged-{number}")
    known, aside = FileJournal(tmp_path).recover()  # another process has done it
    assert (list(known.entries.values()), aside) == ([replace(FIRST, unsure=True)], "")


def test_history_is_dropped_when_there_is_much_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES_MIN", 2000)
    journal = FileJournal(tmp_path)
    other = FileJournal(tmp_path)
    journal.append([Term(4, "me"), FIRST])
    for _ in range(40):
        journal.append([SECOND])
        other.read()
        assert (tmp_path / "journal").stat().st_size < 6000
    for reader in (journal, other, FileJournal(tmp_path)):
        known = reader.read()
        assert list(known.entries.values()) == [FIRST, SECOND]
        assert known.term == Term(4, "me")
    other.append([Ended("t", 0, "done")], expected=journal.read().sequence, term=4)


def test_last_record_of_a_partition_holds_in_the_order_in_which_moves_were_asked_for(tmp_path: Path) -> None:
    journal, changed = FileJournal(tmp_path), replace(SECOND, target=(5, 6))
    journal.append([SECOND, FIRST])
    journal.append([changed])
    assert entries(journal) == entries(FileJournal(tmp_path)) == [changed, FIRST]


def test_writer_that_stands_still_does_not_stop_others_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS_MAX", 0.05)
    FileJournal(tmp_path).append([FIRST])
    with (tmp_path / "journal.lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(JournalError, match="another process has been writing"):
            FileJournal(tmp_path).append([SECOND])
    FileJournal(tmp_path).append([SECOND])


class FullDisk:
    """Takes so many bytes more, and then none."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._write: Callable[[int, bytes, int], int] = os.pwrite

    def __call__(self, descriptor: int, content: bytes, offset: int) -> int:
        if not self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(descriptor, content[: self._room], offset)
        self._room -= written
        return written


@pytest.mark.parametrize("lines", [0, 1, 1.2])
def test_refused_write_leaves_nothing_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: float
) -> None:
    """A refused request must leave no part of it in the journal, which would hold slots."""
    journal = FileJournal(tmp_path)
    journal.append([FIRST])
    other = FileJournal(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", FullDisk(int(lines * len(write_line(2, SECOND)))))
        with pytest.raises(JournalError, match="No space left"):
            journal.append([SECOND, Ended("t", 0, "done")])
    for reader in (journal, other, FileJournal(tmp_path)):
        assert entries(reader) == [FIRST]
    journal.append([SECOND])
    assert entries(other) == [FIRST, SECOND]


def test_history_that_cannot_be_dropped_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES_MIN", 2000)
    journal = FileJournal(tmp_path)
    for number in range(200):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", FullDisk(len(write_line(number + 1, SECOND))))
            journal.append([SECOND])
    assert entries(FileJournal(tmp_path)) == [SECOND]
    assert not (tmp_path / ".journal.new").exists(), "it would take the room that others need"


def test_reader_whose_position_is_within_a_line_reads_from_the_start_again(tmp_path: Path) -> None:
    """Other processes find no damage and set no journal aside; so this reader must not find it for ever."""
    FileJournal(tmp_path).append([FIRST])
    reader = FileJournal(tmp_path)
    reader.read()
    # The file was written over in place, and its second line begins elsewhere.
    (tmp_path / "journal").write_bytes(
        write_line(1, replace(SECOND, target=tuple(range(9)))) + write_line(2, FIRST)
    )
    with pytest.raises(DamagedError):
        reader.read()
    assert entries(reader) == entries(FileJournal(tmp_path))
    assert len(entries(reader)) == 2


def test_move_that_is_too_large_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    with pytest.raises(JournalError, match="longer than 65536"):
        journal.append([FIRST, replace(SECOND, target=tuple(range(20_000)))])
    assert entries(journal) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be written"):
        FileJournal(tmp_path / "file").append([FIRST])


CHILD = """
import sys, time
from pathlib import Path
from proxy.control.reassign.file_journal import LeaderLock
lease = LeaderLock(Path(sys.argv[1]), "child")
print(lease.take(), flush=True)
time.sleep(60)
"""


def test_one_process_holds_the_lock_at_a_time(tmp_path: Path) -> None:
    one, other = LeaderLock(tmp_path / "new", "one"), LeaderLock(tmp_path / "new", "other")
    assert one.holder() == "", "there is no file"
    assert one.take()
    assert one.take()
    assert not other.take()
    assert other.holder() == "one"
    one.release()
    assert not one.held
    assert other.take()
    assert one.holder() == "other"
    other.release()


def test_full_disk_that_takes_no_name_gives_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an unknown descriptor would hold the lock, and no process would execute any more."""

    def full(_descriptor: int, _content: bytes, _offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    lease = LeaderLock(tmp_path, "one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        assert lease.take()
    assert lease.take()
    lease.release()
    other = LeaderLock(tmp_path, "other")
    assert other.take()
    other.release()


def test_killed_process_releases_the_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        lease = LeaderLock(tmp_path, "one")
        assert not lease.take()
        child.kill()
        child.wait()
        assert lease.take()
        lease.release()
