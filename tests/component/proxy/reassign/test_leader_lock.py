"""One process executes, and after its end another."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.control.reassign.file_journal import LeaderLock

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


def test_missing_lock_file_has_no_holder(tmp_path: Path) -> None:
    assert LeaderLock(tmp_path, "one").holder() == ""


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
