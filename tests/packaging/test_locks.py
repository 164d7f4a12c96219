"""The lock files: for every supported Python, every package with its hashes, and no word about where they come from."""

import re
import tomllib
from pathlib import Path

import pytest

import hatch_build
from tests.packaging.conftest import ROOT
from tests.support.printed import section

_EXTRAS = ("capture", "fleet", "offline", "operator")
_EARLIER_NAMES = {name: ["kafka-sluice[operator]"] for name in ("completion", "console", "top", "yaml")}
_BASES = ("run", "build", "release", "docs", "dev", "fuzz", "tansu")
_LOCKS = tuple(ROOT / "requirements" / f"{name}.txt" for name in (*_BASES, *_EXTRAS))
_PIN = re.compile(r"^([a-z0-9][a-z0-9.-]*)==(\S+)", re.MULTILINE)
_MARKER = re.compile(r"^[a-z0-9][a-z0-9.-]*==\S+ ; (.+) \\\\$", re.MULTILINE)


def _pins(lock: Path) -> dict[str, str]:
    return dict(_PIN.findall(lock.read_text()))


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return found[0].lower().replace("_", "-")


@pytest.mark.parametrize("lock", _LOCKS, ids=lambda lock: lock.name)
def test_lock_names_no_address(lock: Path) -> None:
    text = lock.read_text()

    assert "://" not in text
    assert not re.search(r"^--(index|extra-index|find-links|trusted)", text, re.MULTILINE)


@pytest.mark.parametrize("lock", _LOCKS, ids=lambda lock: lock.name)
def test_every_locked_package_has_a_hash(lock: Path) -> None:
    entries = re.split(r"^(?=[a-z0-9])", lock.read_text(), flags=re.MULTILINE)[1:]

    assert entries
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_run_lock_has_what_the_proxy_depends_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert {_name(requirement) for requirement in project["dependencies"]} <= _pins(_LOCKS[0]).keys()


def test_every_extra_has_a_lock_and_earlier_names_still_install_it() -> None:
    """Where a package of an extra is missing, the command that is printed names this file."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert extras.keys() == {*_EXTRAS, *_EARLIER_NAMES}
    assert {name: extras[name] for name in _EARLIER_NAMES} == _EARLIER_NAMES


def test_document_names_the_packages_of_each_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {"–": project["dependencies"]} | {
        name: project["optional-dependencies"][name] for name in _EXTRAS
    }
    table = section((ROOT / "docs" / "how-to" / "install.md").read_text(), "## Which extra for what")
    rows = re.findall(r"^\| `?([a-z–]+)`? \| ([^|]+) \|", table, re.MULTILINE)[1:]

    assert {extra: {_name(package) for package in packages.split(", ")} for extra, packages in rows} == {
        extra: {_name(requirement) for requirement in requirements} for extra, requirements in wanted.items()
    }


def test_locks_are_the_same_for_every_python_but_for_what_only_other_systems_need() -> None:
    """A version that depends on the Python would be one that no test on another Python has seen."""
    shipped = [ROOT / "requirements" / f"{name}.txt" for name in ("run", *_EXTRAS)]

    assert {marker for lock in shipped for marker in _MARKER.findall(lock.read_text())} <= {
        "sys_platform == 'win32'"
    }


def test_readme_has_the_name_on_the_package_index_and_the_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    readme = " ".join((ROOT / "README.md").read_text().split())

    assert f"The distribution is named `{project['name']}`" in readme
    assert set(project["scripts"]) == {"sluice", "sluice-offline"}
    assert all(f"`{command}`" in readme for command in project["scripts"])


@pytest.mark.parametrize("extra", _EXTRAS)
def test_lock_of_an_extra_has_what_it_depends_on(extra: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert {_name(requirement) for requirement in extras[extra]} <= _pins(
        ROOT / "requirements" / f"{extra}.txt"
    ).keys()


def test_build_lock_has_the_backend() -> None:
    backend = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]

    assert {_name(requirement) for requirement in backend} <= _pins(_LOCKS[1]).keys()


def test_locks_agree() -> None:
    run, build, release, docs, dev, fuzz, _tansu, *extras = map(_pins, _LOCKS)

    assert run.items() | build.items() <= release.items()
    assert release.items() | docs.items() <= dev.items()
    assert run.items() <= fuzz.items()
    for extra in extras:
        assert run.items() <= extra.items() <= dev.items()


def test_compiler_of_the_build_hook_is_the_locked_one() -> None:
    assert f"mypy=={_pins(ROOT / 'requirements' / 'release.txt')['mypy']}" in hatch_build.COMPILERS


def test_locks_that_documents_name_are_there() -> None:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions"]
    pages.remove(ROOT / "docs" / "operations.md")  # its pages for each task say it
    named = {  # of a checkout, or of a release
        name
        for page in [ROOT / "README.md", *pages]
        for name in re.findall(r"requirements[/-]([a-z]+)\.txt", page.read_text())
    }

    assert named
    assert [name for name in sorted(named) if not (ROOT / "requirements" / f"{name}.txt").exists()] == []
