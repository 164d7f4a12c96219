"""`make tune-demo`: a cluster, clients, the pipeline, and the proof. It takes four minutes, and leaves build/tune."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rich.console import Console

from offline.advice.explain import amount
from tests.bench import report
from tests.bench.report import Outcome, Table, tabulate
from tests.cluster import Cluster, ClusterOptions
from tests.support.proxy_process import ROOT
from tests.tune.loop import Compared, Tuned, tune


def main(console: Console) -> bool:
    """Run it; no if a client does not wait as predicted for what it sent (`Compared.as_predicted`)."""
    options = argparse.ArgumentParser(prog="make tune-demo", description=__doc__)
    options.add_argument("--seconds", type=float, default=60.0, help="of recorded traffic")
    seconds = options.parse_args().seconds
    with (
        tempfile.TemporaryDirectory(prefix="sluice-tune-") as directory,
        Cluster(ClusterOptions(nodes=1)) as cluster,
    ):
        tuned = tune(cluster.bootstrap(), Path(directory), seconds, console.print)
        kept = ROOT / "build" / "tune"
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(directory) / "work" / "report" / "report.html", kept)
    report.show(console, [("the evidence", "build/tune/report.html")], Outcome([table(tuned)]))
    return all(row.as_predicted for row in tuned.compared)


_COLUMNS: Final[Mapping[str, Callable[[Compared], object]]] = {
    "client": lambda row: row.client,
    "": lambda row: row.direction,
    "asks for": lambda row: amount(row.demand),
    "gets": lambda row: amount(row.quota),
    "predicted wait": lambda row: f"{row.predicted_ms / 1000:.1f} s",
    "for what was sent": lambda row: f"{row.sent_ms / 1000:.1f} s",
    "observed wait": lambda row: f"{row.observed_ms / 1000:.1f} s",
    "apart": lambda row: "–" if row.apart is None else f"{row.apart:+.1%}",
    "at": lambda row: amount(row.observed_rate),
    "errors": lambda row: row.errors,
}


def table(tuned: Tuned) -> Table:
    """Return what was predicted and what came."""
    return tabulate("", tuned.compared, _COLUMNS)


if __name__ == "__main__":
    sys.exit(report.run(main))
