"""A fixture of unit and component tests: each finds the process's logging as it was before."""

import logging
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logging_stays() -> Iterator[None]:
    """Commands set logging up for a process of their own; what they would leave here is a closed stream."""
    root = logging.getLogger()
    handlers, level, unraisable = list(root.handlers), root.level, sys.unraisablehook
    yield
    sys.unraisablehook = unraisable
    root.handlers[:] = handlers
    root.setLevel(level)
