"""Waiting for a condition, in real time."""

import time
from collections.abc import Callable
from typing import Final

SECONDS_MAX: Final = 40.0
_STEP_SECONDS: Final = 0.05
# A look may cost a page of metrics. In a long wait steps are a hundredth of it, which delays nothing by more.
_STEP_PART: Final = 0.01
_STEP_SECONDS_MAX: Final = 0.5


def until(
    condition: Callable[[], object],
    what: str | Callable[[], str] = "it holds",
    seconds: float = SECONDS_MAX,
    pause: float | None = None,
) -> float:
    """Wait until a condition holds; return how long that took, in seconds.

    Args:
        what: the condition in words, or what makes them when it does not hold.
        pause: between two looks, in seconds; without one it grows with the wait.

    Raises:
        AssertionError: it does not hold in time.
    """
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited >= seconds:
            raise AssertionError(f"not within {seconds:.0f} s: {what if isinstance(what, str) else what()}")
        grown = min(max(_STEP_SECONDS, _STEP_PART * waited), _STEP_SECONDS_MAX)
        time.sleep(grown if pause is None else pause)
    return time.monotonic() - began
