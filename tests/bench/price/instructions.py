"""Instructions per request of two revisions, counted by valgrind: what else runs on the machine adds none.

Only what runs in user space is counted (Python and its libraries), not the kernel's part; the requests go one at a
time over one connection, so each takes the same way. What the proxy does on its own (every second, every five seconds)
falls into some of the turns: the least of several is the figure. It says what a change in our own code costs, and
nothing of what batching saves. Where a side captures, it is the figure of the data path: the thread that makes rows
works once a second, and the least turn has nothing of it; the CPU time has.
"""

import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench.lanes import Lane
from tests.bench.price.checkouts import opened
from tests.bench.price.turns import LANES, TOPIC_CONFIGS, PriceLane
from tests.bench.stage import Stage

HINT: Final = "valgrind is missing: apt-get install valgrind"
_TURNS: Final = 7
_TURN_SECONDS: Final = 0.7
_CONTROL_SECONDS: Final = 60.0


def missing() -> str:
    """Return why nothing can be counted here ("" when it can)."""
    return "" if shutil.which("valgrind") and shutil.which("callgrind_control") else HINT


def count(
    stage: Stage,
    trees: Mapping[str, Path],
    policy: str,
    wanted: Callable[[PriceLane], bool],
    capturing: Collection[str] = (),
    sharing: Collection[str] = (),
) -> dict[str, tuple[float, float]]:
    """Return the instructions per request before and after, by lane."""
    found: dict[str, list[float]] = {}
    output = stage.directory / "callgrind"
    words = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={output}.%p"]
    with opened(stage, trees, policy, words, capturing, sharing=sharing) as sides:
        for side in sides:
            for size in sorted({lane.record_bytes for lane in LANES if wanted(lane)}):
                lanes = [lane for lane in LANES if lane.record_bytes == size and wanted(lane)]
                for lane, counted in zip(lanes, _side(stage, side, size, lanes, output), strict=True):
                    found.setdefault(lane.name, []).append(counted)
                    stage.say(f"{policy} {side.name} {lane.name}: {counted:.0f} instructions")
    return {name: (before, after) for name, (before, after) in found.items()}


def _side(stage: Stage, side: Lane, size: int, lanes: Sequence[PriceLane], output: Path) -> list[float]:
    topic = f"instructions-{size}-{side.pid}"
    stage.create_topic(topic, configs=TOPIC_CONFIGS)
    counted = []
    with stage.generator(side.port, topic, size=size, connections=1) as generator:

        def ordered(order: str) -> int:
            return int(generator.ask(f"{order} {_TURN_SECONDS}")["requests"])

        for lane in lanes:
            ordered("closed" if lane is lanes[0] else lane.order)  # the topic has a record, caches are filled
            _control(side, "--instr=on")
            ordered(lane.order)  # what is translated now is slower, and counted the same
            counted.append(min(_turn(side, lane, ordered, output) for _ in range(_TURNS)))
            _control(side, "--instr=off")
    stage.delete_topic(topic)
    return counted


def _turn(side: Lane, lane: PriceLane, ordered: Callable[[str], int], output: Path) -> float:
    _control(side, "--zero")
    requests = ordered(lane.order)
    _control(side, "--dump")
    return dumped(_newest(output, side)) / requests


def _newest(output: Path, side: Lane) -> str:
    files = [path for path in output.parent.glob(f"{output.name}.{side.pid}.*") if path.suffix[1:].isdigit()]
    return max(files, key=lambda path: int(path.suffix[1:])).read_text()


def dumped(text: str) -> int:
    r"""Return what one dump has counted.

    >>> dumped("events: Ir\nfn=(1)\n12 5\n\ntotals: 1234\n")
    1234
    """
    lines = [line for line in text.splitlines() if line.startswith(("totals:", "summary:"))]
    if not lines:
        raise ValueError("a dump of callgrind's without totals")
    return int(lines[-1].split()[1])


def _control(side: Lane, order: str) -> None:
    subprocess.run(
        ["callgrind_control", order, str(side.pid)], check=True, capture_output=True, timeout=_CONTROL_SECONDS
    )
