"""`make fleet`: one quota over members and workers, on real brokers.

    python -m tests.bench.fleet [shapes] [faults] [kills] [workers] [holder] [quotas] [flood]

`shapes`: how exact it is with several members and workers, beside one process. `faults`: what clients get while
workers, members, the holder and a broker are killed or stopped. `kills`: what those of one member get in each second
while the other is killed. `workers`: what several workers cost. `holder`: what
leasing to 16 members costs. `quotas`: how soon an alteration holds at another member, and a start with 100,000
entities. `flood`: the same during and after a million forged records in their topic. A whole part is
written into docs/benchmarks.md, a smaller choice only with `--write`.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.bench import machine
from tests.bench import report as screen
from tests.bench.accuracy.judge import KIP13, SCHEDULE, Options
from tests.bench.fleet import fault_table, faults, flood, holder, kills, quotas, shapes, workers
from tests.bench.options import DOCUMENT
from tests.bench.report import Outcome
from tests.cluster import MissingPrerequisiteError, processes

_PARTS: Final = ("shapes", "faults", "kills", "workers", "holder", "quotas", "flood")
_SHAPES: Final = "1x1,1x2,2x1,2x2"
_SECONDS: Final = 75
_WORKERS: Final = "1,2,4"
_FAULTS: Final = ",".join(fault.name for fault in faults.FAULTS)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what is measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(_PARTS)} (all)")
    parser.add_argument("--shapes", default=_SHAPES, help="members x workers (default: %(default)s)")
    parser.add_argument(
        "--only", choices=tuple(shapes.CONNECTIONS), action="append", help="of the shapes' directions (both)"
    )
    parser.add_argument("--seconds", type=int, default=_SECONDS, help="of each shape (default: %(default)s)")
    parser.add_argument("--faults", default=_FAULTS, help="default: %(default)s")
    parser.add_argument("--policy", choices=(SCHEDULE, KIP13), default=SCHEDULE, help="of the faults")
    parser.add_argument("--workers", default=_WORKERS, help="numbers of workers (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="write the document even if a part is not whole")
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(_PARTS):
        parser.error(f"no part {min(unknown)!r}; there are {', '.join(_PARTS)}")
    if unknown := set(given.faults.split(",")) - set(_FAULTS.split(",")):
        parser.error(f"no fault {min(unknown)!r}; there are {_FAULTS}")
    return given


def play_shapes(given: argparse.Namespace, console: Console) -> tuple[Outcome, bool, str]:
    """Return what the shapes made of the quota, whether they are all, and no picture."""
    chosen = [shapes.Shape(*map(int, text.split("x"))) for text in given.shapes.split(",")]
    options = Options(
        policies=(SCHEDULE,),
        directions=tuple(given.only or shapes.CONNECTIONS),
        seconds=given.seconds,
        quota=shapes.QUOTA,
        write=False,
    )
    outcome = shapes.report(shapes.measure(options, chosen, console), options)
    return outcome, (given.shapes, given.only, given.seconds) == (_SHAPES, None, _SECONDS), ""


def play_faults(given: argparse.Namespace, console: Console) -> tuple[Outcome, bool, str]:
    """Return what the faults made of it, whether they are all, and the picture."""
    names = given.faults.split(",")
    chosen = [fault for fault in faults.FAULTS if fault.name in names]
    played = faults.play(chosen, given.policy, shapes.QUOTA, console)
    outcome = fault_table.report(played, shapes.QUOTA, given.policy)
    whole = (given.faults, given.policy) == (_FAULTS, SCHEDULE)
    return outcome, whole, fault_table.svg(played, shapes.QUOTA)


def play_kills(_: argparse.Namespace, console: Console) -> tuple[Outcome, bool, str]:
    """Return what killed members cost the clients of the others, and the picture."""
    played = faults.play(kills.KILLS, SCHEDULE, shapes.QUOTA, console)
    return kills.report(played, shapes.QUOTA), True, fault_table.svg(played, shapes.QUOTA)


def play_workers(given: argparse.Namespace, console: Console) -> tuple[Outcome, bool, str]:
    """Return what several workers cost, whether they are all, and no picture."""
    counts = [int(number) for number in given.workers.split(",")]
    return workers.report(workers.measure(counts, console)), given.workers == _WORKERS, ""


def play_holder(_: argparse.Namespace, console: Console) -> tuple[Outcome, bool, str]:
    """Return what the holder costs, and no picture."""
    return holder.report(holder.measure(console)), True, ""


def play_quotas(_: argparse.Namespace, console: Console) -> tuple[Outcome, bool, str]:
    """Return how soon members have the same quotas, and no picture."""
    return quotas.report(quotas.measure(console)), True, ""


def play_flood(_: argparse.Namespace, console: Console) -> tuple[Outcome, bool, str]:
    """Return what a flood of forged records costs, and no picture."""
    return flood.report(flood.measure(console)), True, ""


_PLAY: Final[Mapping[str, Callable[[argparse.Namespace, Console], tuple[Outcome, bool, str]]]] = {
    "shapes": play_shapes,
    "faults": play_faults,
    "kills": play_kills,
    "workers": play_workers,
    "holder": play_holder,
    "quotas": play_quotas,
    "flood": play_flood,
}
_BROKERS: Final = {
    "shapes": "one broker, one replica",
    "faults": "three brokers",
    "kills": "three brokers",
    "workers": "not used",
    "holder": "not used",
    "quotas": "three brokers",
    "flood": "three brokers",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; exit with 1 if a bar was missed, 2 if nothing could be measured."""
    given = parse(arguments)
    processes.exit_on_signals()
    console = screen.screen()
    passed = True
    for part in given.parts or _PARTS:
        console.rule(part, align="left")
        try:
            outcome, whole, picture = _PLAY[part](given, console)
        except MissingPrerequisiteError as problem:
            console.print(f"[red]{problem}[/red]")
            return 2
        facts = machine.describe(_BROKERS[part])
        screen.show(console, facts, outcome)
        passed = passed and all(bar.passed for bar in outcome.bars)
        if given.write or whole:
            _write(given.document, part, facts, outcome, picture)
            console.print(f"written to {given.document}")
    return 0 if passed else 1


def _write(
    document: Path, part: str, facts: Sequence[tuple[str, str]], outcome: Outcome, picture: str
) -> None:
    shown = ""
    if picture:
        path = document.with_name(f"fleet-{part}.svg")
        path.write_text(picture)
        shown = f"\n![Rate in every second, with the faults]({path.name})\n"
    screen.write(document, f"fleet-{part}", facts, outcome, shown)


if __name__ == "__main__":
    sys.exit(main())
