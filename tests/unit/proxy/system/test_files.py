"""proxy.system.files: what tells a file's states apart, and that a replaced file is the old or the new one, whole."""

import gc
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from proxy.system.files import Signature, locked, open_file, open_text, read, replace, signature, signatures
from tests.support.no_files import KINDS, put


@pytest.mark.parametrize("kind", KINDS)
def test_anything_but_a_regular_file_is_an_error_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    put(path, kind)
    gc.collect()  # what other tests have left open
    before = len(list(Path("/proc/self/fd").iterdir()))
    for opening in (lambda: read(path, 100), lambda: open_file(path)):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - what it says is looked at below
            opening()
        assert caught.value.strerror == f"is {KINDS[kind]}, not a regular file"
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert read(path, 100) == b"x" * 100
    with pytest.raises(OSError, match="is larger than 99 bytes"):
        read(path, 99)


def test_file_that_grows_while_it_is_read_has_a_bound_too(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one\n")
    lines = []

    def grow() -> None:
        with open_text(path, 10_000) as file, path.open("a") as more:
            for line in file:
                lines.append(line)
                more.write("x" * 999 + "\n")
                more.flush()

    with pytest.raises(OSError, match="is larger than 10000 bytes"):
        grow()
    assert len(lines) <= 11


def test_file_that_is_replaced_while_it_is_read_is_the_old_one_to_its_end(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("old\n" * 10_000)
    other.write_text("new\n" * 10_000)
    with open_text(path, 1_000_000) as file:
        first = next(file)
        other.replace(path)
        rest = set(file)
    assert (first, rest) == ("old\n", {"old\n"})


def test_link_leads_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    (tmp_path / "link").symlink_to("a")
    assert read(tmp_path / "link", 10) == b"text"


def test_signature_changes_with_content_name_and_link(tmp_path: Path) -> None:
    path, other, link = tmp_path / "a", tmp_path / "b", tmp_path / "link"
    assert signature(path) == Signature()
    path.write_text("one")
    other.write_text("two")
    link.symlink_to(path)
    assert signature(link) == signature(path) != signature(other)
    before = signatures([path, link])
    swapped = tmp_path / "swapped"
    swapped.symlink_to(other)
    swapped.replace(link)  # as Kubernetes swaps a ConfigMap
    assert signatures([path, link])[0] == before[0]
    assert signatures([path, link])[1] == signature(other)


def test_signature_sees_a_change_that_keeps_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    before = signature(path)
    replacement = tmp_path / "b"
    replacement.write_text("two")
    os.utime(replacement, ns=(before.modified_ns, before.modified_ns))
    replacement.replace(path)
    assert signature(path) != before


def test_replaced_file_is_complete_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o640)
    (tmp_path / ".a.new").write_text("half")  # of a process that was killed
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


def _fails_half_way() -> Iterator[str]:
    yield "ne"
    raise OSError("half way")


@pytest.mark.parametrize(
    ("pieces", "problem"),
    [(["new!"], "would have 4 bytes, over 3"), (_fails_half_way(), "half way")],
    ids=["over the bound", "half way"],
)
def test_failed_write_leaves_the_old_file(tmp_path: Path, pieces: Iterable[str], problem: str) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(OSError, match=problem):
        replace(path, pieces, 3)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_file_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace(tmp_path / "a", ["new"], 100)
    assert list(tmp_path.iterdir()) == []


def test_lock_excludes_other_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.system.files.LOCK_SECONDS_MAX", 0.0)
    with locked(tmp_path / "a"), pytest.raises(TimeoutError, match="another process"), locked(tmp_path / "b"):
        pass
    with locked(tmp_path / "a"):
        pass
