"""`make simulate`: fleets with faults in virtual time, one seed after the other, on all processors.

Each seed is run twice: with all faults, where shares are compared with the bound, and with members that are never cut
off, where bytes are. A seed that fails is printed; `--first SEED --seeds 1` repeats it.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from multiprocessing import Pool
from typing import NamedTuple

from tests.simulation.fleet_world import NO_CUT_OFF, chaotic


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
    parser.add_argument(
        "--seeds", type=int, default=100_000, metavar="N", help="how many (default: %(default)s)"
    )
    parser.add_argument(
        "--first", type=int, default=0, metavar="SEED", help="the first one (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    began = time.monotonic()
    failed = done = 0
    share = burst = 0.0
    with Pool() as pool:
        seeds = range(options.first, options.first + options.seeds)
        for result in pool.imap_unordered(simulate, seeds, chunksize=8):
            done += 1
            share, burst = max(share, result.share), max(burst, result.burst)
            if result.problem:
                failed += 1
                print(f"\rseed {result.seed}: {result.problem}", flush=True)
            if sys.stderr.isatty() and done % 100 == 0:
                left = (time.monotonic() - began) / done * (options.seeds - done)
                print(f"\r{done}/{options.seeds} seeds, {left / 60:.0f} min left ", end="", file=sys.stderr)
    print(
        f"{options.seeds} seeds, {failed} failed; largest share {share:.4f} of the budget, largest burst {burst:.3f}"
        f" of one, {time.monotonic() - began:.0f} s on {os.cpu_count()} processors"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
