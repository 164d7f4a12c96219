"""What numba has kept on disk is taken only for the rules that it was made of."""

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


def test_sources_are_all_rules() -> None:
    assert len(compiler.sources_digest()) == 64
    assert compiler.sources_digest() == compiler.sources_digest()
