"""`python -m tests.load`: three brokers, one replay direct and one through Sluice, and a table of both.

Every client id has a quota through Sluice, so high that nothing is held back: what differs is the way alone.
With --capture the second row's Sluice captures too. The reports are left in build/load.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from offline.replay.__main__ import parser
from offline.replay.command import main as replay
from tests.cluster import Cluster, ClusterOptions, MissingPrerequisiteError, processes
from tests.load.make_capture import DIRECTORY
from tests.support.proxy_process import ROOT, SluiceProcess, SluiceSettings

_UNREACHED: Final = 10**12
_WARM_UP_SECONDS: Final = "5"
_ROWS: Final[Sequence[tuple[str, Callable[[Mapping[str, Any]], float]]]] = (
    ("requests/s", lambda found: found["achieved"]["requests_per_second"]),
    ("answered", lambda found: found["requests"]["answered"]),
    ("p50 ms", lambda found: found["latency_ms"]["p50"]),
    ("p99 ms", lambda found: found["latency_ms"]["p99"]),
    ("p99.9 ms", lambda found: found["latency_ms"]["p99.9"]),
    ("late p99 ms", lambda found: found["late_ms"]["p99"]),
    ("throttled", lambda found: found["throttle_ms"]["requests"]),
    ("errors", lambda found: sum(found["requests"]["errors"].values())),
)


def main() -> int:
    """Give the exit code: 1 when a replay failed, or lost something."""
    options = argparse.ArgumentParser(prog="make load", description=__doc__)
    options.add_argument("--speed", default="1", help="times as fast as recorded")
    options.add_argument("--seconds", default="30", help="of the recording")
    options.add_argument("--capture", action="store_true", help="capture what passes through Sluice")
    options.add_argument("--recording", default=str(DIRECTORY), help="another capture than the synthetic one")
    given = options.parse_args()
    processes.exit_on_signals()
    console = Console()
    reports = ROOT / "build" / "load"
    reports.mkdir(parents=True, exist_ok=True)
    try:
        found = _measure(console, given, reports)
    except MissingPrerequisiteError as error:
        console.print(str(error))
        return 1
    if len(found) < 2:
        return 1
    console.print(_table(found))
    console.print(f"reports in {reports.relative_to(ROOT)}")
    return 1 if any(_lost(result) for result in found.values()) else 0


def _measure(console: Console, given: argparse.Namespace, reports: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    console.print("Starting three Kafka brokers (about 15 s) …")
    with (
        tempfile.TemporaryDirectory(prefix="sluice-load-") as directory,
        Cluster(ClusterOptions(nodes=3)) as cluster,
    ):
        direct = cluster.bootstrap().split(",")[0]
        _warm_up(given, direct)
        _replay(given, direct, reports, "direct", found)
        sections = {"capture": {"directory": str(Path(directory) / "capture")}} if given.capture else {}
        quotas = {"producer_default": _UNREACHED, "consumer_default": _UNREACHED}
        settings = SluiceSettings(cluster.bootstrap(), quotas=quotas, sections=sections)
        with SluiceProcess.configured(settings, Path(directory)) as sluice:
            name = "sluice, capturing" if given.capture else "sluice"
            _replay(given, sluice.bootstrap, reports, name, found)
    return found


def _warm_up(given: argparse.Namespace, target: str) -> None:
    """Let brokers that have just started compile what they need: the first row would pay for it."""
    words = [given.recording, "--target", target, "--seconds", _WARM_UP_SECONDS, "--create", "--no-progress"]
    with contextlib.redirect_stdout(io.StringIO()):
        replay(parser().parse_args(["replay", *words]))


def _replay(given: argparse.Namespace, target: str, reports: Path, name: str, found: dict[str, Any]) -> None:
    result = reports / f"{name.split(',', maxsplit=1)[0]}.json"
    words = [
        given.recording,
        "--target",
        target,
        "--speed",
        given.speed,
        "--seconds",
        given.seconds,
        "--create",
    ]
    words += ["--json", str(result), "--html", str(result.with_suffix(".html"))]
    print(f"--- {name}")
    if replay(parser().parse_args(["replay", *words])) == 0:
        found[name] = json.loads(result.read_text())


def _lost(result: Mapping[str, Any]) -> bool:
    requests = result["requests"]
    return bool(requests["errors"] or requests["lost_with_connection"] or requests["unanswered"])


def _table(found: Mapping[str, Any]) -> Table:
    table = Table("way", *(name for name, _ in _ROWS), expand=False)
    for way, result in found.items():
        values: Sequence[str] = [f"{read(result):g}" for _, read in _ROWS]
        table.add_row(way, *values)
    return table


if __name__ == "__main__":
    sys.exit(main())
