"""`make simulate`: fleets with faults in virtual time, one seed after the other, on all processors.

Each seed is run twice: with all faults, where shares are compared with the bound, and with members that are never cut
off, where bytes are. Each tenth is run with a capacity as well (`capacity_fleet`, `capacity_calm`), half of those with
the keys in parts. A seed that fails is printed; `--first SEED --seeds 1` repeats it. A whole run is written into
docs/benchmarks.md.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from math import inf
from multiprocessing import Pool
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench import machine
from tests.bench import report as document
from tests.bench.options import DOCUMENT
from tests.bench.report import Bar, Outcome, Table
from tests.simulation import capacity_calm, capacity_fleet
from tests.simulation.fleet_faults import NO_CUT_OFF
from tests.simulation.fleet_world import chaotic

_SEEDS: Final = 100_000
_AT_ONCE: Final = 1024
_CHUNK: Final = 8
_CAPACITY_EACH: Final = 10  # of so many seeds one is run with a capacity
_PARTS: Final = 3
_SHOWN: Final = 20  # after so many seeds the bar is printed again
_BAR: Final = 40


class Result(NamedTuple):
    """What one seed has shown.

    Args:
        problem: why it failed; "" if it did not.
        share: the largest part of the budget that was granted at once, without that of members that were cut off.
        burst: the largest part of the burst that passed beyond the quota.
        capacity: the largest part that passed in 10 s of what a capacity allows.
    """

    seed: int
    problem: str
    share: float = 0.0
    burst: float = 0.0
    capacity: float = 0.0


def simulate(seed: int) -> Result:
    """Run one seed."""
    capacity = 0.0
    problems: list[str] = []
    try:
        share = chaotic(seed).worst
        burst = chaotic(seed, NO_CUT_OFF).ledger.worst
        if seed % _CAPACITY_EACH == 0:
            parts = _PARTS if seed // _CAPACITY_EACH % 2 else 1
            capacity_fleet.chaotic(seed, parts=parts)
            capacity = capacity_fleet.chaotic(seed, NO_CUT_OFF, parts=parts).largest
            problems += capacity_calm.problems(seed, parts)
    except AssertionError as error:
        return Result(seed, str(error))
    if burst > 1:
        problems.append(f"{burst:.3f} bursts passed beyond the quota")
    if capacity > 1:
        problems.append(f"{capacity:.3f} of what a capacity allows passed in 10 s")
    return Result(seed, "; ".join(problems), share, burst, capacity)


def main(arguments: Sequence[str]) -> int:
    """Run all seeds; exit with 1 if any has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=_SEEDS, metavar="N", help="default: %(default)s")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="default: %(default)s")
    parser.add_argument("--minutes", type=float, default=inf, metavar="M", help="stop then, with fewer seeds")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="J", help="default: all cores"
    )
    parser.add_argument("--write", action="store_true", help="write the document though the run is not whole")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="default: %(default)s")
    options = parser.parse_args(arguments)
    progress = Progress(options.seeds, time.monotonic())
    share = burst = capacity = 0.0
    end = options.first + options.seeds
    with Pool(options.jobs) as pool:
        for first in range(options.first, end, _AT_ONCE):
            seeds = range(first, min(first + _AT_ONCE, end))
            for result in pool.imap_unordered(simulate, seeds, chunksize=_CHUNK):
                share, burst = max(share, result.share), max(burst, result.burst)
                capacity = max(capacity, result.capacity)
                progress.count(result)
            if progress.seconds >= options.minutes * 60:
                break
    total = Total(progress.done, progress.failed, share, burst, capacity, progress.seconds, options.jobs)
    print(
        f"{total.seeds} seeds, {total.failed} failed; largest share {share:.4f} of the budget, largest burst"
        f" {burst:.3f} of one, {capacity:.3f} of a capacity's bound, {total.seconds:.0f} s in {options.jobs} processes"
    )
    if options.write or (options.first == 0 and total.seeds >= _SEEDS):
        document.write(options.document, "simulate", machine.host(), report(total))
        print(f"written to {options.document}")
    return 1 if progress.failed else 0


class Total(NamedTuple):
    """What all seeds have shown; `share`, `burst` and `capacity` are the largest of those that did not fail."""

    seeds: int
    failed: int
    share: float
    burst: float
    capacity: float
    seconds: float
    processes: int


def report(total: Total) -> Outcome:
    """Return the table and the bars."""
    bars = [
        Bar("seeds that fail", float(total.failed), 0.0, ""),
        Bar("largest share, without that of members that are cut off", round(total.share, 6), 1.0, "budgets"),
        Bar("largest burst beyond the quota", total.burst, 1.0, "bursts"),
        Bar("largest 10 s of a capacity", total.capacity, 1.0, "bounds"),
    ]
    columns = (
        "seeds",
        "failed",
        "largest share",
        "largest burst",
        "largest 10 s of a capacity",
        "minutes",
        "processes",
    )
    row = (
        *(
            f"{total.seeds:,}",
            str(total.failed),
            f"{total.share:.4f}",
            f"{total.burst:.3f}",
            f"{total.capacity:.3f}",
        ),
        *(f"{total.seconds / 60:.1f}", str(total.processes)),
    )
    note = "Each seed is 20 s of a fleet in virtual time, with all faults and again without members that are cut off."
    return Outcome([Table("Fleets in virtual time", columns, (row,), note)], bars)


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
