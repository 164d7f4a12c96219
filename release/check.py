"""Uses a release as its operator would: installs what is in dist/ and nothing of the checkout, and serves with it.

For each Python of this machine and each wheel that fits it, in a bare environment:

    first minute  the commands of docs/how-to/install.md, as printed: install, serve before a real broker, alter a quota
    version       `sluice --version` is the release's
    check         `sluice check` of the example configuration, which is in the sources of the release
    offline       `requirements-offline.txt`, and `sluice-offline run` on a small capture

The table that is printed has the seconds of each.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from packaging.utils import parse_wheel_filename

from release.build import ReleaseError, finished
from tests.cluster import HOST, Cluster, ClusterOptions, free_ports, tools
from tests.support.numbered import write_all
from tests.support.printed import PrintedShell, commands, fenced, section
from tests.support.synthetic import fleet, write_capture

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "how-to" / "install.md"
BROKER_IDS: Final = 64  # of a listener that does not say how many
_MINORS: Final = (11, 12, 13, 14)
_ABOUT: Final = (
    "import ensurepip, platform, sys, venv; print(platform.python_version(), sys.prefix == sys.base_prefix)"
)
_STEP_SECONDS_MAX: Final = 600


class Row(NamedTuple):
    """A step of a check, with its time; `problem` is "" if it succeeded."""

    python: str
    wheel: str
    step: str
    seconds: float
    problem: str


def pythons() -> list[Path]:
    """Return the supported Pythons of this machine that can make an environment, one path for each version."""
    patterns = [Path.home() / ".pyenv" / "versions" / f"3.{minor}.*" / "bin" / "python3" for minor in _MINORS]
    found = [path for pattern in patterns for path in sorted(Path("/").glob(str(pattern)[1:]))]
    found += [
        Path(directory, f"python3.{minor}")
        for minor in _MINORS
        for directory in ("/usr/local/bin", "/usr/bin", *os.environ["PATH"].split(os.pathsep))
    ]
    versions: dict[str, Path] = {}
    for path in found:
        if path.exists() and (version := _version(path)):
            versions.setdefault(version, path)
    return list(versions.values())


def run(dist: Path, interpreters: Sequence[Path], *, offline: bool) -> int:
    """Check a release with each of these Pythons, and print the table; return the exit code.

    Raises:
        ReleaseError: there is no release in `dist`.
    """
    wheels = sorted(dist.glob("*.whl"))
    if not wheels:
        raise ReleaseError(f"{dist} has no wheel: make release")
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="sluice-check-") as name,
        Cluster(ClusterOptions(nodes=1)) as cluster,
    ):
        topic = "release-check"
        tools.create_topic(cluster.bootstrap(), topic)
        capture = Path(name) / "capture"
        write_capture(capture, fleet(5, 2e6, brokers=1), 20)
        for python in interpreters:
            for wheel in wheels:
                if fits(wheel, _version(python)):
                    directory = Path(name) / f"{len(rows)}"
                    check = _Check(dist, wheel, python, directory, cluster.bootstrap(), topic)
                    for row in check.steps(capture if offline else None):
                        rows.append(row)
                        sys.stderr.write(_line(row) + "\n")
                    shutil.rmtree(directory, ignore_errors=True)
    header = "| Python | wheel | step | seconds | |\n|---|---|---|--:|---|\n"
    sys.stdout.write(header + "".join(_line(row) + "\n" for row in rows))
    return 1 if not rows or any(row.problem for row in rows) else 0


def fits(wheel: Path, version: str) -> bool:
    """Whether a Python of a version, such as "3.12.1", installs a wheel.

    >>> fits(Path("a-1-py3-none-any.whl"), "3.12.1"), fits(Path("a-1-cp311-cp311-linux_x86_64.whl"), "3.12.1")
    (True, False)
    """
    interpreter = "cp" + "".join(version.split(".")[:2])
    return any(tag.interpreter in ("py3", interpreter) for tag in parse_wheel_filename(wheel.name)[3])


def install(dist: Path, wheel: Path, links: Path, pip: Sequence[str | Path], lock: str) -> None:
    """Install a release's requirements of one name into an environment, with this wheel of it and no other.

    Args:
        links: a directory for the wheel and the requirements.
        pip: the command that runs the environment's pip.
    """
    links.mkdir(exist_ok=True)
    shutil.copy(wheel, links)
    shutil.copy(dist / f"requirements-{lock}.txt", links)
    command([*pip, "install", "--quiet", "-r", links / f"requirements-{lock}.txt"], links)


def first_minute(directory: Path, python: Path, bootstrap: str, topic: str) -> None:
    """Carry out the page's commands: from nothing to a client that is held to its quota, which is then altered.

    Args:
        directory: has a wheel and the requirements.
        python: makes the environment `sluice` there.
        topic: gets a record.

    Raises:
        AssertionError: a command failed, or printed something else.
    """
    start, look = fenced(section(PAGE.read_text(), "## The first minute"))
    row = free_ports(BROKER_IDS + 3)
    sluice, admin = f"{HOST}:{row[0]}", f"{HOST}:{row[-1]}"
    replaced = {
        "python3 ": f"{python} ",
        "localhost:9092": bootstrap,
        "127.0.0.1:19090": sluice,
        "localhost:19080": admin,
    }
    with PrintedShell(directory, replaced, {"SLUICE_ADMIN__BIND": admin}) as shell:
        for line in commands(start):
            shell.run(line)
        write_all(sluice, topic, [b"x" * 1000], settings={"client.id": "reports"})
        clients, altered, quotas = [shell.run(line) for line in commands(look)]
    assert "reports" in clients, clients
    assert "Completed updating config" in altered, altered
    expected = {"quota": [{"client_id": "reports", "producer_byte_rate": "4M"}]}
    assert tomllib.loads(quotas) == expected, quotas


def command(
    words: Sequence[str | Path], directory: Path, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command, without anything of this checkout in its environment; return what it printed.

    Raises:
        ReleaseError: it failed.
    """
    bare = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "SLUICE_", "VIRTUAL_ENV"))
    }
    done = finished(words, directory, {**bare, **(environment or {})}, _STEP_SECONDS_MAX)
    if done.returncode != 0:
        said = done.stdout.strip()[-2000:]
        raise ReleaseError(f"{' '.join(map(str, words))} ended with {done.returncode}: {said}")
    return done.stdout


