"""proxy.system.compiled: when compiled modules take the place of their sources, and when they do not."""

import hashlib
import json
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from proxy.system import compiled
from proxy.system.compiled import COMPILED, INTERPRETED

# The process has its own finder then.
pytestmark = pytest.mark.interpreted

SOURCE: Final = "compiled_example/limits.py"
CHANGED: Final = "its sources have changed since it was made"
NAMES: Final = ("compiled_example.limits", "sluice__mypyc")


@pytest.fixture(autouse=True)
def no_finder_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without those of the process, and none that a test installs stays."""
    finders = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("proxy.")]
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.delenv("SLUICE_PURE", raising=False)
    yield
    assert NAMES[0] not in sys.modules


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """What `make compiled` leaves, for one source; its extensions are empty files, and nothing loads them."""
    source = tmp_path / SOURCE
    source.parent.mkdir()
    source.write_text("LIMIT = 1\n")
    made = tmp_path / "proxy" / "compiled"
    made.mkdir(parents=True)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    (made / "manifest.json").write_text(json.dumps({"modules": {SOURCE: ""}, "sources": {SOURCE: digest}}))
    for name in NAMES:
        path = made / (name.replace(".", "/") + EXTENSION_SUFFIXES[0])
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return made


def change(directory: Path) -> None:
    (directory.parents[1] / SOURCE).write_text("LIMIT = 2\n")


def test_compiled_modules_are_found_before_their_sources(directory: Path) -> None:
    before = find_spec("json")
    compiled.install(directory)
    assert (compiled.form(), compiled.problem(directory)) == (COMPILED, None)
    finder = sys.meta_path[0]
    for name in NAMES:
        spec = finder.find_spec(name, None)
        assert spec is not None
        assert spec.origin == str(directory / (name.replace(".", "/") + EXTENSION_SUFFIXES[0]))
        assert isinstance(spec.loader, ExtensionFileLoader)
    assert finder.find_spec("json", None) is None
    assert find_spec("json") == before


def test_without_compiled_modules_the_sources_are_run(tmp_path: Path) -> None:
    nowhere = tmp_path / "proxy" / "compiled"
    compiled.install(nowhere)
    assert (compiled.form(), compiled.problem(nowhere)) == (INTERPRETED, "")


def test_compiled_modules_of_other_sources_are_not_used(directory: Path) -> None:
    change(directory)
    compiled.install(directory)
    assert (compiled.form(), compiled.problem(directory)) == (INTERPRETED, CHANGED)


@pytest.mark.parametrize("lacking", NAMES)
def test_compiled_modules_of_another_python_are_not_used(directory: Path, lacking: str) -> None:
    path = directory / (lacking.replace(".", "/") + EXTENSION_SUFFIXES[0])
    path.rename(path.with_name(path.name.replace(EXTENSION_SUFFIXES[0], ".cpython-39-sparc-linux-gnu.so")))
    compiled.install(directory)
    assert (compiled.form(), compiled.problem(directory)) == (INTERPRETED, "it was made for another Python")


@pytest.mark.parametrize(("value", "form"), [("1", INTERPRETED), ("0", COMPILED), ("", COMPILED)])
def test_environment_leaves_them_aside(
    directory: Path, monkeypatch: pytest.MonkeyPatch, value: str, form: str
) -> None:
    monkeypatch.setenv("SLUICE_PURE", value)
    compiled.install(directory)
    assert compiled.form() == form


def test_module_that_is_loaded_already_keeps_all_of_them_interpreted(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setitem(sys.modules, NAMES[0], sys)
        compiled.install(directory)
    assert compiled.form() == INTERPRETED


def test_warning_says_why_they_are_not_used(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.warning(directory) == ""
    change(directory)
    assert compiled.warning(directory) == f"proxy/compiled is not used: {CHANGED} (`make compiled`)"
    (directory / "manifest.json").write_text("{")
    assert "its manifest cannot be read: " in compiled.warning(directory)
    monkeypatch.setenv("SLUICE_PURE", "1")
    assert compiled.warning(directory) == ""


def test_compiled_module_whose_source_is_gone_is_not_used(directory: Path) -> None:
    (directory.parents[1] / SOURCE).unlink()
    compiled.install(directory)
    assert (compiled.form(), compiled.problem(directory)) == (INTERPRETED, CHANGED)
