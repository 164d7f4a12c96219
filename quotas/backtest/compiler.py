"""Compiles the backtest's form of the quota rules with numba, cached on disk between processes.

Only `outcomes` and its modules import this one: the proxy needs neither numba nor numpy. Fast mathematics is off: a
decision must be bit for bit the engine's (tests/property/test_backtest.py). Compiled functions allocate nothing; their
callers do.

One function is `kept`, and all functions that it calls are compiled into it. Caching those too would make it two to
seven times as slow: numba can call functions from its cache, but not inline them.
"""

import hashlib
from collections.abc import Callable
from importlib import resources
from typing import Any, Final, ParamSpec, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba.core.caching import IndexDataCacheFile

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int32]

P = ParamSpec("P")
R = TypeVar("R")

# The numpy error model saves a test for zero at each division; no divisor here can be zero. Without numba's run time
# (nrt) nothing can be allocated, and arrays are not counted: counting them took nine tenths of the time.
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function with numba, not inlined and not cached; for functions that are called rarely."""
    return _made(function)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function with numba and inline it in its callers, since calls with arrays as arguments are slow."""
    return _made(function, forceinline=True)


def kept(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function with numba at its first call, or load its code from the cache of an earlier process.

    Where numba finds no directory to write to (`NUMBA_CACHE_DIR` names one), each process compiles anew.
    """
    made: Any
    try:
        made = _made(function, cache=True)
        _keep_by_rules(made._cache)
    except (RuntimeError, OSError):
        return _made(function)
    return made  # type: ignore[no-any-return]  # numba has no types


def _keep_by_rules(cache: Any) -> None:
    """Let numba's cache of one function depend on the rules that are compiled into it.

    By default numba checks the function's file only, and would load code that was compiled from other rules. And it
    names a directory by the function's path. An executor of Spark has our packages in an archive at a path of its own,
    so each executor would compile anew and leave a directory behind; for an archive the rules are the name.

    Raises:
        OSError: the directory cannot be written to.
    """
    config: Any = numba.config  # which gets its attributes when it is loaded
    digest = sources_digest()
    locator = cache._impl.locator
    if ".zip/" in locator._py_file:
        parent = config.CACHE_DIR or cache.cache_path.rpartition("/")[0]
        locator._cache_path = f"{parent}/sluice_{digest}"
        locator.ensure_cache_path()
    file: Any = IndexDataCacheFile
    cache._cache_file = file(locator.get_cache_path(), cache._impl.filename_base, digest)


def _made(function: Callable[P, R], **options: bool) -> Callable[P, R]:
    njit: Any = numba.njit  # whose types do not know `_nrt`
    made: Callable[P, R] = njit(**_OPTIONS, **options)(function)
    return made


def sources_digest() -> str:
    """Return a hash of all source files of `quotas`; if it has changed, cached code is not used.

    The rules and constants of any of these files may be compiled into it.
    """
    digest = hashlib.sha256()
    folders = [resources.files("quotas")]
    while folders:
        for entry in sorted(folders.pop().iterdir(), key=lambda entry: entry.name):
            if entry.is_dir():
                folders.append(entry)
            elif entry.name.endswith(".py"):
                digest.update(entry.read_bytes())
    return digest.hexdigest()
