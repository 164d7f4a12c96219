"""`make evaluate`: recordings whose truth is known, and measured series, through `sluice-offline evaluate`.

Writes the tables and the picture of docs/advice.md, losses included, and leaves the whole page in build/evaluate. It
takes ten minutes with three seeds; `ARGS="--seeds 11 --keep"` takes less, and leaves the documents as they are.

With `--nab DIR` also what cloud servers have really received and written: DIR is `data/realAWSCloudwatch` of the
Numenta Anomaly Benchmark (github:numenta/NAB, AGPL-3.0; it is read and not copied). It is not Kafka's traffic.
"""

import argparse
import csv
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from offline.cli import main as sluice_offline
from offline.report.evaluation import Evaluation, between, front_figure
from tests.support.families import FAMILIES, Client, made, write
from tests.support.proxy_process import ROOT

_SEEDS: Final = (11, 12, 13)  # the constants of the forecast were chosen with 1 and 2
_TABLES: Final = ("summary", "fronts", "cases", "calibration")
_PAGE: Final = ROOT / "docs" / "advice.md"
_PICTURE: Final = ROOT / "docs" / "advice-fronts.svg"
_MEASURES: Final = (("slack", 100, 1), ("waited", 100, 3), ("hurt", 100, 1), ("regret", 1, 3))
# Bytes that were counted every five minutes; a sample becomes ten seconds, and a day 2880.
_MEASURED: Final = ("*NetworkIn*", "ec2_network_in_*", "ec2_disk_write_bytes_*")
_SAMPLE_S: Final = 10
_SAMPLES_A_DAY: Final = 288


def main() -> int:
    """Make the recordings, evaluate and write the tables; returns the exit code."""
    options = argparse.ArgumentParser(prog="make evaluate", description=__doc__)
    options.add_argument("--seeds", default=",".join(map(str, _SEEDS)), help="of the made-up families")
    options.add_argument("--families", default=",".join(FAMILIES), help="which of them")
    options.add_argument("--nab", type=Path, metavar="DIR", help="NAB's data/realAWSCloudwatch")
    options.add_argument("--keep", action="store_true", help="leave docs/advice.md as it is")
    found = options.parse_args()
    work = ROOT / "build" / "evaluate"
    shutil.rmtree(work, ignore_errors=True)
    recordings = work / "recordings"
    for family in found.families.split(","):
        for seed in map(int, found.seeds.split(",")):
            write(recordings / f"{family}-{seed}", made(family, seed))
    if found.nab:
        write(recordings / "measured", measured(found.nab), _SAMPLE_S * _SAMPLES_A_DAY)
    code = sluice_offline(["evaluate", "--input", str(recordings), "--output", str(work / "work")])
    if code == 0 and not found.keep:
        tables = {name: pq.read_table(work / "work" / "evaluate" / name).to_pylist() for name in _TABLES}
        _publish(Evaluation(**tables))
    return code


def measured(directory: Path) -> list[Client]:
    """Return the series of bytes in NAB's files as clients; a second's bytes vary around the sample's by a seed."""
    rng = np.random.default_rng(1)
    clients = []
    for path in sorted({path for pattern in _MEASURED for path in directory.glob(pattern)}):
        with path.open(newline="", encoding="utf-8") as file:
            rates = np.array([float(row["value"]) for row in csv.DictReader(file)])
        sizes = np.repeat(rates, _SAMPLE_S)
        clients.append(Client(path.stem, sizes * rng.gamma(6, 1 / 6, len(sizes))))
    assert clients, f"{directory} has none of {_MEASURED}"
    return clients


def _publish(found: Evaluation) -> None:
    """Write the tables between their marks in docs/advice.md, and the picture beside it."""
    _PICTURE.write_text(str(front_figure(found, "all", 1)), encoding="utf-8")
    text = _PAGE.read_text(encoding="utf-8")
    tables = {
        "recommenders": _recommenders(found),
        "cases": _cases(found),
        "calibration": _calibration(found),
    }
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"
    _PAGE.write_text(text, encoding="utf-8")


def _recommenders(found: Evaluation) -> str:
    rows = [
        (
            row["recommender"],
            "day" if row["horizon"] == 1 else "week",
            *(between(row, *measure) for measure in _MEASURES),
            f"{100 * row['caught']:.0f}",
            f"{100 * row['passed']:.0f}",
            f"{100 * row['spared']:.0f}",
        )
        for horizon in found.horizons
        for row in found.of(found.summary, recording="all", horizon=horizon)
    ]
    heads = (
        "",
        "scored on the next",
        "slack, %",
        "waited, %",
        "hurt, %",
        "regret",
        "hogs held back, %",
        "passed of theirs, %",
        "neighbours spared, %",
    )
    return _table(heads, rows)


def _cases(found: Evaluation) -> str:
    """Return by family how many cases the advice has won, and its waits beside the best baseline at the same slack."""
    families = sorted({_family(case) for case in found.cases})
    single = [case for case in found.cases if case["recording"] != "all"]
    rows = []
    for family in [*(name for name in families if name != "all"), "all"]:
        own = [case for case in single if family in (_family(case), "all")]
        waited = np.mean([case["waited"] for case in own])
        best = min(
            float(np.mean([case["baseline_waited"] for case in own if case["baseline"] == baseline]))
            for baseline in {case["baseline"] for case in own}
        )
        won, beaten = sum(case["inside"] for case in own), sum(case["dominated"] for case in own)
        rows.append((family, f"{won} of {len(own)}", beaten, f"{100 * waited:.3f}", f"{100 * best:.3f}"))
    heads = (
        "",
        "on or inside the baseline's front",
        "baseline has less of both",
        "waited, %",
        "best baseline at the same slack, %",
    )
    return _table(heads, rows)


def _calibration(found: Evaluation) -> str:
    rows = [
        (row["grade"], f"{row['scores']:,}", f"{100 * row['held']:.1f} %")
        for grade in ("high", "medium", "low")
        for row in found.of(found.calibration, recording="all", grade=grade)
    ]
    return _table(("confidence", "next days", "on which the quota was enough"), rows)


def _family(case: Any) -> str:
    return re.sub(r"-\d+$", "", str(case["recording"]))


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
