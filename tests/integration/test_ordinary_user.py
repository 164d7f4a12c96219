"""The proxy needs no rights: run as an ordinary user, it relays large frames through its kernel pipes.

An unprivileged process has 64 MiB of pipe pages; what is refused beyond that must cost speed and nothing else.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support.numbered import write_all
from tests.support.proxy_process import ROOT, SluiceProcess, SluiceSettings
from tests.support.workers import WORKERS

_RECORD_BYTES = 900_000
_RECORDS = 40
_STARTS_ANOTHER = (
    "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import proxy.app'], check=True)"
)


def _as_nobody() -> list[str]:
    """Words that run a command as an ordinary user; none are needed where the tests are run by one."""
    if os.getuid() != 0:
        return []
    nobody = pwd.getpwnam("nobody")
    words = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    # Workers are started by the process itself, without the rights that setpriv was started with.
    program = "import proxy.app" if WORKERS == 1 else _STARTS_ANOTHER
    can_read = [*words, sys.executable, "-c", program]
    if shutil.which("setpriv") is None or subprocess.run(can_read, cwd=ROOT, check=False).returncode != 0:
        missing = "nobody cannot read this checkout or its Python: this run shows it with our own rights only"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return words


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that every user can read; pytest's own can be read by its user only."""
    with tempfile.TemporaryDirectory(prefix="sluice-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_ordinary_user_relays_large_frames(
    kafka: Cluster, create_topic: CreateTopic, directory: Path
) -> None:
    topic = create_topic(partitions=3, replication=1)
    settings = SluiceSettings(kafka.bootstrap(), quotas={"producer_default": "1G"})
    with SluiceProcess.configured(settings, directory, run_as=_as_nobody()) as sluice:
        owner = Path(f"/proc/{sluice.process_id}").stat().st_uid
        write_all(sluice.bootstrap, topic, [bytes(_RECORD_BYTES)] * _RECORDS, partitions=3)
        spliced = sluice.metric("sluice_spliced_bytes_total")
    assert owner != 0
    assert spliced > _RECORDS * _RECORD_BYTES / 2
