"""`make fleet`: one quota over members and workers, on real brokers.

    python -m tests.bench.fleet [shapes] [faults] [kills] [workers] [holder] [parts] [quotas] [flood] [upgrade]

`shapes`: how exact it is with several members and workers, beside one process. `faults`: what clients get while
workers, members, the holder and a broker are killed or stopped. `kills`: what those of one member get in each second
while the other is killed. `workers`: what several workers cost. `holder`: what leasing to 16 members costs. `parts`:
what one of 100 members costs whose keys are in parts. `quotas`: how soon an alteration holds at another member, and a
start with 100,000 entities.
`flood`: the same during and after a million forged records in their topic. `upgrade`: what clients get while three pods
behind a Service are replaced one after the other, beside the same time without it. A whole part is written into
docs/benchmarks.md, a smaller choice only with `--write`.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.bench import machine
from tests.bench import report as screen
from tests.bench.accuracy.judge import SCHEDULE, Options
from tests.bench.fleet import (
    fault_table,
    faults,
    flood,
    holder,
    kills,
    parts,
    quotas,
    shapes,
    upgrade,
    upgrade_table,
    workers,
)
from tests.bench.options import DOCUMENT, check_known
from tests.bench.report import Outcome

_SHAPES: Final = "1x1,1x2,2x1,2x2"
_SECONDS: Final = 75
_FAULTS: Final = ",".join(fault.name for fault in faults.FAULTS)
_WITHOUT: Final = 60
_CLIENTS: Final = "java,librdkafka,aiokafka,kafka-python"
_DRAWN: Final = {
    **dict.fromkeys(("faults", "kills"), "Rate in every second, with the faults"),
    "upgrade": "Rate and slowest record in every second, with the pods that are replaced",
}


def _picture(part: str) -> Path:
    return DOCUMENT.with_name(f"fleet-{part}.svg")


def play_shapes(given: argparse.Namespace, console: Console) -> tuple[Outcome, bool]:
    """Return what the shapes made of the quota, and whether they are all."""
    chosen = [shapes.Shape(*map(int, text.split("x"))) for text in given.shapes.split(",")]
    options = Options(policies=(SCHEDULE,), seconds=given.seconds, quota=shapes.QUOTA)
    outcome = shapes.report(shapes.measure(options, chosen, console), options)
    return outcome, (given.shapes, given.seconds) == (_SHAPES, _SECONDS)


def play_faults(given: argparse.Namespace, console: Console) -> tuple[Outcome, bool]:
    """Return what the faults made of it, and whether they are all; leave the picture."""
    names = given.faults.split(",")
    played = faults.play([one for one in faults.FAULTS if one.name in names], shapes.QUOTA, console)
    whole = given.faults == _FAULTS
    if whole or given.write:
        fault_table.draw(played, shapes.QUOTA, _picture("faults"))
    return fault_table.report(played, shapes.QUOTA), whole


def play_kills(_: argparse.Namespace, console: Console) -> tuple[Outcome, bool]:
    """Return what killed members cost the clients of the others, and leave the picture."""
    played = faults.play(kills.KILLS, shapes.QUOTA, console)
    fault_table.draw(played, shapes.QUOTA, _picture("kills"))
    return kills.report(played, shapes.QUOTA), True


def play_upgrade(given: argparse.Namespace, console: Console) -> tuple[Outcome, bool]:
    """Return what a rolling upgrade cost clients, and whether it is whole; leave the picture."""
    found = upgrade.play(given.before, given.without, given.clients.split(","), console)
    whole = (given.without, given.clients) == (_WITHOUT, _CLIENTS)
    if whole or given.write:
        upgrade_table.draw(found, _picture("upgrade"))
    return upgrade_table.report(found), whole


# By name: the brokers that it uses, and what plays it.
_PARTS: Final[Mapping[str, tuple[str, Callable[[argparse.Namespace, Console], tuple[Outcome, bool]]]]] = {
    "shapes": ("one broker, one replica", play_shapes),
    "faults": ("three brokers", play_faults),
    "kills": ("three brokers", play_kills),
    "workers": ("not used", lambda _, console: (workers.report(workers.measure(console)), True)),
    "holder": ("not used", lambda _, console: (holder.report(holder.measure(console)), True)),
    "parts": ("not used", lambda _, console: (parts.report(parts.measure(console)), True)),
    "quotas": ("three brokers", lambda _, console: (quotas.report(quotas.measure(console)), True)),
    "flood": ("three brokers", lambda _, console: (flood.report(flood.measure(console)), True)),
    "upgrade": ("three brokers", play_upgrade),
}


def main(console: Console) -> bool:
    """Measure, print and write; return whether every bar is met."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(_PARTS)} (all)")
    parser.add_argument("--shapes", default=_SHAPES, help="members x workers (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=_SECONDS, help="of each shape (default: %(default)s)")
    parser.add_argument("--faults", default=_FAULTS, help="default: %(default)s")
    parser.add_argument("--before", default="HEAD", help="revision before the upgrade (default: %(default)s)")
    parser.add_argument(
        "--without", type=int, default=_WITHOUT, help="seconds without an upgrade (default: %(default)s)"
    )
    parser.add_argument("--clients", default=_CLIENTS, help="families in it; default: %(default)s")
    parser.add_argument("--write", action="store_true", help="write the document even if a part is not whole")
    given = parser.parse_args()
    check_known(parser, "part", given.parts, _PARTS)
    check_known(parser, "fault", given.faults.split(","), _FAULTS.split(","))
    passed = True
    for part in given.parts or _PARTS:
        console.rule(part, align="left")
        brokers, play = _PARTS[part]
        outcome, whole = play(given, console)
        block, extra = f"fleet-{part}" if given.write or whole else "", ""
        if part in _DRAWN:
            extra = f"\n![{_DRAWN[part]}]({_picture(part).name})\n"
        passed &= screen.publish(console, machine.describe(brokers), outcome, block, extra)
    return passed


if __name__ == "__main__":
    sys.exit(screen.run(main))
