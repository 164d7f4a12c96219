"""How the suites of franz-go, librdkafka, kafka-go and rskafka are run from a checkout, without fetching anything.

What a suite needs beside its checkout must be there: modules in Go's cache, crates in Cargo's, compilers.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster.jars import NEWEST

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build" / "outside"
SECONDS_MAX: Final = 3600
Outcomes = dict[str, str]
"""`pass`, `fail` or `skip` by test."""


class OutsideError(RuntimeError):
    """A suite did not run at all; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a suite connects.

    Args:
        words: what stands before a command that has to know the names in `bootstrap`.
        ca_file: the certificate to trust; "" for connections without TLS.
    """

    bootstrap: str
    words: tuple[str, ...] = ()
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a suite runs, and what of it.

    Args:
        only: tests to run; all of them if it is empty.
        log: where what the suite prints is kept.
    """

    way: Way
    only: Sequence[str]
    log: Path


@dataclass(frozen=True, slots=True)
class Project:
    """One project.

    Args:
        sign: a file of its checkouts, and a text that is in it.
        run: runs the suite.
        port: where its tests expect broker 1 on localhost; 0: where they are told.
        properties: of the brokers.
        tls: whether its tests can be told a certificate to trust.
    """

    sign: tuple[str, str]
    run: Callable[[Path, Place], Outcomes]
    nodes: int = 3
    port: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    tls: bool = False

    def is_at(self, checkout: Path) -> bool:
        """Return whether a directory is a checkout of it."""
        name, text = self.sign
        return (checkout / name).is_file() and text in (checkout / name).read_text(errors="replace")


