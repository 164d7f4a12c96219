"""What numba has kept on disk is taken only for the rules that it was made of."""

import sys
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from quotas.backtest import compiler


def kept_under(stamp: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that is kept, its sources as they are or as they would be."""
    monkeypatch.setattr(compiler, "sources_digest", lambda: stamp)

    def twice(number: int) -> int:
        return 2 * number

    return compiler.kept(twice)


def test_kept_code_is_taken_while_no_rule_has_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    assert kept_under("these rules", monkeypatch)(3) == 6
    same = kept_under("these rules", monkeypatch)
    assert same(3) == 6
    assert sum(same.stats.cache_hits.values()) == 1
    other = kept_under("other rules", monkeypatch)
    assert other(3) == 6
    assert sum(other.stats.cache_hits.values()) == 0


def test_function_is_compiled_also_where_numba_finds_no_place_to_keep_it() -> None:
    """As on a read-only root without a home: numba has no place for a function without a file either."""
    made: dict[str, Any] = {}
    exec("def twice(number):\n    return 2 * number\n", made)

    assert compiler.kept(made["twice"])(3) == 6


def of_archive(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that is kept, of a module in an archive, as each executor of Spark has one in its own directory."""
    directory.mkdir()
    archive = directory / "sent.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("sent_rule.py", "def twice(number):\n    return 2 * number\n")
    monkeypatch.syspath_prepend(str(archive))
    monkeypatch.delitem(sys.modules, "sent_rule", raising=False)
    return compiler.kept(import_module("sent_rule").twice)


def test_code_of_an_archive_is_kept_by_its_rules_wherever_the_archive_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(kept))
    monkeypatch.setattr(compiler, "sources_digest", lambda: "these rules")
    assert of_archive(tmp_path / "one", monkeypatch)(3) == 6
    other = of_archive(tmp_path / "other", monkeypatch)
    assert other(3) == 6
    assert sum(other.stats.cache_hits.values()) == 1
    assert [path.name for path in kept.iterdir()] == ["sluice_these rules"]


def test_code_of_an_archive_is_compiled_also_where_nothing_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "file"))
    assert of_archive(tmp_path / "one", monkeypatch)(3) == 6


def test_digest_changes_with_each_source_file_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "limiters").mkdir()
    rule, nested, other = tmp_path / "rule.py", tmp_path / "limiters" / "rate.py", tmp_path / "notes.txt"
    for path in (rule, nested, other):
        path.write_text("1")
    monkeypatch.setattr("quotas.backtest.compiler.resources.files", lambda _package: tmp_path)
    before = compiler.sources_digest()
    other.write_text("2")
    assert compiler.sources_digest() == before
    for path in (rule, nested):
        path.write_text("2")
        assert compiler.sources_digest() != before
        path.write_text("1")
    assert compiler.sources_digest() == before
