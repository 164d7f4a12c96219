"""`python -m tests.bench.replication`: the test plan of KIP-73, by Kafka's throttle and by Sluice's, in one run.

Each front has a cluster of its own: `kafka` replicates directly and is throttled by kafka-reassign-partitions;
`schedule` and `kip73` replicate through Sluice, which throttles what reassignments add. What a broker has is read off
its log files 50 times a second. Writes docs/benchmarks.md between the markers `replication`; with a choice it prints.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench import machine, replication_plans, report
from tests.bench.replication_moves import MOVES, Result, run_move
from tests.bench.report import Bar, Outcome, Table
from tests.cluster import processes
from tests.support.replication_rig import ReplicationRig

FRONTS: Final = ("kafka", "schedule", "kip73")
DOCUMENT: Final = Path("docs/benchmarks.md")
_NODES: Final = 3
_PLANNED: Final = ("kafka", "schedule")  # who does Kafka's own tests as well


@contextmanager
def rig_of(front: str, nodes: int) -> Iterator[ReplicationRig]:
    """Start a cluster, and Sluice before it."""
    keys = {"throttled": "reassignments", "policy": front} if front != "kafka" else {}
    with (
        tempfile.TemporaryDirectory(prefix="sluice-replication-") as directory,
        ReplicationRig(Path(directory), keys, nodes=nodes, proxied=front != "kafka") as rig,
    ):
        yield rig


def judge(results: Sequence[Result]) -> Outcome:
    """The bars hold for `schedule`."""
    steady = [result for result in results if result.front == "schedule" and result.move.steady]
    rates = [result.achieved for result in steady]
    over = [result.largest_bytes - result.move.limit - result.move.batch_bytes for result in steady]
    times = [abs(result.seconds / result.estimated - 1) for result in steady]
    bars = [
        Bar("schedule: lowest achieved / quota", min(rates, default=None), 0.95, at_least=True),
        Bar("schedule: highest achieved / quota", max(rates, default=None), 1.02),
        Bar("schedule: largest second over quota and one batch", max(0, *over) if over else None, 0, "bytes"),
        Bar("schedule: time against the estimate", max(times, default=None), 0.10),
    ]
    columns = ("move", "throttle", "achieved / quota", "largest second / quota", "seconds", "estimated")
    return Outcome([Table("Moves", columns, tuple(result.row() for result in results))], bars)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fronts and moves that are asked for; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.replication", description=__doc__)
    parser.add_argument("--fronts", default=",".join(FRONTS), help="some of " + ", ".join(FRONTS))
    parser.add_argument(
        "--only", default="", help="moves whose name holds this; `plans`: Kafka's own tests alone"
    )
    options = parser.parse_args(arguments)
    fronts = options.fronts.split(",")
    processes.exit_on_signals()
    chosen = [move for move in MOVES if options.only in move.name]
    results, plans = [], []
    for front in fronts:
        if chosen:
            with rig_of(front, _NODES) as rig:
                for number, move in enumerate(chosen):
                    if front == "kafka" and move.event == "Sluice killed":
                        continue
                    results.append(run_move(rig, front, move, number))
                    print(" | ".join(results[-1].row()), file=sys.stderr, flush=True)
        if options.only in ("", "plans") and front in _PLANNED:
            with rig_of(front, replication_plans.NODES) as rig:
                plans.append(replication_plans.run_plans(rig, front))
    results.sort(key=lambda result: MOVES.index(result.move))
    outcome = judge(results)
    if plans:
        outcome.tables += replication_plans.tables(plans)
        outcome.bars += replication_plans.bars(plans)
    facts = machine.describe("three brokers, eight for Kafka's own tests")
    report.show(report.screen(), facts, outcome)
    if not options.only and fronts == list(FRONTS):
        report.write(DOCUMENT, "replication", facts, outcome)
    return 0 if all(bar.passed for bar in outcome.bars) else 1


if __name__ == "__main__":
    sys.exit(main())
