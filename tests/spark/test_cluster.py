"""Spark with executors of their own, as on a cluster: a process that has to be given our packages."""

import subprocess
import sys
from pathlib import Path

from tests.support.synthetic import fleet, write_capture


def test_executors_get_our_packages(tmp_path: Path) -> None:
    requests = write_capture(tmp_path / "capture", fleet(3, 1e6), 5)
    command = [sys.executable, "-m", "offline", "ingest", "--master", "local-cluster[1,1,1024]"]
    command += ["--input", str(tmp_path / "capture"), "--output", str(tmp_path / "work"), "--partitions", "1"]
    command += ["--no-progress"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["starting Spark with master local-cluster[1,1,1024]", "ingest: read captures"]
    assert f"ingest: {requests:,} requests of 1 processes" in lines
    assert done.stderr == "", "what Java and Spark say beside errors is left out"
