"""What the host of the repository runs and shows: `.github`.

`make check` judges the workflows themselves (actionlint, zizmor). Here they are compared with the repository: what they
name exists, and their parts are all of `make test`.
"""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from proxy.cli import parser
from release.images import TARGETS
from tests.cluster.features import FOREIGN
from tests.cluster.jars import RELEASES, release
from tests.packaging.conftest import ROOT, bare_environment, run

_HOST: Final = ROOT / ".github"
_FILES: Final = sorted(_HOST.rglob("*.yml"))
_WORKFLOWS: Final = sorted((_HOST / "workflows").glob("*.yml"))
_FORMS: Final = sorted(path for path in (_HOST / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
# Updates would defeat their purpose (see dependabot.yml).
_KEPT_OLD: Final = frozenset({"tests/interop/drivers/java-older"})
_MANIFESTS: Final = {
    "requirements/*.in": "uv",
    "**/go.mod": "gomod",
    "**/package-lock.json": "npm",
    "**/pom.xml": "maven",
    "docker/Dockerfile": "docker",
    ".github/actions/*/action.yml": "github-actions",
}


def _name(path: Path) -> str:
    return str(path.relative_to(_HOST))


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def _steps(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each job of a workflow that has steps, with each of its steps."""
    for job in _load(path)["jobs"].values():
        for step in job.get("steps", ()):
            yield job, step


def _make_calls(path: Path) -> Iterator[list[str]]:
    """Return the targets of each `make` in a workflow, `"$PART"` replaced by each value of its matrix."""
    for job, step in _steps(path):
        for line in step.get("run", "").splitlines():
            words = shlex.split(line)
            if words[:1] != ["make"]:
                continue
            parts = job["strategy"]["matrix"]["part"] if "$PART" in words else [""]
            for part in parts:
                yield [word.replace("$PART", part) for word in words[1:]]


def _recipe(*targets: str) -> str:
    """Return the commands that make would run for these targets."""
    environment = {name: value for name, value in bare_environment().items() if not name.startswith("MAKE")}
    return run("make", "--dry-run", "PYTHON=python", "ARGS=", *targets, cwd=ROOT, env=environment)


def _tested(recipe: str) -> set[tuple[str, str]]:
    """Return what pytest runs in a recipe: how (compiled, with workers) and which path."""
    tested = set()
    for line in recipe.splitlines():
        before, called, after = line.partition(" -m pytest ")
        if not called:
            continue
        words = after.split()
        how = " ".join([*re.findall(r"SLUICE_\w+=\S+", before), *re.findall(r"-p \S+", after)])
        tested |= {(how, word) for word in words if (ROOT / word).exists()}
    return tested


@pytest.mark.parametrize("path", _FILES, ids=_name)
def test_every_action_is_pinned_by_a_commit_with_its_version(path: Path) -> None:
    used = re.findall(r"^\s*(?:- )?uses:\s*(.*)$", path.read_text(), re.MULTILINE)
    foreign = [words for words in used if not words.startswith("./")]

    assert [
        words for words in foreign if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", words)
    ] == []
    assert [words for words in used if words.startswith("./") and not (ROOT / words).exists()] == []


def test_an_action_has_one_version_everywhere() -> None:
    pins: dict[str, set[str]] = {}
    for path in _FILES:
        for action, pin in re.findall(
            r"uses:\s*([\w-]+/[\w-]+)[\w/-]*@(.*)$", path.read_text(), re.MULTILINE
        ):
            pins.setdefault(action, set()).add(pin)

    assert "actions/checkout" in pins
    assert {action: found for action, found in pins.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", _WORKFLOWS, ids=_name)
def test_no_job_has_more_rights_than_it_names(path: Path) -> None:
    workflow = _load(path)

    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert job["permissions"], name
        assert "uses" in job or job["timeout-minutes"] <= 90, name


@pytest.mark.parametrize("path", _WORKFLOWS, ids=_name)
def test_targets_that_workflows_make_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert {word for words in _make_calls(path) for word in words} - targets == set()


@pytest.mark.parametrize("path", _FILES, ids=_name)
def test_paths_that_are_named_exist(path: Path) -> None:
    text = re.sub(r"uses: [\w/-]+@.*", "", path.read_text())
    named = re.findall(
        r"(?<![\w./-])/?((?:tests|docs|docker|requirements|deploy|\.ci|\.github)/[\w./*-]*[\w*])", text
    )

    assert [name for name in named if not any(ROOT.glob(name))] == []


@pytest.mark.parametrize("path", _FILES, ids=_name)
def test_no_host_is_named(path: Path) -> None:
    """Registries and the index are the host's settings, and the defaults of the actions."""
    assert re.findall(r"://\w|\b[\w-]+\.(?:com|dev|io|net|org)\b(?!\.)", path.read_text()) == []


def test_parts_of_ci_are_all_of_make_test() -> None:
    calls = list(_make_calls(_HOST / "workflows" / "ci.yml"))
    targets = {word: None for words in calls for word in words}

    assert _tested(_recipe(*targets)) == _tested(_recipe("test"))
    assert ["check"] in calls


def test_make_test_runs_every_test_module() -> None:
    tested = [ROOT / path for _, path in _tested(_recipe("test"))]
    modules = list((ROOT / "tests").rglob("test_*.py"))

    assert len(modules) > 100
    assert [module for module in modules if not any(module.is_relative_to(path) for path in tested)] == []


def test_ci_has_every_python_that_the_package_supports() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    supported = set(re.findall(r'"Programming Language :: Python :: (\d\.\d+)"', text))
    matrix = _load(_HOST / "workflows" / "ci.yml")["jobs"]["unit"]["strategy"]["matrix"]
    (build,) = [
        step["with"]["python-version"]
        for job, step in _steps(_HOST / "workflows" / "release.yml")
        if "python-version" in step.get("with", {})
    ]

    assert set(matrix["python"]) == supported == set(build.split())
    assert [extra["may-fail"] for extra in matrix["include"]] == [True]


def test_every_broker_of_the_matrix_has_a_job_of_its_own_each_night() -> None:
    matrix = _load(_HOST / "workflows" / "nightly.yml")["jobs"]["matrix"]["strategy"]["matrix"]

    assert [name if name in FOREIGN else release(name) for name in matrix["broker"]] == [*RELEASES, *FOREIGN]


def test_images_of_a_release_are_those_of_the_dockerfile() -> None:
    stages = re.findall(r"^FROM \S+ AS ([a-z]+)$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    release = _HOST / "workflows" / "release.yml"
    matrix = _load(release)["jobs"]["images"]["strategy"]["matrix"]["include"]
    built = [step["with"]["target"] for _, step in _steps(release) if "target" in step.get("with", {})]

    assert {image["target"] for image in matrix} == set(TARGETS) <= set(stages)
    assert built == ["${{ matrix.target }}", "bill"]
    assert "bill" in stages
    assert all(
        image["suffix"] == ("" if image["target"] == "proxy" else f"-{image['target']}") for image in matrix
    )


def test_every_manifest_is_kept_up_to_date() -> None:
    updates = _load(_HOST / "dependabot.yml")["updates"]
    kept = {
        (entry["package-ecosystem"], place.strip("/"))
        for entry in updates
        for place in entry.get("directories", [entry.get("directory")])
        if place != "/"
    }
    # What is made or brought has manifests of its own.
    foreign = ("build", ".cache", ".venv", "node_modules", "tests/cluster/libs")
    manifests = {
        (ecosystem, os.path.relpath(path.parent, ROOT))
        for pattern, ecosystem in _MANIFESTS.items()
        for path in ROOT.glob(pattern)
        if not any(f"/{name}/" in f"/{path.relative_to(ROOT)}" for name in foreign)
    }

    assert {(ecosystem, place) for ecosystem, place in manifests if place not in _KEPT_OLD} == kept


@pytest.mark.parametrize("path", _FORMS, ids=_name)
def test_form_asks_for_what_commands_print(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    form = _load(path)
    fields = [field["id"] for field in form["body"] if field["type"] != "markdown"]

    assert form["name"]
    assert form["description"]
    assert len(fields) == len(set(fields)) > 0
    for command in re.findall(r"`sluice (.*?)`", path.read_text()):
        if command == "--version":
            continue
        parser().parse_args(shlex.split(command))
    assert capsys.readouterr().err == ""
