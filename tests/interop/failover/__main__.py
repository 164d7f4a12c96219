"""`make failover`: how soon clients work again when one of two gateways dies, by family, release and way to them.

A whole run takes 20 minutes and writes the table into docs/how-to/when-a-gateway-dies.md; one with `--clients` or
`--situations` only prints it.
"""

import argparse
import contextlib
import datetime
import functools
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.lanes import find_haproxy
from tests.bench.report import replace_between
from tests.cluster import Cluster, ClusterOptions, processes
from tests.interop.failover.measure import BACK_SECONDS_MAX, Case, Fault, Outcome, Role, measure
from tests.interop.families import FAMILIES, ROOT, Family, java_of
from tests.interop.runs import Crowd, side_by_side
from tests.support.gateways import BALANCED, LISTED, NAMED, Way, haproxy

DOCUMENT: Final = ROOT / "docs" / "how-to" / "when-a-gateway-dies.md"
# Each has two gateways, which mostly wait: more than there are cores, fewer than disturb each other.
_LANES: Final = 8
_TRIES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Client:
    """A client of the table: its name there, and settings that are not its defaults."""

    name: str
    family: Family
    properties: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """A column of the table."""

    name: str
    way: Way
    fault: Fault


SITUATIONS: Final = {
    "listed": Situation("both in `bootstrap.servers`, one killed", LISTED, Fault.KILLED),
    "hanging": Situation("both in `bootstrap.servers`, one hangs", LISTED, Fault.SUSPENDED),
    "named": Situation("one name with both addresses, one killed", NAMED, Fault.KILLED),
    "balanced": Situation("HAProxy before both, one killed", BALANCED, Fault.KILLED),
    "suspended": Situation("HAProxy before both, one hangs", BALANCED, Fault.SUSPENDED),
}


def clients() -> list[Client]:
    """Return what is measured, in the order of the table."""
    known = {family.name: family for family in FAMILIES}
    rebootstrap, none = "metadata.recovery.strategy=rebootstrap", "metadata.recovery.strategy=none"
    found = [Client(f"Java {version}", java_of(version)) for version in ("3.6.2", "3.7.2")]
    for version in ("3.8.1", "3.9.1"):
        found += [
            Client(f"Java {version}", java_of(version)),
            Client(f"Java {version}, `rebootstrap`", java_of(version), rebootstrap),
        ]
    found += [
        Client("Java 4.0.1", java_of("4.0.1")),
        Client("Java 4.4.0", known["java"]),
        Client("Java 4.4.0, `none`", known["java"], none),
        Client("", known["librdkafka"]),
        Client("{}, `none`", known["librdkafka"], none),
    ]
    return found + [Client("", known[name]) for name in list(known) if name not in {"java", "librdkafka"}]


def named(client: Client, directory: Path) -> Client:
    """Return a client with its release in its name, which it knows itself where it is not in the list."""
    if client.name and "{}" not in client.name:
        return client
    with Crowd(directory) as crowd:
        release = crowd.start(client.family, "capabilities").wait(60).last("capabilities").text("client")
    return Client((client.name or "{}").format(release), client.family, client.properties)


def private_hosts() -> bool:
    """Return whether a process here may have an /etc/hosts of its own, which one name for two addresses needs."""
    words = ["unshare", "--map-root-user", "--mount", "true"]
    try:
        return subprocess.run(words, capture_output=True, timeout=10, check=False).returncode == 0
    except OSError:
        return False


def attempt(case: Case, kafka: Cluster, directory: Path) -> Outcome:
    """Measure a case, again if the client did not even begin to work: nothing was seen of the fault then."""
    direct = next(family for family in FAMILIES if family.name == "librdkafka")
    outcome = Outcome(case, trouble="not tried")
    tries = 0
    while outcome.trouble and tries < _TRIES_MAX:
        tries += 1
        own = directory / str(tries)
        own.mkdir(parents=True)
        outcome = measure(case, kafka, direct, own)
        print(line(outcome), file=sys.stderr, flush=True)
    return outcome


