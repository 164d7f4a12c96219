"""How the backtest's second form of the quota rules is compiled: numba, kept on disk between processes.

Only `backtest` and what it is made of import this module: the proxy needs neither numba nor numpy. No fast mathematics:
a decision must be the same to the last bit as the engine's (tests/property/test_backtest.py). What is compiled
allocates nothing: its callers do.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Ints", "Numbers", "compiled"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int32]

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Have numba compile a function at its first call, or take what an earlier process compiled."""
    # The numpy error model saves a test for zero at each division; no divisor here can be zero. Without numba's run
    # time (nrt) nothing can be allocated, and arrays are not counted: counting them took nine tenths of the time.
    decorator = numba.njit(cache=True, nogil=True, error_model="numpy", forceinline=True, _nrt=False)  # type: ignore[call-overload]  # no stub knows `_nrt`
    made: Callable[P, R] = decorator(function)
    return made
