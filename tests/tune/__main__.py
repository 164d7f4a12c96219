"""`make tune-demo`: a cluster, clients, the pipeline, and the proof. It takes four minutes, and leaves build/tune."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from offline.advice.explain import amount
from tests.cluster import Cluster, ClusterOptions, MissingPrerequisiteError, processes
from tests.support.proxy_process import ROOT
from tests.tune.loop import HOGS, Compared, Tuned, tune

_APART_MAX: Final = 0.1


def main() -> int:
    """Run it; 1 if a client was throttled that should not be, or for another time than predicted, or had errors."""
    options = argparse.ArgumentParser(prog="make tune-demo", description=__doc__)
    options.add_argument("--seconds", type=float, default=60.0, help="of recorded traffic")
    given = options.parse_args()
    processes.exit_on_signals()
    console = Console()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="sluice-tune-") as directory,
            Cluster(ClusterOptions(nodes=1)) as cluster,
        ):
            tuned = tune(cluster.bootstrap(), Path(directory), given.seconds, console.print)
            kept = ROOT / "build" / "tune"
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(directory) / "work" / "report" / "report.html", kept)
    except MissingPrerequisiteError as error:
        console.print(str(error))
        return 1
    console.print(_table(tuned))
    console.print("the evidence: build/tune/report.html")
    return 0 if all(map(_good, tuned.compared)) else 1


def _good(row: Compared) -> bool:
    if row.errors:
        return False
    if row.client not in HOGS:
        return row.observed_ms == 0
    return row.predicted_ms > 0 and abs(row.observed_ms - row.predicted_ms) <= _APART_MAX * row.predicted_ms


def _table(tuned: Tuned) -> Table:
    table = Table(
        "client", "", "asks for", "gets", "predicted wait", "observed wait", "apart", "at", "errors"
    )
    for row in tuned.compared:
        apart = "–" if not row.predicted_ms else f"{row.observed_ms / row.predicted_ms - 1:+.1%}"
        table.add_row(
            row.client,
            row.direction,
            amount(row.demand),
            amount(row.quota),
            f"{row.predicted_ms / 1000:.1f} s",
            f"{row.observed_ms / 1000:.1f} s",
            apart,
            amount(row.observed_rate),
            str(row.errors),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
