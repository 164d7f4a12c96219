"""What the suites said before one broker, kept in results.json, and the part of docs/brokers.md that shows it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from protocol.api import API_NAMES
from tests.bench.report import Table, markdown, replace_between
from tests.cluster.features import FOREIGN
from tests.cluster.jars import RELEASES

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "brokers.md"
RESULTS: Final = Path(__file__).with_name("results.json")
BROKERS: Final = (*RELEASES, *FOREIGN)
_SHOWN: Final = {"Produce": 0, "Fetch": 1, "Metadata": 3}


@dataclass(frozen=True, slots=True)
class Result:
    """One broker's row.

    Args:
        broker: a release of Apache Kafka, or a name of `features.FOREIGN`.
        day: of the run, as 2026-11-26.
        suites: what ran: directories and modules below tests.
        passed: how many tests.
        skipped: how many, by reason.
        failed: tests that fail through Sluice alone.
        failed_direct: tests that fail as well where clients connect to the broker itself.
        second_try: tests that failed, and passed when they ran again alone; they count as passed.
        rolled: what the roll to the next release took; "" where there was none.
        offered: the newest version of each API by key, as the broker says.
        through: the same through Sluice.
    """

    broker: str
    day: str
    suites: Sequence[str]
    passed: int
    skipped: Mapping[str, int]
    failed: Sequence[str]
    failed_direct: Sequence[str]
    rolled: str
    offered: Mapping[str, int]
    through: Mapping[str, int]
    second_try: Sequence[str] = ()

    def with_more(self, more: "Result") -> "Result":
        """Return this one with what other suites have said since, before the same broker."""
        return replace(
            more,
            suites=(*self.suites, *more.suites),
            passed=self.passed + more.passed,
            # A Counter is not what `asdict` can copy.
            skipped=dict(Counter(self.skipped) + Counter(more.skipped)),
            failed=(*self.failed, *more.failed),
            failed_direct=(*self.failed_direct, *more.failed_direct),
            second_try=(*self.second_try, *more.second_try),
            rolled=self.rolled or more.rolled,
        )


def read() -> dict[str, Result]:
    """Return the kept results by broker."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return {row["broker"]: Result(**row) for row in kept}


def write(found: Mapping[str, Result]) -> None:
    """Keep results, and renew the page."""
    rows = [asdict(found[name]) for name in BROKERS if name in found]
    RESULTS.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(replace_between(PAGE.read_text(), "matrix", text(found)))


def text(found: Mapping[str, Result]) -> str:
    """Return the generated part of the page."""
    rows = [found[name] for name in BROKERS if name in found]
    columns = ("broker", "tried", "passed", "skipped", "failed", *_SHOWN, "APIs", "through Sluice")
    table = Table("", columns, tuple(_row(result) for result in rows))
    return "\n".join(["", markdown(table), *(_differs(result) for result in rows)])


def title(broker: str) -> str:
    """Return a broker's name for people."""
    return broker if broker in FOREIGN else f"Kafka {broker}"


def _row(result: Result) -> tuple[str, ...]:
    shown = (_version(result.offered, key) for key in _SHOWN.values())
    counts = (result.passed, sum(result.skipped.values()), len(result.failed))
    return (
        *(title(result.broker), result.day, *map(str, counts), *shown),
        *(str(len(result.offered)), str(len(result.through))),
    )


def _version(offered: Mapping[str, int], key: int) -> str:
    return str(offered.get(str(key), "–"))


def _differs(result: Result) -> str:
    """What one broker lacks, and what Sluice makes of it."""
    lines = [f"### {title(result.broker)}", ""]
    lines += [f"- Ran: {', '.join(f'`{suite}`' for suite in result.suites)}."]
    lines += [f"- Rolled: {result.rolled}."] if result.rolled else []
    lines += [f"- **Fails through Sluice alone**: `{name}`." for name in result.failed]
    lines += [f"- Fails direct as well: `{name}`." for name in result.failed_direct]
    lines += [f"- Passed at the second try, alone: `{name}`." for name in result.second_try]
    lines += _skipped(result)
    hidden = sorted(result.offered.keys() - result.through.keys(), key=int)
    if hidden:
        lines.append(f"- Offered by the broker and not through Sluice: {', '.join(map(_api, hidden))}.")
    own = sorted(result.through.keys() - result.offered.keys(), key=int)
    if own:
        lines.append(f"- Offered by Sluice alone: {', '.join(map(_api, own))}.")
    cut = [key for key in result.through if result.through[key] < result.offered.get(key, 0)]
    if cut:
        told = (
            f"{_api(key)} to {result.through[key]} of {result.offered[key]}" for key in sorted(cut, key=int)
        )
        lines.append(f"- Versions cut by Sluice: {', '.join(told)}.")
    return "\n".join([*lines, ""])


def _skipped(result: Result) -> list[str]:
    """What the broker lacks in one line, other reasons in one each, with the numbers of tests."""
    lacks, others = [], []
    for reason, count in sorted(result.skipped.items()):
        _, is_lack, what = reason.partition(f"{result.broker} has no ")
        if is_lack:
            lacks.append(f"{what} ({count})")
        else:
            others.append(f"- Skipped, {count}: {reason}.")
    return [f"- Skipped, since it has no: {', '.join(lacks)}.", *others] if lacks else others


def _api(key: str) -> str:
    return API_NAMES.get(int(key), f"API {key}")
