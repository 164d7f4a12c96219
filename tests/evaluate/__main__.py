"""`make evaluate`: recordings whose truth is known, and measured series, through `sluice-offline evaluate`.

Writes the tables and the picture of docs/advice.md, losses included, and leaves the whole page in build/evaluate. It
takes 20 minutes with three seeds; `ARGS="--seeds 11 --keep"` takes less, and leaves the documents as they are.

All clients of a recording are scaled alike, so that a stated capacity is just too small for them: those that behave ask
for more in one second of a hundred. Quotas of one number do not depend on the scale; rates, ceilings and weights are
scored on how well clients share.

With `--nab DIR` also what cloud servers have really received and written: DIR is `data/realAWSCloudwatch` of the
Numenta Anomaly Benchmark (github:numenta/NAB, AGPL-3.0; it is read and not copied). It is not Kafka's traffic.
"""

import argparse
import csv
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from offline.advice.evaluation import ORACLE, SLUICE, TERMS_RECOMMENDERS
from offline.cli import main as sluice_offline
from offline.jobs.evaluate import RESOLUTION
from offline.report.evaluation import Evaluation, between, front_figure
from tests.support.families import FAMILIES, Client, made, write
from tests.support.proxy_process import ROOT

_SEEDS: Final = (11, 12, 13)  # the constants of the forecast were chosen with 1 and 2
_TABLES: Final = ("summary", "fronts", "cases", "calibration", "terms_summary")
_PAGE: Final = ROOT / "docs" / "advice.md"
_PICTURE: Final = ROOT / "docs" / "advice-fronts.svg"
_MEASURES: Final = (("slack", 100, 1), ("waited", 100, 3), ("hurt", 100, 1), ("regret", 1, 3))
_TERMS_MEASURES: Final = (
    ("waited", 100, 3),
    ("hurt", 100, 1),
    ("kept", 100, 2),
    ("carried", 100, 2),
    ("regret", 100, 3),
)
_CAPACITY: Final = 50e6  # bytes/s
_BUSY: Final = 99  # percentile of the seconds above which clients that behave ask for more than the capacity
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
            write(recordings / f"{family}-{seed}", scaled(made(family, seed)))
    if found.nab:
        write(recordings / "measured", scaled(measured(found.nab)), _SAMPLE_S * _SAMPLES_A_DAY)
    quotas = work / "quotas.toml"
    quotas.write_text(f'[[capacity]]\nscope = "cluster"\nin = {_CAPACITY:.0f}\n')
    directories = ["--input", str(recordings), "--output", str(work / "work")]
    code = sluice_offline(["evaluate", *directories, "--quotas-file", str(quotas)])
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


def scaled(clients: Sequence[Client]) -> list[Client]:
    """Return clients whose bytes are multiplied so that the capacity is just too small for those that behave."""
    together = np.zeros(max(len(client.sizes) for client in clients))
    for client in clients:
        own = client.sizes[: client.hog_from_s]
        together[: len(own)] += own
    times = _CAPACITY / float(np.percentile(together, _BUSY))
    return [replace(client, sizes=client.sizes * times) for client in clients]


def _publish(found: Evaluation) -> None:
    """Write the tables between their marks in docs/advice.md, and the picture beside it."""
    _PICTURE.write_text(str(front_figure(found, "all", 1)), encoding="utf-8")
    text = _PAGE.read_text(encoding="utf-8")
    tables = {
        "recommenders": _recommenders(found),
        "cases": _cases(found),
        "calibration": _calibration(found),
        "terms": _terms(found),
        "terms by family": _terms_by_family(found),
    }
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"
    _PAGE.write_text(text, encoding="utf-8")


def _recommenders(found: Evaluation) -> str:
    return _summary(found, found.summary, _MEASURES, ("slack, %", "waited, %", "hurt, %", "regret"))


def _terms(found: Evaluation) -> str:
    heads = ("waited, %", "hurt, %", "kept, %", "carried, %", "regret, %")
    return _summary(found, found.terms_summary, _TERMS_MEASURES, heads)


def _summary(
    found: Evaluation,
    summary: Sequence[Mapping[str, Any]],
    measures: Sequence[tuple[Any, ...]],
    heads: Sequence[str],
) -> str:
    """Return the measures of all recordings together, and what became of hogs."""
    rows = [
        (
            row["recommender"],
            "day" if row["horizon"] == 1 else "week",
            *(between(row, *measure) for measure in measures),
            f"{100 * row['caught']:.0f}",
            f"{100 * row['passed']:.0f}",
            f"{100 * row['spared']:.0f}",
        )
        for horizon in found.horizons
        for row in found.of(summary, recording="all", horizon=horizon)
    ]
    of_hogs = ("hogs held back, %", "passed of theirs, %", "neighbours spared, %")
    return _table(("", "scored on the next", *heads, *of_hogs), rows)


def _terms_by_family(found: Evaluation) -> str:
    """Return by family the waits with each recommender's terms, and where those of the advice are no longer."""
    single = [row for row in found.terms_summary if row["recording"] != "all"]
    others = [name for name in TERMS_RECOMMENDERS if name not in (SLUICE, ORACLE)]
    rows = []
    for family in [*sorted({_family(row) for row in single}), "all"]:
        own = [row for row in single if family in (_family(row), "all")]
        waited = {
            name: {
                (row["recording"], row["horizon"]): row["waited"] for row in own if row["recommender"] == name
            }
            for name in TERMS_RECOMMENDERS
        }
        won = [
            f"{sum(waited[SLUICE][case] <= each + RESOLUTION for case, each in waited[name].items())}"
            f" of {len(waited[name])}"
            for name in others
        ]
        means = [
            f"{100 * float(np.mean(list(waited[name].values()))):.3f}" for name in (SLUICE, *others, ORACLE)
        ]
        rows.append((family, *means, *won))
    heads = ("waited, %", *(SLUICE, *others, ORACLE), *(f"no longer than with {name}" for name in others))
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