def _call(words: Sequence[str], directory: Path, log: Path, **environment: str) -> str:
    """Run a program to its end, whatever its exit code, and return what it printed."""
    # What is set already goes before: KGO_TEST_RECORDS=500000 make outside ...
    with log.open("w") as out:
        subprocess.run(
            words,
            cwd=directory,
            env={**environment, **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=SECONDS_MAX,
            check=False,
        )
    return log.read_text(errors="replace")


def _go(package: str, **environment: str) -> Callable[[Path, Place], Outcomes]:
    def run(checkout: Path, place: Place) -> Outcomes:
        tops = sorted({name.partition("/")[0] for name in place.only})
        chosen = [f"-run=^({'|'.join(tops)})$"] if tops else []
        words = ["go", "test", "-json", "-count=1", f"-timeout={SECONDS_MAX}s", *chosen, package]
        told = {"KGO_SEEDS": place.way.bootstrap}
        if place.way.ca_file:
            told["KGO_TEST_TLS"] = f"ca:{place.way.ca_file}"
        offline = {"GOPROXY": "off", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
        words = [*place.way.words, *words]
        return go_outcomes(_call(words, checkout, place.log, **environment, **offline, **told))

    return run


def go_outcomes(printed: str) -> Outcomes:
    r"""Read what `go test -json` prints; a test that did not end has failed.

    >>> go_outcomes('{"Action":"run","Test":"A"}\n{"Action":"run","Test":"B"}\n{"Action":"skip","Test":"B"}\n')
    {'A': 'fail', 'B': 'skip'}
    """
    found: Outcomes = {}
    for line in printed.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        name, action = event.get("Test", ""), event.get("Action")
        if name and action in {"run", "pass", "fail", "skip"}:
            found[name] = "fail" if action == "run" else action
    return found


def _rskafka(checkout: Path, place: Place) -> Outcomes:
    chosen = ["--exact", *(name.partition(" ")[2] for name in place.only)] if place.only else []
    words = ["cargo", "test", "--offline", "--no-fail-fast", "--tests", "--", "--test-threads=4", *chosen]
    words = [*place.way.words, *words]
    environment = {"TEST_INTEGRATION": "1", "TEST_BROKER_IMPL": "kafka", "KAFKA_CONNECT": place.way.bootstrap}
    return rust_outcomes(
        _call(words, checkout, place.log, CARGO_TARGET_DIR=str(BUILD / "rskafka"), **environment)
    )


def rust_outcomes(printed: str) -> Outcomes:
    r"""Read what `cargo test` prints, each test behind the name of its program.

    >>> rust_outcomes("     Running tests/client.rs (target/x)\ntest a ... ok\ntest b ... ignored\n")
    {'client a': 'pass', 'client b': 'skip'}
    """
    words = {"ok": "pass", "FAILED": "fail", "ignored": "skip"}
    program, found = "", {}
    for line in printed.splitlines():
        if running := re.match(r"\s+Running (?:unittests )?\S*?(\w+)\.rs", line):
            program = running[1]
        elif test := re.match(r"test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", line):
            found[f"{program} {test[1]}"] = words[test[2]]
    return found


def _librdkafka(checkout: Path, place: Place) -> Outcomes:
    tests = _built_librdkafka(checkout, place.log) / "tests"
    configuration, report = place.log.with_suffix(".conf"), place.log.with_suffix(".json")
    tls = f"security.protocol=ssl\nssl.ca.location={place.way.ca_file}\n" if place.way.ca_file else ""
    configuration.write_text(f"bootstrap.servers={place.way.bootstrap}\ntest.topic.random=true\n{tls}")
    report.unlink(missing_ok=True)
    environment = {
        "RDKAFKA_TEST_CONF": str(configuration),
        "TEST_REPORT": str(report),
        "TEST_KAFKA_VERSION": NEWEST,
    }
    if place.only:
        environment["TESTS"] = ",".join(name.partition("_")[0] for name in place.only)
    # -L: without the tests that need no broker.
    _call([*place.way.words, "./run-test.sh", "-L", "-Q", "-p3"], tests, place.log, **environment)
    return librdkafka_outcomes(report.read_text()) if report.exists() else {}


def _built_librdkafka(checkout: Path, log: Path) -> Path:
    """Return a copy of the checkout in which the tests are built."""
    copy = BUILD / "librdkafka"
    if not (copy / "tests" / "test-runner").exists():
        shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(".git"), dirs_exist_ok=True)
        for words in (["./configure"], ["make", "-j2", "libs"], ["make", "-j2", "-C", "tests", "build"]):
            _call(words, copy, log.with_name(f"{words[-1].strip('./')}.log"))
    return copy


def librdkafka_outcomes(report: str) -> Outcomes:
    """Read the report of its test-runner, without `<MAIN>`, which is the run itself.

    >>> librdkafka_outcomes('{"tests": {"<MAIN>": {"state": "PASSED"}, "0001_a": {"state": "SKIPPED"}}}')
    {'0001_a': 'skip'}
    """
    words = {"PASSED": "pass", "SKIPPED": "skip", "DNS": "skip"}
    tests = json.loads(report)["tests"].items()
    return {name: words.get(test["state"], "fail") for name, test in tests if name != "<MAIN>"}


_CREATES_TOPICS: Final = {"auto.create.topics.enable": "true"}

PROJECTS: Final = {
    # A tenth of the records that the suite has without being told.
    "franz-go": Project(
        ("pkg/kgo/client.go", "package kgo"),
        _go("./pkg/kgo", KGO_TEST_RF="3", KGO_TEST_RECORDS="50000"),
        properties=_CREATES_TOPICS,
        tls=True,
    ),
    "librdkafka": Project(
        ("src/rdkafka.h", "rd_kafka_new"),
        _librdkafka,
        # The last as its own tests of share consumers have it.
        properties=_CREATES_TOPICS
        | {"num.partitions": "4", "group.share.min.record.lock.duration.ms": "1000"},
        tls=True,
    ),
    "kafka-go": Project(
        ("go.mod", "module github.com/segmentio/kafka-go"),
        _go("./...", KAFKA_VERSION=NEWEST),
        nodes=1,
        port=9092,
        properties=_CREATES_TOPICS | {"message.max.bytes": "200000000"},
    ),
    "rskafka": Project(("Cargo.toml", 'name = "rskafka"'), _rskafka),
}
