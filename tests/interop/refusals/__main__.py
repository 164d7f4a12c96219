"""`make refusals`: what each client family makes of refused Produce requests, as Markdown tables.

`--write` puts the tables into docs/refusals.md; `--families a,b` and `--sections a,b` measure less, and only print.
"""

import argparse
import contextlib
import datetime
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench.report import replace_between
from tests.cluster import processes
from tests.interop.families import FAMILIES, ROOT, Family
from tests.interop.refusals import report
from tests.interop.refusals.measure import Lane, Membership, Outcome, Rig, Setting, consume, produce
from tests.interop.refusals.script import Script
from tests.interop.runs import Crowd, side_by_side

DOCUMENT: Final = ROOT / "docs" / "refusals.md"
_LANES: Final = 4
_ENDLESS_LANES: Final = 7  # these only wait


@dataclass(slots=True)
class Results:
    """What was measured, by section."""

    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    members: list[tuple[Membership, Membership]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


def produced(families: list[Family], section: str) -> list[tuple[Family, Setting, Script]]:
    """Return the cases of one section."""
    plain = Setting()
    chosen: dict[str, Callable[[Family], list[tuple[Setting, Script]]]] = {
        "defaults": lambda _family: [(plain, way) for way in report.WAYS],
        "settings": lambda family: [
            (setting, way) for setting in report.SETTINGS[family.name] for way in report.FEWER_WAYS
        ],
        "acks0": lambda _family: [(report.ACKS_0, way) for way in report.ACKS_0_WAYS],
        "transactions": lambda _family: [(report.TRANSACTION, way) for way in report.TRANSACTION_WAYS],
        "again": lambda family: [
            (plain, way)
            for way in report.AGAIN_WAYS
            for _ in range(report.AGAIN_RUNS if family.name == report.AGAIN_FAMILY else 0)
        ],
        "endless": lambda _family: [(report.ENDLESS, way) for way in report.ENDLESS_WAYS],
    }
    return [(family, setting, way) for family in families for setting, way in chosen[section](family)]


def measure(rig: Rig, families: list[Family], sections: list[str], directory: Path) -> Results:
    """Measure the sections one after the other, the cases of one side by side."""
    results = Results()
    for family in families:
        with Crowd(directory) as crowd:
            run = crowd.start(family, "capabilities").wait(60)
            results.versions[family.name] = run.last("capabilities").text("client")
    # The first to need a coordinator waits for it: that is no client that is measured.
    first = next(family for family in FAMILIES if family.name == "librdkafka")
    consume(rig.lanes[0], first, directory, None)
    produce(rig.lanes[0], first, report.TRANSACTION, report.NOTHING, directory)
    for section in sections:
        if section == "groups":
            side_by_side(
                rig.lanes[:_LANES], [partial(_group, family, directory, results) for family in families]
            )
            results.members.sort(key=lambda pair: list(results.versions).index(pair[0].family))
            continue
        todo = produced(families, section)
        found: dict[int, Outcome] = {}
        work = [partial(_case, number, case, directory, found) for number, case in enumerate(todo)]
        side_by_side(rig.lanes[: _ENDLESS_LANES if section == "endless" else _LANES], work)
        results.outcomes[section] = [found[number] for number in range(len(todo))]
    return results


def _group(family: Family, directory: Path, results: Results, lane: Lane) -> None:
    calm = consume(lane, family, directory, None)
    results.members.append((calm, consume(lane, family, directory)))


def _case(
    number: int, case: tuple[Family, Setting, Script], directory: Path, found: dict[int, Outcome], lane: Lane
) -> None:
    found[number] = produce(lane, *case, directory)
    print(report.line(found[number]), file=sys.stderr, flush=True)


def main() -> int:
    """Measure, and print or write the tables."""
    processes.exit_on_signals()
    parser = argparse.ArgumentParser(prog="make refusals", description=__doc__)
    parser.add_argument("--families", default=",".join(family.name for family in FAMILIES))
    parser.add_argument("--sections", default=",".join(report.SECTIONS))
    parser.add_argument("--write", action="store_true", help="put the tables into docs/refusals.md")
    arguments = parser.parse_args()
    families = [family for family in FAMILIES if family.name in arguments.families.split(",")]
    for family in families:
        family.build()
    sections = [name for name in report.SECTIONS if name in arguments.sections.split(",")]
    rig = Rig(max(_LANES, _ENDLESS_LANES))
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-refusals-")))
        stack.enter_context(rig.cluster)
        for lane in rig.lanes:
            stack.enter_context(lane.relay)
        results = measure(rig, families, sections, directory)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = report.tables(results.outcomes, results.members, results.versions, today)
    if arguments.write:
        DOCUMENT.write_text(replace_between(DOCUMENT.read_text(), "refusals", f"\n{text}\n"))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
