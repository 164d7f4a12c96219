"""`make capacity`: what one leaves, another uses, on real brokers.

    python -m tests.bench.capacity [sharing] [faults] [reassignment]

`sharing`: three clients that share a capacity, one of which stops and returns; one process, and 2 members with 2
workers each. `faults`: what clients get while workers, members and the holder are killed or stopped. `reassignment`:
what a reassignment uses of what producers leave, against fixed rates; it needs root and iproute2. A whole part is
written into docs/benchmarks.md, a smaller choice only with `--write`. What it costs: `make price ARGS="--capacity
after"`; attacks: `make hostile ARGS="--only borrowing"`.
"""

import argparse
import sys
from typing import Final

from rich.console import Console

from tests.bench import machine, report
from tests.bench.capacity import faults, reassignment, sharing
from tests.bench.fleet.shapes import Shape
from tests.bench.options import DOCUMENT, check_known

_PARTS: Final = {
    "sharing": "one broker, one replica",
    "faults": "three brokers",
    "reassignment": "three brokers with a network card each",
}
_SHAPES: Final = ",".join(f"{each.members}x{each.workers}" for each in sharing.SHAPES)
_FAULTS: Final = ",".join(fault.name for fault in faults.FAULTS)
_PICTURE: Final = DOCUMENT.with_name("capacity.svg")
_MOVED_PICTURE: Final = DOCUMENT.with_name("capacity-reassignment.svg")


def main(console: Console) -> bool:
    """Measure, print and write; return whether every bar is met."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.capacity", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(_PARTS)} (all)")
    parser.add_argument("--shapes", default=_SHAPES, help="members x workers (default: %(default)s)")
    parser.add_argument("--faults", default=_FAULTS, help="default: %(default)s")
    parser.add_argument("--write", action="store_true", help="write the document even if a part is not whole")
    given = parser.parse_args()
    check_known(parser, "part", given.parts, _PARTS)
    check_known(parser, "fault", given.faults.split(","), _FAULTS.split(","))
    passed = True
    for part in given.parts or _PARTS:
        console.rule(part, align="left")
        passed &= _PLAYS[part](given, console)
    return passed


def _play_sharing(given: argparse.Namespace, console: Console) -> bool:
    shapes = [Shape(*map(int, text.split("x"))) for text in given.shapes.split(",")]
    found = sharing.measure(shapes, console)
    block, extra = _block("sharing", given, whole=given.shapes == _SHAPES), ""
    if block:
        sharing.draw(found, _PICTURE)
        extra = f"\n![What three clients have in each second, the lent part shaded]({_PICTURE.name})\n"
    return report.publish(console, machine.describe(_PARTS["sharing"]), sharing.report(found), block, extra)


def _play_faults(given: argparse.Namespace, console: Console) -> bool:
    names = given.faults.split(",")
    played = faults.play([one for one in faults.FAULTS if one.name in names], console)
    block = _block("faults", given, whole=given.faults == _FAULTS)
    return report.publish(console, machine.describe(_PARTS["faults"]), faults.report(played), block)


def _play_reassignment(given: argparse.Namespace, console: Console) -> bool:
    found = reassignment.play(console)
    reassignment.draw(found, _MOVED_PICTURE)
    extra = f"\n![What the reassignment has in each second beside the producers]({_MOVED_PICTURE.name})\n"
    facts = machine.describe(_PARTS["reassignment"])
    return report.publish(
        console, facts, reassignment.report(found), _block("reassignment", given, whole=True), extra
    )


_PLAYS: Final = {"sharing": _play_sharing, "faults": _play_faults, "reassignment": _play_reassignment}


def _block(part: str, given: argparse.Namespace, *, whole: bool) -> str:
    return f"capacity-{part}" if given.write or whole else ""


if __name__ == "__main__":
    sys.exit(report.run(main))
