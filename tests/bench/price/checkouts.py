"""Two revisions of the proxy in front of one broker: their code, their configuration, their processes.

Of a revision only the packages that run are taken out (`git archive`), into `build/price`; the working tree is used
where it stands. Where a side is watched, the page of `sluice console` is open on it: the console's process, and a
reader of its stream. It does not measure.
"""

import http.client
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from tests.bench.lanes import NODE, Lane, listening, sluice_command
from tests.bench.stage import Stage
from tests.cluster import HOST, MissingPrerequisiteError
from tests.support.console_process import ConsoleProcess
from tests.support.proxy_process import ROOT, SluicePorts

REFRESH_SECONDS: Final = 2.0  # the console's default
_PAGE_SECONDS_MAX: Final = 30.0
_READ_BYTES: Final = 65_536


@contextmanager
def open_page(admin: str) -> Iterator[None]:
    """Keep the first page open for the time of a `with` block; raises AssertionError if nothing was sent to it."""
    ended = threading.Event()
    received = [0]
    with ConsoleProcess([admin], refresh=REFRESH_SECONDS) as console:
        reader = threading.Thread(
            target=_read, args=(f"{console.url}stream/overview", ended, received), daemon=True
        )
        reader.start()
        try:
            yield
        finally:
            ended.set()
    reader.join(_PAGE_SECONDS_MAX)
    assert received[0], "the console has sent nothing to its page"


def _read(url: str, ended: threading.Event, received: list[int]) -> None:
    try:
        with urllib.request.urlopen(url, timeout=_PAGE_SECONDS_MAX) as response:
            while not ended.is_set() and (part := response.read1(_READ_BYTES)):
                received[0] += len(part)
    except (OSError, ValueError, http.client.HTTPException):  # the stream ends within a chunk
        if not ended.is_set():
            raise


BEFORE: Final = "before"
AFTER: Final = "after"
WORKING_TREE: Final = "working tree"
_PACKAGES: Final = ("protocol", "quotas", "commandline", "kafka_client", "console", "proxy")


class RevisionError(MissingPrerequisiteError):
    """A revision cannot be taken out, or is not what would run."""


def checkout(revision: str, directory: Path) -> Path:
    """Return where a revision's packages lie; the working tree's are not copied.

    Raises:
        RevisionError: git knows no such revision.
    """
    if revision == WORKING_TREE:
        return ROOT
    packages = [name for name in _PACKAGES if _has(revision, name)]
    done = subprocess.run(["git", "archive", revision, *packages], cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        raise RevisionError(f"git archive {revision}: {done.stderr.decode().strip()}")
    shutil.rmtree(directory, ignore_errors=True)  # what another revision left there
    directory.mkdir(parents=True)
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(directory, filter="data")
    return directory


def _has(revision: str, package: str) -> bool:
    """Whether a revision has a package: earlier ones have fewer."""
    command = ["git", "cat-file", "-e", f"{revision}:{package}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


@contextmanager
def opened(
    stage: Stage,
    trees: Mapping[str, Path],
    policy: str,
    words: Sequence[str] = (),
    capturing: Collection[str] = (),
    watched: Collection[str] = (),
    sharing: Collection[str] = (),
) -> Iterator[list[Lane]]:
    """Start one gateway from each tree, by name, for the time of a `with` block.

    Args:
        words: what stands before its command.
        capturing: the names of those that capture every request.
        watched: the names of those that the console shows, with its page open.
        sharing: the names of those with a capacity.
    """
    lanes: list[Lane] = []
    with ExitStack() as started:
        for name, tree in trees.items():
            ports = SluicePorts.free()
            port, admin = ports.first_broker + NODE, f"{HOST}:{ports.admin}" if name in watched else ""
            config = stage.lanes.config(
                f"{name}-{policy}",
                ports,
                policy=policy,
                captures=name in capturing,
                admin=admin,
                shares=name in sharing,
            )
            command, log = [*words, *sluice_command(config)], stage.directory / f"{name}-{policy}.log"
            child = started.enter_context(listening(command, port, log, env=environment(tree), cwd=tree))
            lanes.append(Lane(name, port, ports.bootstrap, child.pid))
            if admin:
                started.enter_context(open_page(admin))
        yield lanes


def verify(tree: Path) -> None:
    """Make sure that it is this tree's proxy that starts there, and not one that is installed.

    Raises:
        RevisionError: another is found first.
    """
    words = [sys.executable, "-c", "import proxy, quotas, protocol; print(proxy.__path__[0])"]
    done = subprocess.run(words, cwd=tree, env=environment(tree), capture_output=True, text=True, check=False)
    if Path(done.stdout.strip()) != tree / "proxy":
        raise RevisionError(f"in {tree} starts {done.stdout.strip() or done.stderr}")


def environment(tree: Path) -> dict[str, str]:
    """Return the environment in which a tree's own proxy starts: its sources, since only a checkout is compiled."""
    return {
        **os.environ,
        "PYTHONPATH": str(tree),
        "SLUICE_PURE": "1",
        "PYTHONHASHSEED": "0",  # one order of sets on both sides
    }
