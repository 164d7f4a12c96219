"""`python -m tests.bench`: the data path against direct and HAProxy in one run; writes docs/benchmarks.md.

With `--identities` it measures clients who say who they are instead: by SASL and over TLS, and many quota entities.
With `--capture` it measures the data path again, through a Sluice that captures beside one that does not.

Exit code 0 even when a bar is missed: the table says so, and by how much; 1 when something could not be measured.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Final

from rich.console import Console

from tests.bench import machine, report
from tests.bench.lanes import OTHER_PYTHON
from tests.bench.options import SECTIONS, parse
from tests.bench.process import raise_descriptor_limit
from tests.bench.report import Outcome
from tests.bench.sections import data_path, decisions, idle, metadata
from tests.bench.stage import Stage, stage

_RUN: Final[Mapping[str, Callable[[Stage], Outcome]]] = {
    "produce": data_path.run_produce,
    "consume": data_path.run_consume,
    "small": data_path.run_small,
    "many": data_path.run_many,
    "medium": data_path.run_medium,
    "large": data_path.run_large,
    "latency": data_path.run_latency,
    "idle": idle.run,
    "clients": decisions.run_clients,
    "entities": decisions.run_entities,
    "sasl": data_path.run_sasl,
    "tls": data_path.run_tls,
    "metadata": metadata.run,
}


def main(console: Console) -> bool:
    """Run the sections that were asked for, print and write; return whether everything was measured."""
    options = parse()
    descriptors = raise_descriptor_limit()
    outcome = Outcome()
    failed: dict[str, str] = {}
    with stage(options, console) as running:
        for name in SECTIONS:
            if name in options.only:
                console.rule(name, align="left")
                try:
                    outcome.add(_RUN[name](running))
                except Exception as failure:  # noqa: BLE001 - the edge of a section: the others are worth having
                    console.print_exception()
                    failed[f"section {name}"] = f"failed: {failure}".splitlines()[0]
        left_out = failed | running.lanes.missing
    facts = machine.describe()
    if options.python:
        facts.append((OTHER_PYTHON, machine.interpreter(options.python)))
    facts += [(f"left out: {name}", why) for name, why in left_out.items()]
    amounts = "quick: one short round of each" if options.quick else f"{options.rounds} rounds"
    facts += [("descriptors", str(descriptors)), ("amounts", amounts)]
    report.publish(console, facts, outcome, options.block if options.write else "")
    return not failed and all(bar.measured is not None for bar in outcome.bars)


if __name__ == "__main__":
    sys.exit(report.run(main))
