"""`python -m tests.matrix`: run the suites before each broker, one after the other, and write docs/brokers.md.

A test that fails is run again alone, and named if it passes then. If it does not, it is run where clients connect to
the broker itself, if it can be (tests/interop): what fails there as well is the broker's. The exit code is 1 if any
other test failed.
"""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.cluster import HOST, Address, Cluster, ClusterOptions, free_ports, readiness
from tests.cluster.features import FOREIGN
from tests.cluster.jars import release
from tests.matrix.page import BROKERS, ROOT, Result, read, title, write
from tests.support.foreign_brokers import ForeignCluster
from tests.support.proxy_process import SluiceProcess, SluiceSettings

SUITES: Final = ("integration", "interop", "oracle")
# Brokers that are not Apache's have neither its logins nor its tools' every request, and end together.
SUITES_OF_FOREIGN: Final = (
    *("interop/test_families.py", "interop/test_groups.py", "interop/test_quotas.py"),
    *("integration/test_relay.py", "integration/test_request_quota.py"),
)
# The property with which test_rolling tells how long brokers were silent.
ROLLED: Final = "rolled"
_PROCESSES: Final = ("--dist", "loadfile", "--no-loadscope-reorder")


@dataclass(slots=True)
class Told:
    """What pytest's report says."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    rolled: str = ""


def main(words: Sequence[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("brokers", nargs="*", help=f"of {', '.join(BROKERS)}; all without any")
    parser.add_argument("--suites", nargs="+", help="a part: directories and modules below tests")
    parser.add_argument("--add", action="store_true", help="keep what other suites have said before a broker")
    parser.add_argument("--processes", type=int, default=3, help="of tests, each with brokers of its own")
    options = parser.parse_args(words)
    failed = False
    for name in options.brokers or BROKERS:
        broker = name if name in FOREIGN else release(name)
        suites = options.suites or (SUITES_OF_FOREIGN if broker in FOREIGN else SUITES)
        before = read().get(broker) if options.add else None
        if before is not None and (twice := {*before.suites} & {*suites}):
            parser.error(f"the row of {broker} has {', '.join(sorted(twice))} already")
        result = measure(broker, suites, options.processes)
        failed = failed or bool(result.failed)
        write({**read(), broker: result if before is None else before.with_more(result)})
    return 1 if failed else 0


def measure(broker: str, suites: Sequence[str], processes: int) -> Result:
    """Run suites before one broker, or before several of a kind, one for each process."""
    print(f"--- {title(broker)}", flush=True)
    told = run(broker, [f"tests/{suite}" for suite in suites], "--numprocesses", str(processes), *_PROCESSES)
    failed = run(broker, told.failed).failed if told.failed else []
    again = [case for case in failed if case.startswith("tests/interop/")]
    direct = run(broker, again, SLUICE_INTEROP_DIRECT="1").failed if again else []
    offered, through = versions(broker)
    return Result(
        broker=broker,
        day=datetime.datetime.now(datetime.UTC).date().isoformat(),
        suites=suites,
        passed=told.passed + len(told.failed) - len(failed),
        skipped=dict(told.skipped),
        failed=[case for case in failed if case not in direct],
        failed_direct=direct,
        second_try=[case for case in told.failed if case not in failed],
        rolled=told.rolled,
        offered=offered,
        through=through,
    )


def run(broker: str, cases: Sequence[str], *words: str, **environment: str) -> Told:
    """Run tests, and return what became of them."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            f"--junitxml={report}",
            "-o",
            "junit_family=xunit1",
            *words,
            *cases,
        ]
        environment |= {"SLUICE_KAFKA": broker}
        subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False)
        return parse(report.read_text())


def parse(report: str) -> Told:
    """Read a report of pytest's."""
    told = Told()
    for case in ElementTree.fromstring(report).iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            told.failed.append(f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}")
        elif skipped is not None:
            told.skipped[skipped.get("message", "")] += 1
        else:
            told.passed += 1
        told.rolled += "".join(
            each.get("value", "") for each in case.iter("property") if each.get("name") == ROLLED
        )
    return told


def versions(broker: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the newest version of each API by key, as the broker says and as Sluice does."""
    with tempfile.TemporaryDirectory() as directory, started(broker) as kafka:
        last = max(kafka.nodes)
        own = {"broker_id_max": last, "first_broker_port": free_ports(last + 1)[0]}
        settings = SluiceSettings(kafka.bootstrap(), listener=own)
        with SluiceProcess.configured(settings, Path(directory)):
            return _offered(kafka.address(last)), _offered((HOST, settings.ports.bootstrap))


def _offered(address: Address) -> dict[str, int]:
    return {str(key): newest for key, newest in readiness.offered(address).items()}


def started(broker: str) -> Cluster:
    """Return one node of a release, or a cluster of others' brokers, to be started."""
    return ForeignCluster(broker) if broker in FOREIGN else Cluster(ClusterOptions(nodes=1, kafka=broker))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
