"""A release: the same bytes each time, its SBOMs, and an install of nothing but its files.

Without the compiled wheel here, which takes a minute; `test_wheel` has it. `make release-check` does more, with each
Python of a machine.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from packaging.version import Version

from release.build import FILES, LOCKS, NOTES, SUMS, ReleaseError, build
from release.check import BROKER_IDS, PAGE, first_minute
from release.sbom import read_lock, sha256
from tests.cluster import HOST, Cluster, free_ports
from tests.conftest import CreateTopic
from tests.packaging.conftest import ROOT, run
from tests.support.numbered import write_all
from tests.support.printed import PrintedShell, commands, fenced, overrides, section
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(400)

RELEASED: Final = (
    *("protocol", "quotas", "commandline", "kafka_client", "console", "proxy", "offline", "requirements"),
    *("README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "hatch_build.py", "sluice.example.toml"),
    *FILES.values(),
)
VERSION: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
RECORD: Final = b"x" * 100_000
COMMITTED_AT: Final = "2026-01-31T12:00:00+00:00"


def git(checkout: Path, *words: str) -> None:
    dates = {"GIT_AUTHOR_DATE": COMMITTED_AT, "GIT_COMMITTER_DATE": COMMITTED_AT}
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(
        ["git", "-C", str(checkout), *who, *words],
        env={**os.environ, **dates},
        check=True,
        capture_output=True,
        timeout=60,
    )


def checkout(directory: Path) -> Path:
    """A repository with one commit: what is released, with a section of the version in the changelog."""
    directory.mkdir()
    for name in RELEASED:
        path = ROOT / name
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "compiled")
            shutil.copytree(path, directory / name, ignore=ignored, copy_function=shutil.copyfile)
        else:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, directory / name)
    changelog = directory / "CHANGELOG.md"
    text = re.sub(rf"^## {re.escape(VERSION)}\b.*\n", "", changelog.read_text(), flags=re.MULTILINE)
    heading = f"## Unreleased\n\n## {VERSION} (2026-01-31)\n"
    changelog.write_text(text.replace("## Unreleased\n", heading, 1))
    git(directory, "init", "--quiet")
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message", "one")
    return directory


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("repository") / "checkout")


@pytest.fixture(scope="module")
def dist(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("release") / "dist"
    build(repository, out, compiled=False)
    return out


def artifacts(dist: Path) -> list[Path]:
    return sorted([*dist.glob("*.whl"), *dist.glob("*.tar.gz")])


def test_two_builds_in_two_places_have_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    again = tmp_path / "dist"
    build(checkout(tmp_path / "another place"), again, compiled=False)

    assert {path.name for path in dist.iterdir()} == {
        f"kafka_sluice-{VERSION}-py3-none-any.whl",
        f"kafka_sluice-{VERSION}-py3-none-any.whl.cdx.json",
        f"kafka_sluice-{VERSION}.tar.gz",
        f"kafka_sluice-{VERSION}.tar.gz.cdx.json",
        *(f"requirements-{lock}.txt" for lock in LOCKS),
        *FILES,
        NOTES,
        SUMS,
    }
    assert {path.name: sha256(path) for path in again.iterdir()} == {
        path.name: sha256(path) for path in dist.iterdir()
    }


def test_checksums_are_of_all_files(dist: Path) -> None:
    lines = [line.split("  ") for line in (dist / SUMS).read_text().splitlines()]

    assert {name: digest for digest, name in lines} == {
        path.name: sha256(path) for path in dist.iterdir() if path.name != SUMS
    }


def test_notes_are_the_section_of_the_version(dist: Path, repository: Path) -> None:
    notes = (dist / NOTES).read_text()

    assert notes.startswith(f"# kafka-sluice {VERSION}\n\n### Added\n")
    assert notes.partition("\n\n")[2].rstrip() in (repository / "CHANGELOG.md").read_text()
    assert "## Unreleased" not in notes


def sbom(artifact: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(artifact.with_name(f"{artifact.name}.cdx.json").read_text())
    return found


def locked(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """The packages of a lock with their versions and hashes, without what only other systems need."""
    packages = read_lock((ROOT / "requirements" / f"{name}.txt").read_text())
    return {
        package.name: (package.version, frozenset(package.hashes))
        for package in packages
        if "win32" not in package.marker
    }


def test_sbom_names_the_artifact_and_all_that_is_locked(dist: Path) -> None:
    required = locked("run")
    everything = {name: found for lock in LOCKS for name, found in locked(lock).items()}
    for artifact in artifacts(dist):
        content = sbom(artifact)
        assert content["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": sha256(artifact)}]
        assert content["metadata"]["component"]["version"] == VERSION
        components = {component["name"]: component for component in content["components"]}
        assert {
            name: (
                component["version"],
                frozenset(one["content"] for one in component["externalReferences"][0]["hashes"]),
            )
            for name, component in components.items()
        } == everything
        assert {name for name, one in components.items() if one["scope"] == "required"} == required.keys()
        assert components["aiokafka"]["properties"] == [{"name": "sluice:extra", "value": "fleet"}]


def test_sbom_has_who_needs_what(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    needs = {edge["ref"]: edge.get("dependsOn", []) for edge in sbom(wheel)["dependencies"]}

    direct = {reference.partition("==")[0] for reference in needs["kafka-sluice"]}
    assert {"msgspec", "uvloop", "aiokafka", "textual", "pyspark"} <= direct
    assert "py4j" not in direct
    (spark,) = (reference for reference in needs if reference.startswith("pyspark=="))
    assert [reference.partition("==")[0] for reference in needs[spark]] == ["py4j"]


def test_first_minute_with_nothing_but_the_release(
    dist: Path, kafka: Cluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    directory = shutil.copytree(dist, tmp_path / "dist")
    (verify,) = fenced(section(PAGE.read_text(), "## Check what you have"))
    run("bash", "-c", verify, cwd=directory)
    first_minute(directory, Path(sys.executable), kafka.bootstrap(), create_topic())


def test_first_hour_of_the_tutorial(
    dist: Path, kafka: Cluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    directory = shutil.copytree(dist, tmp_path / "dist")
    row = free_ports(BROKER_IDS + 2)
    sluice, admin = f"{HOST}:{row[0]}", f"{HOST}:{row[-1]}"
    text = (ROOT / "docs" / "tutorial.md").read_text()
    install, check, ready, look, enforce, explain, left = fenced(text)
    configuration, quotas = fenced(text, "toml")
    replaced = {
        "/opt/sluice": str(tmp_path / "opt"),
        "kafka1:9092,kafka2:9092,kafka3:9092": kafka.bootstrap(),
        "localhost:19080": admin,
    }

    with PrintedShell(directory, replaced, overrides(row[0], row[1], row[-1])) as shell:
        (directory / "sluice.toml").write_text(shell.here(configuration))
        (directory / "quotas.toml").write_text(quotas)
        for command in commands(install):
            shell.run(command)
        checked, _ = [shell.run(command) for command in commands(check)]
        assert "is right" in checked
        assert "cluster: 3 brokers" in checked
        assert "warning" not in checked
        assert shell.run(ready) == "ready\n"
        write_all(sluice, create_topic(), [RECORD], settings={"client.id": "spared"})
        assert "spared" in shell.run(look)
        for command in commands(enforce):
            shell.run(command)
        write_all(sluice, create_topic(), [RECORD] * 60, settings={"client.id": "reports"})  # 6 MB at 2 MB/s
        assert "producer_byte_rate 2.0 MB/s of client-id 'reports'" in shell.run(explain)
        until(lambda: shell.run(left).strip().endswith(" 0.0"), "no client is left")


def test_requirements_take_no_other_file_of_this_version(dist: Path, tmp_path: Path) -> None:
    """As an operator whose wheel was exchanged on the way."""
    directory = shutil.copytree(dist, tmp_path / "dist")
    (wheel,) = directory.glob("*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--no-index"]
    done = subprocess.run(
        [*pip, "--dest", str(tmp_path / "got"), "-r", "requirements-run.txt"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 1
    assert "hash" in done.stderr.lower(), done.stderr


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    return checkout(tmp_path / "changed")


def test_uncommitted_changes_are_refused(changed: Path, tmp_path: Path) -> None:
    (changed / "proxy" / "new.py").write_text("")

    with pytest.raises(ReleaseError, match=r"1 files are not as committed \(\?\? proxy/new\.py"):
        build(changed, tmp_path / "dist", compiled=False)
    assert not (tmp_path / "dist").exists()


def test_version_without_a_section_in_the_changelog_is_refused(changed: Path, tmp_path: Path) -> None:
    project = changed / "pyproject.toml"
    project.write_text(project.read_text().replace(f'version = "{VERSION}"', 'version = "9.9.9"'))
    git(changed, "commit", "--all", "--quiet", "--message", "two")

    with pytest.raises(ReleaseError, match=r'no section "## 9\.9\.9"'):
        build(changed, tmp_path / "dist", compiled=False)


def test_snapshot_has_the_commit_in_its_version(changed: Path, tmp_path: Path) -> None:
    (changed / "proxy" / "new.py").write_text('"""New."""\n')
    build(changed, tmp_path / "dist", snapshot=True, compiled=False)

    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert re.fullmatch(rf"kafka_sluice-{re.escape(VERSION)}\+g[0-9a-f]+-py3-none-any\.whl", wheel.name)


def test_every_place_that_has_the_version_has_this_one() -> None:
    """pyproject.toml has it, `make chart` writes it, an image gets it as an argument, and documents write VERSION."""
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "sluice" / "Chart.yaml").read_text())
    assert chart["appVersion"] == VERSION
    assert Version(chart["version"]) == Version(VERSION)  # as Helm writes it: 1.2.0-dev0
    for path in (ROOT / "docker").glob("kubernetes-*.yaml"):
        labels = re.findall(r'app\.kubernetes\.io/version: "?([\w.]+)', path.read_text())
        assert set(labels) == {VERSION}, path.name
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    written = [
        one
        for path in documents
        for one in re.findall(r"kafka_sluice-([\w.]+?)(?:-|\.tar)", path.read_text())
    ]
    assert written
    assert set(written) <= {"VERSION", VERSION}


def releases(changelog: str) -> list[Version]:
    """The versions of the headings, newest first."""
    return [Version(one) for one in re.findall(r"^## (\d\S*)", changelog, flags=re.MULTILINE)]


def test_releases_of_the_changelog_are_in_order_and_none_is_above_the_version(repository: Path) -> None:
    """That of the repository has the version's own section at least, also before the first release."""
    assert releases("## 0.10.0 (b)\n## 0.9.1 (a)\n") == [Version("0.10.0"), Version("0.9.1")]
    cut = releases((repository / "CHANGELOG.md").read_text())
    assert cut[0] == Version(VERSION)
    for found in (cut, releases((ROOT / "CHANGELOG.md").read_text())):
        assert found == sorted(set(found), reverse=True)
        assert all(one <= Version(VERSION) for one in found)
