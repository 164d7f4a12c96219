"""How the backtest's second form of the quota rules is compiled: numba, kept on disk between processes.

Only `backtest` and what it is made of import this module: the proxy needs neither numba nor numpy. No fast mathematics:
a decision must be the same to the last bit as the engine's (tests/property/test_backtest.py). What is compiled
allocates nothing: its callers do.

One function is `kept`, and all that it calls is compiled into it. Keeping those too would make it two to seven times as
slow: what numba takes from the disk it can call, and no longer inline.
"""

import hashlib
from collections.abc import Callable
from importlib import resources
from typing import Any, Final, ParamSpec, TypeVar

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Ints", "Numbers", "compiled", "inlined", "kept"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int32]

P = ParamSpec("P")
R = TypeVar("R")

# The numpy error model saves a test for zero at each division; no divisor here can be zero. Without numba's run time
# (nrt) nothing can be allocated, and arrays are not counted: counting them took nine tenths of the time.
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Have numba compile a function with the one that calls it: what is not called for every decision."""
    return _made(function)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """The same, and put it where it is called: a call hands over five words for each array."""
    return _made(function, forceinline=True)


def kept(function: Callable[P, R]) -> Callable[P, R]:
    """Have numba compile a function at its first call, or take what an earlier process has compiled."""
    made: Any = _made(function, cache=True)
    # By itself numba looks at this function's file alone, and would take what was made of other rules.
    made._cache._cache_file._source_stamp = _sources()
    return made  # type: ignore[no-any-return]  # numba has no types


def _made(function: Callable[P, R], **options: bool) -> Callable[P, R]:
    njit: Any = numba.njit  # whose types do not know `_nrt`
    made: Callable[P, R] = njit(**_OPTIONS, **options)(function)
    return made


def _sources() -> str:
    """A digest of all source files of this package: any of their rules and constants may be compiled in."""
    digest = hashlib.sha256()
    folders = [resources.files("quotas")]
    while folders:
        for entry in sorted(folders.pop().iterdir(), key=lambda entry: entry.name):
            if entry.is_dir():
                folders.append(entry)
            elif entry.name.endswith(".py"):
                digest.update(entry.read_bytes())
    return digest.hexdigest()
