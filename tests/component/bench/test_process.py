"""Figures read from /proc, and child processes that respond line by line."""

import doctest
import os
import sys
from pathlib import Path

import pytest

from tests.bench import process


def test_process_examples_hold() -> None:
    assert doctest.testmod(process).failed == 0


def test_cpu_seconds_grow_with_work() -> None:
    before = process.cpu_seconds(os.getpid())
    while process.cpu_seconds(os.getpid()) - before < 0.02:
        sum(range(10_000))


def test_resident_memory_of_this_process_is_more_than_a_bare_interpreter() -> None:
    assert process.resident_kib(os.getpid()) > 5_000


def test_child_responds_line_by_line_and_ends_with_its_input(tmp_path: Path) -> None:
    program = "import sys\nfor line in sys.stdin: print(line.strip() * 2, flush=True)"
    with process.child_process([sys.executable, "-c", program], tmp_path / "log") as child:
        child.say("ab")
        assert child.hear() == "abab"
        assert child.running
    assert not child.running


def test_child_that_ends_early_is_named_with_its_log(tmp_path: Path) -> None:
    program = "import sys; sys.exit('no broker there')"
    with (
        process.child_process([sys.executable, "-c", program], tmp_path / "log") as child,
        pytest.raises(ChildProcessError, match="no broker there"),
    ):
        child.hear()
