"""Where a saturated core's time goes: user by Python function, by symbol, kernel by call.

Run as a module it is a proxy that samples itself: from SIGUSR2 to the next one, each millisecond of its CPU time, the
function that runs. The time of a system call, or of an extension, belongs to the function that called it.
"""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from tests.bench.report import Table

_SECONDS: Final = 4.0
_INTERVAL_SECONDS: Final = 0.001
_WRITTEN_SECONDS_MAX: Final = 10.0
_ROWS: Final = 25
_COLUMNS: Final = 3  # of perf's report: share, object, symbol


def command(config: Path, directory: Path) -> list[str]:
    """Return the command line of a proxy with this configuration that samples itself, into a directory."""
    module = "tests.bench.saturate.profile"
    return [sys.executable, "-m", module, str(directory), "serve", "--config", str(config)]


def by_function(name: str, pid: int, turn: Callable[[float], Any], directory: Path) -> Table:
    """Measure a proxy that `command` has started; it is interpreted, since compiled functions have no frames."""
    samples = directory / f"samples-{pid}.json"
    turn(0.5)
    os.kill(pid, signal.SIGUSR2)
    turn(_SECONDS)
    os.kill(pid, signal.SIGUSR2)
    end = time.monotonic() + _WRITTEN_SECONDS_MAX
    while not samples.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"the proxy has not written {samples}")
        time.sleep(0.05)
    found: dict[str, int] = json.loads(samples.read_text())
    samples.unlink()
    total = sum(found.values())
    rows = [(where, f"{count / total:.1%}") for where, count in Counter(found).most_common(_ROWS)]
    title = f"{name}: by Python function, with what it calls in C and in the kernel"
    return Table(title, ("function", ""), tuple(rows))


def by_symbol(name: str, pid: int, turn: Callable[[float], Any], directory: Path) -> Table:
    """Measure a running proxy with perf, by symbol of program, libraries and kernel."""
    data = str(directory / "perf.data")
    perf = subprocess.Popen(
        [
            "perf",
            "record",
            "-q",
            "-e",
            "cpu-clock",
            "-F",
            "1999",
            "-p",
            str(pid),
            "-o",
            data,
            "sleep",
            str(_SECONDS),
        ]
    )
    turn(_SECONDS)
    perf.wait()
    printed = subprocess.run(
        ["perf", "report", "-i", data, "--stdio", "--sort", "dso,symbol", "-t", "\t"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines = [[cell.strip() for cell in line.split("\t")] for line in printed.splitlines() if "\t" in line]
    shares = [
        (share.rstrip("%"), dso, symbol) for share, dso, symbol, *_ in lines if not share.startswith("#")
    ]
    objects: Counter[str] = Counter()
    for share, dso, _ in shares:
        objects[dso] += round(float(share) * 100)
    rows = [("all", dso, f"{share / 100:.1f} %") for dso, share in objects.most_common(6)]
    rows += [(symbol, dso, f"{share} %") for share, dso, symbol in shares[:_ROWS]]
    return Table(f"{name}: by symbol", ("symbol", "object", ""), tuple(rows))


def by_call(name: str, pid: int, turn: Callable[[float], Any]) -> Table:
    """Count a running proxy's system calls per request."""
    trace = subprocess.Popen(
        ["perf", "trace", "-s", "-p", str(pid), "--", "sleep", str(_SECONDS)],
        stderr=subprocess.PIPE,
        text=True,
    )
    measured = turn(_SECONDS)
    assert trace.stderr is not None
    rows = []
    for line in trace.communicate()[1].splitlines():
        words = line.split()
        if len(words) >= 6 and words[1].isdigit():  # call, calls, errors, total, min, avg, ...
            count = int(words[1])
            rows.append(
                (words[0], f"{count / (measured.per_second * _SECONDS):.2f}", f"{float(words[5]) * 1000:.1f}")
            )
    rows.sort(key=lambda row: -float(row[1]))
    return Table(f"{name}: system calls", ("call", "per request", "µs each, traced"), tuple(rows[:12]))


def _sample(directory: Path) -> None:
    counts: Counter[CodeType] = Counter()
    path = directory / f"samples-{os.getpid()}.json"

    def take(_number: int, frame: FrameType | None) -> None:
        if frame is not None:
            counts[frame.f_code] += 1

    def switch(_number: int, _frame: FrameType | None) -> None:
        if signal.getitimer(signal.ITIMER_PROF)[1]:
            signal.setitimer(signal.ITIMER_PROF, 0)
            found = {
                f"{code.co_qualname} ({Path(code.co_filename).name})": count for code, count in counts.items()
            }
            path.with_suffix(".part").write_text(json.dumps(found))
            path.with_suffix(".part").rename(path)
        else:
            counts.clear()
            signal.setitimer(signal.ITIMER_PROF, _INTERVAL_SECONDS, _INTERVAL_SECONDS)

    signal.signal(signal.SIGPROF, take)
    signal.signal(signal.SIGUSR2, switch)


if __name__ == "__main__":
    _sample(Path(sys.argv.pop(1)))
    runpy.run_module("proxy", run_name="__main__", alter_sys=True)
