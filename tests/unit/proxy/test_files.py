"""proxy.files: what tells a file's states apart, and that a replaced file is the old or the new one, whole."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.files import Signature, locked, look, replace, signature


def test_signature_changes_with_content_name_and_link(tmp_path: Path) -> None:
    path, other, link = tmp_path / "a", tmp_path / "b", tmp_path / "link"
    assert signature(path) == Signature()
    path.write_text("one")
    other.write_text("two")
    link.symlink_to(path)
    assert signature(link) == signature(path) != signature(other)
    before = look([path, link])
    swapped = tmp_path / "swapped"
    swapped.symlink_to(other)
    swapped.replace(link)  # as Kubernetes swaps a ConfigMap
    assert look([path, link])[0] == before[0]
    assert look([path, link])[1] == signature(other)


def test_signature_sees_a_change_that_keeps_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    before = signature(path)
    replacement = tmp_path / "b"
    replacement.write_text("two")
    os.utime(replacement, ns=(before.modified_ns, before.modified_ns))
    replacement.replace(path)
    assert signature(path) != before


def test_replaced_file_is_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o640)
    written = replace(path, ["n", "ew"], 100)
    assert path.read_text() == "new"
    assert written == signature(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_link_to_a_replaced_file_stays(tmp_path: Path) -> None:
    path, link = tmp_path / "data", tmp_path / "link"
    path.write_text("old")
    link.symlink_to("data")
    replace(link, ["new"], 100)
    assert link.is_symlink()
    assert path.read_text() == "new"


def test_file_without_write_permission_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o444)  # a rename would not ask, and root may write all
    with pytest.raises(PermissionError, match="read-only"):
        replace(path, ["new"], 100)
    assert path.read_text() == "old"


def test_too_much_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(OSError, match="would have 4 bytes, over 3"):
        replace(path, ["new!"], 3)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_failure_half_way_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def pieces() -> Iterator[str]:
        yield "ne"
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        replace(path, pieces(), 100)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_behind_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    (tmp_path / ".a.new").write_text("half")
    replace(path, ["new"], 100)
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_file_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace(tmp_path / "a", ["new"], 100)
    assert list(tmp_path.iterdir()) == []


def test_lock_keeps_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.files._LOCK_SECONDS_MAX", 0.0)
    with locked(tmp_path / "a"), pytest.raises(TimeoutError, match="another process"), locked(tmp_path / "b"):
        pass
    with locked(tmp_path / "a"):
        pass