class _Check:
    """The steps of one Python with one wheel."""

    def __init__(
        self, dist: Path, wheel: Path, python: Path, directory: Path, bootstrap: str, topic: str
    ) -> None:
        self._dist, self._wheel, self._python = dist, wheel, python
        self._directory = directory
        self._bootstrap, self._topic = bootstrap, topic
        self._bin = directory / "sluice" / "bin"
        directory.mkdir()

    def steps(self, capture: Path | None) -> Iterator[Row]:
        """Yield a row for each step; none follows a step that failed.

        Args:
            capture: what `sluice-offline` gets; None: without it.
        """
        steps: dict[str, Callable[[], None]] = {
            "first minute": self._first_minute,
            "version": self._check_version,
            "check": self._check_example,
        }
        if capture is not None:
            steps["offline"] = lambda: self._run_offline(capture)
        kind = "pure" if self._wheel.name.endswith("-none-any.whl") else "compiled"
        for name, step in steps.items():
            began, problem = time.monotonic(), ""
            try:
                step()
            except (ReleaseError, AssertionError, OSError, subprocess.SubprocessError) as error:
                problem = str(error)
            yield Row(_version(self._python), kind, name, time.monotonic() - began, problem)
            if problem:
                return

    def _first_minute(self) -> None:
        shutil.copy(self._wheel, self._directory)
        shutil.copy(self._dist / "requirements-run.txt", self._directory)
        first_minute(self._directory, self._python, self._bootstrap, self._topic)

    def _check_version(self) -> None:
        said = command([self._bin / "sluice", "--version"], self._directory).strip()
        version = str(parse_wheel_filename(self._wheel.name)[1])
        assert said == f"sluice {version}", said

    def _check_example(self) -> None:
        with _member(self._dist, "sluice.example.toml") as example:
            said = command([self._bin / "sluice", "check", "--offline", "--config", example], self._directory)
        form = "interpreted" if self._wheel.name.endswith("-none-any.whl") else "compiled"
        assert "is right" in said, said
        assert f"data path: {form}" in said, said

    def _run_offline(self, capture: Path) -> None:
        pip = (self._bin / "python", "-m", "pip", "--disable-pip-version-check")
        install(self._dist, self._wheel, self._directory, pip, "offline")
        work = self._directory / "work"
        words = ("--capacity-in", "80M", "--capacity-out", "200M")
        command(
            [self._bin / "sluice-offline", "run", "--input", capture, "--output", work, *words],
            self._directory,
        )
        assert "<html" in (work / "report" / "report.html").read_text()


@contextmanager
def _member(dist: Path, name: str) -> Iterator[Path]:
    """Yield a file of the release's sources."""
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as packed, tempfile.TemporaryDirectory() as directory:
        packed.extractall(directory, filter="data")
        (top,) = Path(directory).iterdir()
        yield top / name


def _version(python: Path) -> str:
    """Return the version of a Python; "" if it is no interpreter of its own with `venv`."""
    try:
        done = subprocess.run([python, "-c", _ABOUT], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    version, _, of_its_own = done.stdout.strip().partition(" ")
    return version if of_its_own == "True" else ""


def _line(row: Row) -> str:
    said = row.problem.replace("\n", " ").replace("|", "\\|") or "ok"
    return f"| {row.python} | {row.wheel} | {row.step} | {row.seconds:.1f} | {said} |"
