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


@pytest.mark.parametrize(
    "arguments",
    [
        ("proxy", "--help"),
        ("proxy", "check", "--offline", "--config", "sluice.example.toml"),
        ("offline", "recommend", "--help"),
    ],
)
def test_output_without_a_reader_ends_the_command_quietly(arguments: tuple[str, ...]) -> None:
    assert ended(*arguments) == (141, "")


def test_image_with_unbuffered_output_ends_quietly_too() -> None:
    arguments = ("proxy", "check", "--offline", "--config", "sluice.example.toml")
    assert ended(*arguments, unbuffered=True) == (141, "")


def test_errors_without_a_reader_end_the_command_too() -> None:
    assert ended("proxy", "check", "--config", "/nonexistent", errors_too=True)[0] == 141


def test_connection_that_breaks_is_not_taken_for_the_output() -> None:
    def fail() -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_quietly(fail)


def test_interrupt_is_an_exit_code() -> None:
    def interrupt() -> int:
        raise KeyboardInterrupt

    assert run_quietly(interrupt) == 130


def test_exit_code_is_the_commands() -> None:
    assert run_quietly(lambda: 3) == 3
