"""Keeps few inputs: the smallest that together reach all the steps from line to line that all of them reach.

    python -m tests.fuzz.minimise [TARGET ...]      what a run has found in build/fuzz/corpus, and what is kept
    python -m tests.fuzz.minimise --kept [TARGET …] only what is kept: after `tests.fuzz.seeds`

Needs no Atheris: steps are seen by Python's own tracing, in the packages alone. Inputs that are too slow, or that fail,
are left out; they belong into a test of what was put right.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.fuzz import corpus, stopwatch
from tests.fuzz.targets import TARGETS

_ROOT: Final = str(Path(__file__).resolve().parents[2])
_PACKAGES: Final = tuple(
    f"{_ROOT}/{name}/"
    for name in ("protocol", "quotas", "commandline", "kafka_client", "console", "proxy", "offline")
)
_FILE_BYTES_MAX: Final = 28 * 1024
_INPUT_BYTES_MAX: Final = 2000
_SLOW_SECONDS: Final = 0.02
_FOUND: Final = Path("build/fuzz/corpus")
# A loop that turns twice is another step than one that turns once; more often is not.
_OFTEN: Final = 2

Step = tuple[str, int, int, int]


def steps(run: Callable[[bytes], None], data: bytes) -> frozenset[Step]:
    """The steps from line to line that an input leads to, each with how often it was taken, as far as that is told."""
    found: dict[tuple[str, int, int], int] = {}

    def begun(frame: FrameType, event: str, _argument: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGES):
            return None
        last = frame.f_code.co_firstlineno

        def line(frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal last
            if event == "line":
                key = (name, last, frame.f_lineno)
                found[key] = min(found.get(key, 0) + 1, _OFTEN)
                last = frame.f_lineno
            return line

        return line

    sys.settrace(begun)
    try:
        stopwatch.slowest(run, data, exactly=False)
    finally:
        sys.settrace(None)
    return frozenset((*key, often) for key, often in found.items())


def cover(run: Callable[[bytes], None], inputs: list[bytes], bytes_max: int = _FILE_BYTES_MAX) -> list[bytes]:
    """The inputs that are kept, the smallest first; of those that add the same, the first."""
    seen: set[Step] = set()
    kept: list[bytes] = []
    size = 0
    for one in sorted(dict.fromkeys(inputs), key=lambda data: (len(data), data)):
        if len(one) > _INPUT_BYTES_MAX or size + 4 * len(one) // 3 + 3 > bytes_max:
            continue
        try:
            if stopwatch.slowest(run, one, exactly=True).seconds > _SLOW_SECONDS:
                continue
            reached = steps(run, one)
        except Exception as error:  # noqa: BLE001 - a finding is no part of the corpus
            print(f"left out: {error!r}: {one.hex()[:80]}", file=sys.stderr)
            continue
        if reached <= seen:
            continue
        seen |= reached
        kept.append(one)
        size += 4 * (len(one) + 2) // 3 + 1
    return kept


def main() -> None:
    """Minimise what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.minimise")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--kept", action="store_true", help="only what is kept already")
    arguments = parser.parse_args()
    for name in arguments.targets or TARGETS:
        inputs = corpus.read(name)
        if not arguments.kept:
            inputs += corpus.read_directory(_FOUND / name)
        kept = cover(TARGETS[name].run, inputs)
        print(f"{name}: {len(kept)} of {len(inputs)} inputs, {corpus.write(name, kept)} bytes", flush=True)


if __name__ == "__main__":
    main()
