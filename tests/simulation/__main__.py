"""`make simulate`: fleets with faults in virtual time, one seed after the other, on all processors.

Each seed is run twice: with all faults, where shares are compared with the bound, and with members that are never cut
off, where bytes are. A seed that fails is printed; `--first SEED --seeds 1` repeats it.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from math import inf
from multiprocessing import Pool
from typing import Final, NamedTuple

from tests.simulation.fleet_faults import NO_CUT_OFF
from tests.simulation.fleet_world import chaotic

_AT_ONCE: Final = 1024
_CHUNK: Final = 8
_SHOWN: Final = 20  # after so many seeds the bar is printed again
_BAR: Final = 40


class Result(NamedTuple):
    """What one seed has shown.

    Args:
        problem: why it failed; "" if it did not.
        share: the largest part of the budget that was granted at once, without that of members that were cut off.
        burst: the largest part of the burst that passed beyond the quota.
    """

    seed: int
    problem: str
    share: float
    burst: float


def simulate(seed: int) -> Result:
    """Run one seed."""
    try:
        share = chaotic(seed).worst
        burst = chaotic(seed, NO_CUT_OFF).ledger.worst
    except AssertionError as error:
        return Result(seed, str(error), 0.0, 0.0)
    problem = f"{burst:.3f} bursts passed beyond the quota" if burst > 1 else ""
    return Result(seed, problem, share, burst)


def main(arguments: Sequence[str]) -> int:
    """Run all seeds; exit with 1 if any has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100_000, metavar="N", help="default: %(default)s")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="default: %(default)s")
    parser.add_argument("--minutes", type=float, default=inf, metavar="M", help="stop then, with fewer seeds")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="J", help="default: all cores"
    )
    options = parser.parse_args(arguments)
    progress = Progress(options.seeds, time.monotonic())
    share = burst = 0.0
    end = options.first + options.seeds
    with Pool(options.jobs) as pool:
        for first in range(options.first, end, _AT_ONCE):
            seeds = range(first, min(first + _AT_ONCE, end))
            for result in pool.imap_unordered(simulate, seeds, chunksize=_CHUNK):
                share, burst = max(share, result.share), max(burst, result.burst)
                progress.count(result)
            if progress.seconds >= options.minutes * 60:
                break
    print(
        f"{progress.done} seeds, {progress.failed} failed; largest share {share:.4f} of the budget, largest burst"
        f" {burst:.3f} of one, {progress.seconds:.0f} s in {options.jobs} processes"
    )
    return 1 if progress.failed else 0


class Progress:
    """Counts results; prints those that failed, and a bar on a terminal."""

    def __init__(self, seeds: int, began: float) -> None:
        self._seeds = seeds
        self._began = began
        self._bar = sys.stderr.isatty()
        self.done = self.failed = 0

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def count(self, result: Result) -> None:
        """Count one result."""
        self.done += 1
        if result.problem:
            self.failed += 1
            print(f"\rseed {result.seed}: {result.problem}", flush=True)
        if self._bar and (self.done % _SHOWN == 0 or self.done == self._seeds):
            part = self.done / self._seeds
            left = self.seconds / part - self.seconds
            bar = "#" * round(_BAR * part)
            text = f"\r[{bar:<{_BAR}}] {self.done}/{self._seeds} seeds, {left / 60:.0f} min left "
            print(text, end="" if self.done < self._seeds else "\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
