"""A fuzz target: a name, a function over bytes, and a description of its inputs for the fuzzer."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One target.

    Attributes:
        run: takes any bytes; raises only where something is wrong with us.
        about: one line for people.
        input_bytes_max: the longest input that the fuzzer makes.
        words: texts that mean something in its inputs (libFuzzer's dictionary).
        packages: whose coverage guides the fuzzer; what only computes is left alone, since to watch it costs time.
        bound_seconds: the most CPU time of one call; 0: what it calls is not on the loop.
    """

    run: Callable[[bytes], None]
    about: str
    input_bytes_max: int = 2048
    words: tuple[bytes, ...] = ()
    packages: tuple[str, ...] = ("protocol", "proxy")
    bound_seconds: float = 0.005