def run_all(cases: Sequence[Case], kafka: Cluster, directory: Path) -> list[Outcome]:
    """Measure some cases side by side; return the outcomes in the order of the cases."""
    outcomes: dict[int, Outcome] = {}

    def work(number: int, _lane: int) -> None:
        outcomes[number] = attempt(cases[number], kafka, directory / str(number))

    side_by_side(range(_LANES), [functools.partial(work, number) for number in range(len(cases))])
    return [outcomes[number] for number in range(len(cases))]


def cell(outcome: Outcome) -> str:
    """Return how long it took, and what went wrong.

    >>> from tests.interop.families import FAMILIES
    >>> case = Case("Java", FAMILIES[0], Role.PRODUCER, LISTED, Fault.KILLED)
    >>> cell(Outcome(case, seconds=0.21)), cell(Outcome(case, back_seconds=0.5, given_up=2))
    ('0.2 s', '**no** (+0.5 s), 2 given up')
    """
    if outcome.trouble:
        return outcome.trouble
    if outcome.seconds is not None:
        parts = [f"{outcome.seconds:.1f} s"]
    elif outcome.back_seconds is not None:
        parts = [f"**no** (+{outcome.back_seconds:.1f} s)"]
    else:
        parts = [f"**no**, nor within {BACK_SECONDS_MAX:.0f} s after it is back"]
    parts += [f"**{outcome.lost} lost**"] if outcome.lost else []
    parts += [f"{outcome.given_up} given up"] if outcome.given_up else []
    return ", ".join(parts)


def line(outcome: Outcome) -> str:
    """Return one line for the terminal."""
    case = outcome.case
    return (
        f"{case.client:28} {case.way.name:26} {case.fault:10} {case.role:8} {cell(outcome)}"
        f" | {outcome.records} records {outcome.message[:100]}"
    )


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the lines of the table: clients down, situations across; producer / consumer in each cell."""
    situations = [
        one
        for one in SITUATIONS.values()
        if any((one.way, one.fault) == (outcome.case.way, outcome.case.fault) for outcome in outcomes)
    ]
    yield "| client | " + " | ".join(one.name for one in situations) + " |"
    yield "|---" * (len(situations) + 1) + "|"
    for name in dict.fromkeys(outcome.case.client for outcome in outcomes):
        found = {
            (outcome.case.way, outcome.case.fault, outcome.case.role): cell(outcome)
            for outcome in outcomes
            if outcome.case.client == name
        }
        cells = [
            " / ".join(
                found[one.way, one.fault, role] for role in Role if (one.way, one.fault, role) in found
            )
            for one in situations
        ]
        yield f"| {name} | " + " | ".join(cells) + " |"


def main() -> int:
    """Measure, print the table, and write it where everything was measured."""
    processes.exit_on_signals()
    parser = argparse.ArgumentParser(prog="make failover", description=__doc__)
    parser.add_argument("--clients", default="", metavar="TEXT", help="those with the text in their names")
    parser.add_argument("--situations", default=",".join(SITUATIONS))
    arguments = parser.parse_args()
    chosen = [SITUATIONS[name] for name in arguments.situations.split(",")]
    if any(one.way is NAMED for one in chosen) and not private_hosts():
        print("unshare is not permitted here: one name with both addresses is left out", file=sys.stderr)
        chosen = [one for one in chosen if one.way is not NAMED]
    if find_haproxy() is None and any(one.way.balanced for one in chosen):
        haproxy()  # says what to install
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-failover-")))
        measured = [named(client, directory) for client in clients()]
        measured = [client for client in measured if arguments.clients.lower() in client.name.lower()]
        for client in measured:
            client.family.build()
        cases = [
            Case(client.name, client.family, role, one.way, one.fault, client.properties)
            for one in chosen
            for client in measured
            for role in Role
        ]
        kafka = stack.enter_context(Cluster(ClusterOptions(nodes=3)))
        outcomes = run_all(cases, kafka, directory)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = "\n".join([f"Measured {today}, Kafka 4.4.0; producer / consumer.", "", *table(outcomes), ""])
    if len(chosen) == len(SITUATIONS) and not arguments.clients:
        DOCUMENT.write_text(replace_between(DOCUMENT.read_text(), "failover", f"\n{text}\n"))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
