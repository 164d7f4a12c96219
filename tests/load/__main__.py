"""`make load`: a capture replayed against three brokers: direct, through Sluice, through Sluice capturing.

At several speeds, one row each. Every client id has a quota through Sluice, so high that nothing is held back: what
differs is the way alone. A whole run (the shipped recording, both speeds) writes its table to docs/benchmarks.md, and
takes about three minutes; each replay's report is left in build/load.

Exit code 1 when a replay could not be done, or something was lost or answered with an error.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from commandline.program import INTERRUPTED
from offline.cli import main as offline
from tests.bench import machine, report
from tests.bench.report import Outcome, Table
from tests.cluster import Cluster, ClusterOptions
from tests.load.make_capture import DIRECTORY
from tests.support.proxy_process import ROOT, SluiceProcess, SluiceSettings

DIRECT: Final = "direct"
SLUICE: Final = "Sluice"
CAPTURING: Final = "Sluice, capturing"
SPEEDS: Final = ("1", "2")
_UNREACHED: Final = 10**12
_WARM_UP_SECONDS: Final = "5"


def _lost(result: Mapping[str, Any]) -> int:
    requests = result["requests"]
    names = ("lost_with_connection", "unanswered", "dropped_here", "never_connected", "nothing_left_of")
    lost = sum(requests[name] for name in names)
    return int(lost + sum(requests["errors"].values()))


_COLUMNS: Final[Mapping[str, Callable[[Mapping[str, Any]], float | None]]] = {
    "requests/s": lambda found: found["achieved"]["requests_per_second"],
    "MB/s sent": lambda found: found["achieved"]["request_bytes"] / 1e6 / found["planned"]["seconds"],
    "MB/s got": lambda found: found["achieved"]["response_bytes"] / 1e6 / found["planned"]["seconds"],
    "p50 ms": lambda found: found["latency_ms"]["p50"],
    "p99 ms": lambda found: found["latency_ms"]["p99"],
    "p99.9 ms": lambda found: found["latency_ms"]["p99.9"],
    "late itself, p99 ms": lambda found: found["late_ms"]["p99"],
    "lost or failed": _lost,
}

Found = dict[tuple[str, str], Mapping[str, Any]]


def main(console: Console) -> bool:
    """Return whether every replay was done, and nothing was lost."""
    options = argparse.ArgumentParser(prog="make load", description=__doc__)
    options.add_argument("--speed", help="times as fast as recorded (1, then 2)")
    options.add_argument("--seconds", help="of the recording (all of it)")
    given = options.parse_args()
    speeds = SPEEDS if given.speed is None else (given.speed,)
    found = _measure(console, given.seconds, speeds)
    whole = len(found) == 3 * len(speeds)
    outcome = Outcome([_table(found)] if found else [])
    block = "load" if whole and given.speed is given.seconds is None else ""
    report.publish(console, machine.describe("three brokers, one replica"), outcome, block)
    return whole and not any(map(_lost, found.values()))


def _measure(console: Console, seconds: str | None, speeds: Sequence[str]) -> Found:
    reports = ROOT / "build" / "load"
    reports.mkdir(parents=True, exist_ok=True)
    found: Found = {}
    console.print("Starting three Kafka brokers (about 15 s) …")
    with Cluster(ClusterOptions(nodes=3)) as cluster:
        _warm_up(cluster.bootstrap().split(",")[0])
        for speed in speeds:
            for way in (DIRECT, SLUICE, CAPTURING):
                with _target(cluster, way) as target:
                    console.print(f"--- {way}, speed {speed}")
                    name = f"{way.lower().replace(', ', '-')}-{speed}"
                    words = ["--speed", speed, *(["--seconds", seconds] if seconds else [])]
                    words += ["--json", f"{reports}/{name}.json", "--html", f"{reports}/{name}.html"]
                    code = _replay(target, *words)
                    if code >= INTERRUPTED:
                        sys.exit(code)
                    if code == 0:
                        found[speed, way] = json.loads((reports / f"{name}.json").read_text())
    console.print(f"reports in {reports.relative_to(ROOT)}")
    return found


def _replay(target: str, *words: str) -> int:
    return offline(["replay", str(DIRECTORY), "--target", target, "--create", *words])


@contextlib.contextmanager
def _target(cluster: Cluster, way: str) -> Iterator[str]:
    """Where a replay connects to; Sluice is a new one each time."""
    if way == DIRECT:
        yield cluster.bootstrap().split(",")[0]
        return
    with tempfile.TemporaryDirectory(prefix="sluice-load-") as directory:
        sections = {"capture": {"directory": str(Path(directory) / "capture")}} if way == CAPTURING else {}
        quotas = {"producer_default": _UNREACHED, "consumer_default": _UNREACHED}
        settings = SluiceSettings(cluster.bootstrap(), quotas=quotas, sections=sections)
        with SluiceProcess.configured(settings, Path(directory)) as sluice:
            yield sluice.bootstrap


def _warm_up(target: str) -> None:
    """Let brokers that have just started compile what they need: the first row would pay for it."""
    with contextlib.redirect_stdout(io.StringIO()):
        _replay(target, "--seconds", _WARM_UP_SECONDS, "--no-progress")


def _shown(value: float | None) -> str:
    """A figure; None: a latency without end."""
    return "–" if value is None else f"{value:.4g}"


def _table(found: Found) -> Table:
    rows = tuple(
        (way, speed, *(_shown(read(result)) for read in _COLUMNS.values()))
        for (speed, way), result in found.items()
    )
    return Table("Replayed", ("way", "× recorded speed", *_COLUMNS), rows)


if __name__ == "__main__":
    sys.exit(report.run(main))
