"""Figures read from /proc, and child processes that respond line by line."""

import os
import sys
from pathlib import Path

import pytest

from tests.bench.process import Child, cpu_seconds, resident_kib


def test_cpu_seconds_grow_with_work() -> None:
    before = cpu_seconds(os.getpid())
    while cpu_seconds(os.getpid()) - before < 0.02:
        sum(range(10_000))
    assert resident_kib(os.getpid()) > 5_000, "more than a bare interpreter has"


def test_child_responds_line_by_line_and_ends_with_its_input(tmp_path: Path) -> None:
    program = "import sys\nfor line in sys.stdin: print(line.strip() * 2, flush=True)"
    with Child([sys.executable, "-c", program], tmp_path / "log") as child:
        child.say("ab")
        assert child.hear() == "abab"
        assert child.running
    assert not child.running


def test_child_that_ends_early_is_named_with_its_log(tmp_path: Path) -> None:
    program = "import sys; sys.exit('no broker there')"
    with (
        Child([sys.executable, "-c", program], tmp_path / "log") as child,
        pytest.raises(ChildProcessError, match="no broker there"),
    ):
        child.hear()
