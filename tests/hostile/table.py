"""All attacks as one Markdown table, for docs/security.md: attack, before, now, bar, verdict.

What was measured before is kept beside this module, in `before.json`: the same attacks on the commit before issue 14.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.hostile.attacks import evasion, owning, remembering, stalling, standing, stopping
from tests.hostile.attacks.evasion import Evasion, Outcome
from tests.hostile.attacks.fetching import FETCHING
from tests.hostile.attacks.naming import NAMING
from tests.hostile.attacks.producing import PRODUCING
from tests.hostile.scene import QUOTA, Row

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

Figures = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table; figures and bars in the order of `unit`'s words."""

    key: str
    finding: int
    what: str
    unit: str
    figures: Sequence[float]
    bars: Sequence[float]

    @property
    def held(self) -> bool:
        """Whether no figure is over its bar."""
        return all(figure <= bar for figure, bar in zip(self.figures, self.bars, strict=True))


def lines(families: Sequence[str], seconds: float, beside: int) -> Iterator[Line]:
    """Run the families and give their rows as they come."""
    for family in families:
        if family in EVASIONS:
            for policy in POLICIES:
                outcomes = evasion.measure(
                    EVASIONS[family],
                    policy,
                    seconds,
                    hold_seconds=_HOLD_SECONDS,
                    beside=1 if family == "naming" else beside,
                )
                yield from (_of_outcome(each, policy) for each in outcomes)
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
    """The figures of the commit before issue 14; none where they were never taken."""
    if not BEFORE.exists():
        return {}
    found: Figures = {
        key: [math.inf if each is None else each for each in figures]
        for key, figures in json.loads(BEFORE.read_text()).items()
    }
    return found


def write_before(rows: Sequence[Line]) -> None:
    """Keep these figures as those before."""
    kept = {**read_before(), **{row.key: row.figures for row in rows}}
    shown = {
        key: [None if math.isinf(each) else round(each, 2) for each in kept[key]] for key in sorted(kept)
    }
    text = ",\n".join(f"  {json.dumps(key)}: {json.dumps(figures)}" for key, figures in shown.items())
    BEFORE.write_text("{\n" + text + "\n}\n")
