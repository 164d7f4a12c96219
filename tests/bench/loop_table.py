"""`python -m tests.bench.loop_table [KiB]`: what the worst frame of each API takes of the loop, in ms of CPU time.

With a size in KiB all frames have that; without, each is as large as its bound allows.
"""

import sys

from tests.support.worst_frames import KIB, cases, run


def main(arguments: list[str]) -> None:
    """Print the table."""
    size = int(arguments[0]) * KIB if arguments else None
    print(f"{'API':30} {'what':32} {'bytes':>9} {'loop ms':>8} {'beside ms':>9} {'calls':>6}  ended")
    for case, talk in cases(size):
        taken = run(talk)
        print(
            f"{case.name:30} {case.what:32} {len(talk.frame):9} {taken.loop_ms:8.2f} {taken.beside_ms:9.1f}"
            f" {taken.steps:6}  {taken.ended}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
