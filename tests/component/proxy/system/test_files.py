"""proxy.system.files: one process has a lock, and gives it back by closing the file."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.system.files import lock, try_lock


@pytest.fixture
def descriptors(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """One file, opened twice: flock tells the two apart as it does two processes."""
    path = tmp_path / "lock"
    opened = [os.open(path, os.O_RDWR | os.O_CREAT), os.open(path, os.O_RDWR)]
    yield opened[0], opened[1]
    os.close(opened[1])


def test_lock_is_one_holders_until_the_file_is_closed(descriptors: tuple[int, int]) -> None:
    first, second = descriptors
    assert try_lock(first)
    assert not try_lock(second)
    os.close(first)
    assert try_lock(second)


def test_lock_that_is_not_released_in_time_is_a_problem(descriptors: tuple[int, int]) -> None:
    first, second = descriptors
    lock(first, 0.0, "another process writes")
    with pytest.raises(TimeoutError, match=r"another process writes for 0\.02 s"):
        lock(second, 0.02, "another process writes")
    os.close(first)
    lock(second, 0.0, "another process writes")


def test_file_that_cannot_be_locked_says_so() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    os.close(write_end)
    with pytest.raises(OSError, match="Bad file descriptor"):
        try_lock(write_end)
