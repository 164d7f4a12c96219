"""`make hostile`: every attack in its long form, and the tables in docs/security.md.

    python -m tests.hostile [--seconds 60] [--only FAMILY]... [--dry]

It exits with 1 where a bar is not held. Nothing else should run beside it. What was measured before is kept beside this
module, in `before.json`: the same attacks on the commit before issue 14, those of `borrowing` on the first that lent.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.report import replace_between
from tests.cluster import processes
from tests.hostile.attacks import borrowing, owning, remembering, stalling, standing, stopping
from tests.hostile.attacks.evasions import FETCHING, NAMING, PRODUCING, Evasion, Outcome
from tests.hostile.attacks.evasions import measure as evade
from tests.hostile.scene import QUOTA, Row
from tests.support.proxy_process import ROOT

BEFORE: Final = Path(__file__).with_name("before.json")
POLICIES: Final = ("schedule", "kip13")
_HOLD_SECONDS: Final = (15.0, 20.0)
_FAMILIES: Final = {
    "stopping": stopping,
    "stalling": stalling,
    "remembering": remembering,
    "standing": standing,
    "owning": owning,
}
EVASIONS: Final = {"producing": PRODUCING, "fetching": FETCHING, "naming": NAMING}
_BORROWING: Final = "borrowing"
_BORROWING_SECONDS: Final = 12.0

Figures = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table, that of this block of the document; figures and bars in the order of `unit`'s words."""

    key: str
    finding: int
    what: str
    unit: str
    figures: Sequence[float]
    bars: Sequence[float]
    block: str = "hostile"

    @property
    def held(self) -> bool:
        """Whether no figure is over its bar."""
        return all(figure <= bar for figure, bar in zip(self.figures, self.bars, strict=True))


def lines(families: Sequence[str], seconds: float, beside: int) -> Iterator[Line]:
    """Run the families and give their rows as they come."""
    for family in families:
        if family in EVASIONS:
            for policy in POLICIES:
                outcomes = evade(
                    EVASIONS[family],
                    policy,
                    seconds,
                    hold_seconds=_HOLD_SECONDS,
                    beside=1 if family == "naming" else beside,
                )
                yield from (_of_outcome(each, policy) for each in outcomes)
        elif family == _BORROWING:
            borrowed = borrowing.measure(borrowing.BORROWINGS, min(seconds, _BORROWING_SECONDS))
            yield from map(_of_borrowing, borrowed)
        else:
            module = _FAMILIES[family]
            found = module.measure()
            yield from (_of_row(row, found[row.name]) for row in module.ROWS)


def _of_outcome(found: Outcome, policy: str) -> Line:
    what: Evasion = found.evasion
    allowance = found.allowance
    return Line(
        f"{what.name} {policy}",
        what.finding,
        f"{what.what} (`{policy}`)",
        "× quota in a second / in all",
        (found.factor_of_second, found.factor_of_run),
        (allowance.in_second / QUOTA, allowance.in_run / QUOTA / found.seconds),
    )


def _of_borrowing(found: borrowing.Found) -> Line:
    what = found.borrowing
    unit = "neighbour lacks / × part / × capacity"
    return Line(what.name, 30, what.what, unit, found.figures, found.bars, _BORROWING)


def _of_row(row: Row, figure: float) -> Line:
    return Line(row.name, row.finding, row.what, row.unit, (figure,), (row.bar,))


def render(rows: Sequence[Line], before: Figures) -> str:
    """Write the table."""
    out = ["| finding | attack | unit | before | now | bar | |", "|--:|---|---|--:|--:|--:|---|"]
    for row in sorted(rows, key=lambda each: each.finding):
        cells = (
            str(row.finding),
            row.what,
            row.unit,
            _words(before.get(row.key, ())),
            _words(row.figures),
            _words(row.bars),
            "held" if row.held else "**not held**",
        )
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def _words(figures: Sequence[float]) -> str:
    """Figures as the table shows them.

    >>> _words((1279.31, 1.0)), _words((math.inf,)), _words(())
    ('1,279 / 1', 'cut off', '')
    """
    return " / ".join(
        "cut off" if math.isinf(each) else f"{each:,.0f}" if each >= 100 else f"{each:.3g}"
        for each in figures
    )


def read_before() -> Figures:
    """The figures of the commit before issue 14."""
    found: Figures = {
        key: [math.inf if each is None else each for each in figures]
        for key, figures in json.loads(BEFORE.read_text()).items()
    }
    return found


def main() -> int:
    """Run, print, write; gives the exit code."""
    families = ["stopping", "stalling", "remembering", "standing", "owning", *EVASIONS, _BORROWING]
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each evasion runs")
    parser.add_argument("--beside", type=int, default=4, help="evasions at a time")
    parser.add_argument("--only", action="append", choices=families, help="one family; may be repeated")
    parser.add_argument("--dry", action="store_true", help="print the table and write nothing")
    options = parser.parse_args()
    processes.exit_on_signals()
    rows = []
    for row in lines(options.only or families, options.seconds, options.beside):
        rows.append(row)
        print(render([row], {}).splitlines()[-1], flush=True)
    for block in dict.fromkeys(row.block for row in rows):
        text = render([row for row in rows if row.block == block], read_before())
        print(text)
        if not options.dry:
            document = ROOT / "docs" / "security.md"
            document.write_text(replace_between(document.read_text(), block, f"{text}\n"))
    return 0 if all(row.held for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
