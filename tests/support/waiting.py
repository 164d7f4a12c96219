"""Waiting for a condition, in real time."""

import time
from collections.abc import Callable
from typing import Final

SECONDS_MAX: Final = 40.0
_STEP_SECONDS: Final = 0.05


def until(condition: Callable[[], object], what: str, seconds: float = SECONDS_MAX) -> None:
    """Wait until a condition holds.

    Args:
        what: the condition in words.

    Raises:
        AssertionError: it does not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(_STEP_SECONDS)
