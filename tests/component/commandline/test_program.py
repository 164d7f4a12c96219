"""Closed pipes and interrupts: a command ends as other Unix tools do, without a word."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commandline.program import run_quietly

ROOT = Path(__file__).parents[3]


def ended(*arguments: str, errors_too: bool = False, unbuffered: bool = False) -> tuple[int, str]:
    """Run a module whose output has no reader any more; give its exit code and standard error."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            stdout=writer,
            stderr=writer if errors_too else subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1" if unbuffered else ""},
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


CHECK = ("proxy", "check", "--offline", "--config", "sluice.example.toml")


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (("proxy", "--help"), False),
        (CHECK, False),
        (CHECK, True),  # as in an image
        (("offline", "recommend", "--help"), False),
    ],
)
def test_output_without_a_reader_ends_the_command_quietly(
    arguments: tuple[str, ...], unbuffered: bool
) -> None:
    assert ended(*arguments, unbuffered=unbuffered) == (141, "")


def test_errors_without_a_reader_end_the_command_too() -> None:
    assert ended("proxy", "check", "--config", "/nonexistent", errors_too=True)[0] == 141


def test_connection_that_breaks_is_not_taken_for_the_output() -> None:
    def fail() -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_quietly(fail)
