"""Waiting for a condition, in real time."""

import time
from collections.abc import Callable
from typing import Final

SECONDS_MAX: Final = 40.0
_STEP_SECONDS: Final = 0.05


def until(
    condition: Callable[[], object],
    what: str | Callable[[], str] = "it holds",
    seconds: float = SECONDS_MAX,
    pause: float = _STEP_SECONDS,
) -> float:
    """Wait until a condition holds; return how long that took, in seconds.

    Args:
        what: the condition in words, or what makes them when it does not hold.
        pause: between two looks, in seconds.

    Raises:
        AssertionError: it does not hold in time.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began >= seconds:
            raise AssertionError(f"not within {seconds:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(pause)
    return time.monotonic() - began
