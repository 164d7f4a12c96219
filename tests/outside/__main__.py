"""`make outside CHECKOUT=DIR`: run another project's own tests directly at brokers and through Sluice, and compare.

DIR is a checkout of franz-go, librdkafka, kafka-go or rskafka. Nothing is fetched. A test with another outcome through
Sluice than direct is run again, alone, at both; a difference that stays is named, and the exit code is 1.
With --by-name Sluice has one port with TLS, and the name in a client's hello chooses the broker. The tests of franz-go
and librdkafka are told a certificate; for the others HAProxy adds TLS (`tls`).
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.cluster import HOST, Cluster, ClusterOptions, Listener, MissingPrerequisiteError
from tests.outside import tls
from tests.outside.projects import BUILD, PROJECTS, Outcomes, OutsideError, Place, Project, Way
from tests.support.gateways import resolving
from tests.support.one_port import NAMES, Site, broker_name
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings

DIRECT: Final = "direct"
THROUGH: Final = "through Sluice"
BY_NAME: Final = "through one port"
TRIES_MAX: Final = 3
Columns = dict[str, Outcomes]
"""What came of the tests: direct, and through Sluice."""
_OUTSIDE: Final = "OUTSIDE"
_LOG_CHARACTERS_SHOWN: Final = 3000


def main(words: Sequence[str]) -> int:
    """Return the exit code: 0 same, 1 different, 2 did not run."""
    parser = argparse.ArgumentParser(prog="python -m tests.outside", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="TEST", help="these tests of the suite")
    parser.add_argument("--by-name", action="store_true", help="one port with TLS in place of one a broker")
    options = parser.parse_args(words)
    checkout = options.checkout.resolve()
    name = next((name for name, project in PROJECTS.items() if project.is_at(checkout)), None)
    if name is None:
        print(f"{checkout} is no checkout of {', '.join(PROJECTS)}", file=sys.stderr)
        return 2
    try:
        columns, at_first = compare(name, checkout, options.only, BY_NAME if options.by_name else THROUGH)
    except (OutsideError, MissingPrerequisiteError) as error:
        print(error, file=sys.stderr)
        return 2
    print(table(name, columns, at_first))
    return 1 if differences(columns) else 0


def compare(name: str, checkout: Path, only: Sequence[str], through: str) -> tuple[Columns, list[str]]:
    """Run a suite at both places, and what differs again; return the outcomes, and what differed at first.

    Args:
        through: THROUGH or BY_NAME.
    """
    columns: Columns = {place: run(name, checkout, place, only, 0) for place in (DIRECT, through)}
    at_first = differences(columns)
    for number in range(1, TRIES_MAX):
        if not (only := differences(columns)):
            break
        for place, outcomes in columns.items():
            found = run(name, checkout, place, only, number)
            outcomes.update({test: found[test] for test in only if test in found})
    return columns, at_first


def run(name: str, checkout: Path, place: str, only: Sequence[str], number: int) -> Outcomes:
    """Run a suite, or some of its tests, at one place, before brokers of its own."""
    project = PROJECTS[name]
    log = BUILD / f"{name}-{place.replace(' ', '-')}-{number}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with at(project, place, log.with_suffix("")) as way:
        found = project.run(checkout, Place(way, only, log))
    print(f"{name} {place}: {dict(Counter(found.values()))}; {log}", file=sys.stderr, flush=True)
    if not found:
        raise OutsideError(
            f"{name} {place}: no test ran\n{log.read_text(errors='replace')[-_LOG_CHARACTERS_SHOWN:]}"
        )
    return found


@contextmanager
def at(project: Project, place: str, directory: Path) -> Iterator[Way]:
    """Start brokers, and Sluice if it is to be in between; give how the suite connects."""
    listeners = []
    if project.port and place == DIRECT:
        listeners = [Listener(_OUTSIDE, ports=(project.port,), advertised=(("localhost", project.port),))]
    options = ClusterOptions(nodes=project.nodes, properties=project.properties, listeners=tuple(listeners))
    with Cluster(options) as kafka:
        if place == DIRECT:
            yield Way(kafka.bootstrap())
            return
        directory.mkdir(exist_ok=True)
        if place == BY_NAME:
            site = Site.make(directory)
            with SluiceProcess.configured(site.settings(kafka.bootstrap()), directory) as sluice:
                port = sluice.ports.bootstrap
                if project.tls:
                    yield Way(site.bootstrap(port), site.words, str(site.authority.cert_file))
                else:
                    with _tls_added(site, project, port, directory) as words:
                        yield Way(site.bootstrap(port), words)
            return
        ports = SluicePorts(project.port - 2) if project.port else SluicePorts.free()
        settings = SluiceSettings(kafka.bootstrap(), ports, listener={"advertised_host": "localhost"})
        with SluiceProcess.configured(settings, directory) as sluice:
            yield Way(sluice.bootstrap)


@contextmanager
def _tls_added(site: Site, project: Project, port: int, directory: Path) -> Iterator[tuple[str, ...]]:
    """Have HAProxy add TLS; give the words before a command that has to find it under Sluice's names."""
    names = {f"127.0.1.{number}": name for number, name in enumerate(NAMES, 1)}
    at = {(host, port): name for host, name in names.items()}
    if project.port:
        at[HOST, project.port] = broker_name(1)
    with tls.added(port, at, site.authority.cert_file, directory):
        yield resolving(directory, names.items())


def differences(columns: Columns) -> list[str]:
    """Return the tests whose outcomes differ."""
    direct, through = columns.values()
    return sorted(test for test in direct.keys() | through.keys() if direct.get(test) != through.get(test))


def table(name: str, columns: Columns, at_first: Sequence[str]) -> str:
    """Return the counts side by side, and each difference."""
    direct, through = columns.values()
    lines = [f"{name:24}" + "".join(f"{place:>18}" for place in columns)]
    lines += [
        f"{word:24}" + "".join(f"{list(found.values()).count(word):18}" for found in columns.values())
        for word in ("pass", "fail", "skip")
    ]
    left = differences(columns)
    lines += [
        f"differs: {test}: {direct.get(test, 'absent')}, {through.get(test, 'absent')}" for test in left
    ]
    lines += [f"differed at first: {test}" for test in at_first if test not in left]
    lines += [f"fails at both: {test}" for test in direct if direct[test] == "fail" == through.get(test)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
