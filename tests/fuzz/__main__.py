"""`make fuzz`: targets one after the other, each in a process of its own; says how many runs, and what was found.

    python -m tests.fuzz [TARGET ...] [--runs N] [--seconds S]
    python -m tests.fuzz TARGET --input FILE|HEX    one input once more, without Atheris

What an instrumented run calls slow is run once more without instrumentation, in this process, and is a finding only
where it is over the target's bound there too. Exits with 1 where there is a finding.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.fuzz import corpus, stopwatch
from tests.fuzz.targets import TARGETS

_WORK: Final = Path("build/fuzz")
_SECONDS: Final = 20
_INPUT_SECONDS_MAX: Final = 120  # libFuzzer ends itself over an input that takes longer
_MEMORY_MIB_MAX: Final = 2048
# What is looked at again without instrumentation, with which code is several times slower.
_SLOW_MS: Final = 50
_SHOWN: Final = re.compile(rb"#(\d+)\s.*?cov: (\d+) ft: (\d+) corp: (\d+)/")


def main() -> int:
    """Run what was asked for."""
    arguments = _arguments()
    unknown = set(arguments.targets) - set(TARGETS)
    if unknown:
        known = ", ".join(TARGETS)
        print(f"no such target: {', '.join(sorted(unknown))}; there are {known}", file=sys.stderr)
        return 2
    if arguments.input:
        return _show(arguments.targets, arguments.input)
    widths = (15, 10, 9, 8, 7, 10, 8)
    columns = ("target", "runs", "seconds", "runs/s", "edges", "features", "inputs")
    print(_line(columns, widths), " findings")
    failed = False
    for name in arguments.targets or TARGETS:
        began = time.monotonic()
        shown, findings = _fuzz(name, arguments)
        seconds = time.monotonic() - began
        runs, edges, features, inputs = shown
        cells = (name, runs, f"{seconds:.0f}", f"{runs / seconds:.0f}", edges, features, inputs)
        print("\n  ".join([f"{_line(cells, widths)}  {len(findings)}", *findings]), flush=True)
        failed |= bool(findings)
    return int(failed)


def _line(cells: Sequence[object], widths: Sequence[int]) -> str:
    first, *rest = (f"{cell:>{width}}" for cell, width in zip(map(str, cells), widths, strict=True))
    return first.strip().ljust(widths[0]) + "".join(rest)


def _show(targets: list[str], given: str) -> int:
    """Run one input; whatever it raises is shown as Python shows it."""
    data = Path(given).read_bytes() if Path(given[:200]).exists() else bytes.fromhex(given)
    for name in targets:
        slowest = stopwatch.slowest(TARGETS[name].run, data, exactly=True)
        print(f"{name}: {slowest.label or 'nothing timed'}: {slowest.seconds * 1000:.2f} ms")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"all of them: {', '.join(TARGETS)}")
    parser.add_argument("--runs", type=int, default=0, help="inputs for each target, instead of a time")
    parser.add_argument("--seconds", type=int, default=0, help=f"for each target; {_SECONDS} without --runs")
    parser.add_argument("--input", default="", help="a file, or its bytes in hex")
    found = parser.parse_args()
    if not found.runs and not found.seconds:
        found.seconds = _SECONDS
    return found


def _fuzz(name: str, arguments: argparse.Namespace) -> tuple[list[int], list[str]]:
    """Return runs, edges, features and inputs as libFuzzer tells them, and the findings."""
    target = TARGETS[name]
    inputs, findings = _WORK / "corpus" / name, _WORK / "findings" / name
    corpus.unpack(name, inputs)
    findings.mkdir(parents=True, exist_ok=True)
    words = _WORK / f"{name}.dict"
    escaped = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words.split(b"|") if word)
    words.write_text("".join(f'"{word}"\n' for word in escaped))
    options = [
        f"-max_len={target.input_bytes_max}",
        f"-timeout={_INPUT_SECONDS_MAX}",
        f"-report_slow_units={_INPUT_SECONDS_MAX}",
        f"-rss_limit_mb={_MEMORY_MIB_MAX}",
        f"-artifact_prefix={findings}/ended-",
        *([f"-dict={words}"] if target.words else []),
        *([f"-runs={arguments.runs}"] if arguments.runs else []),
        *([f"-max_total_time={arguments.seconds}"] if arguments.seconds else []),
    ]
    command = [sys.executable, "-m", "tests.fuzz.run", ",".join(target.packages), name, str(inputs)]
    command += [str(findings), str(_SLOW_MS / 1000), *options]
    log = _WORK / f"{name}.log"
    with log.open("wb") as output:
        code = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
    shown = _SHOWN.findall(log.read_bytes())
    found = _confirmed(name, findings)
    if code and not any(findings.glob("ended-*")):
        found.append(f"{log}: the fuzzer has ended with {code}")
    return list(map(int, shown[-1])) if shown else [0, 0, 0, 0], found


def _confirmed(name: str, directory: Path) -> list[str]:
    """The findings of a target that are some without instrumentation too."""
    target, found = TARGETS[name], []
    for path in sorted(directory.iterdir()):
        if path.suffix == ".txt":
            continue
        if path.name.startswith("slow-"):
            slowest = stopwatch.confirm(target.run, path.read_bytes(), target.bound_seconds)
            if slowest.label:
                found.append(f"{path}: {slowest.label} takes {slowest.seconds * 1000:.1f} ms")
        elif path.name.startswith("failed-"):
            found.append(f"{path}: {path.with_suffix('.txt').read_text().partition(chr(10))[0]}")
        else:
            found.append(f"{path}: ended the fuzzer: too slow or too large by far")
    return found


if __name__ == "__main__":
    sys.exit(main())
