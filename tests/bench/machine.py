"""On what a run was made: machine, date, versions. A figure without them says nothing."""

import datetime
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from tests.bench import lanes
from tests.cluster.jars import java

_PACKAGES: Final = ("uvloop", "kafka-python", "confluent-kafka")
_LIBRARIES: Final = Path("tests/cluster/libs")


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _kafka() -> str:
    found = sorted(_LIBRARIES.glob("kafka_2.13-*.jar"))
    return found[-1].stem.removeprefix("kafka_2.13-") if found else "unknown"


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def interpreter(python: str) -> str:
    """Return an interpreter's version, build and compiler; builds of one version may differ by a fifth in speed."""
    return _first_line(python, "-c", "import sys; print(sys.version.replace(chr(10), ' '))")


def host() -> list[tuple[str, str]]:
    """Return pairs of a name and a value, without Kafka and HAProxy."""
    packages = ", ".join(f"{name} {_package(name)}" for name in _PACKAGES)
    return [
        ("date", datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("commit", _first_line("git", "describe", "--always", "--dirty")),
        ("machine", f"{os.cpu_count()} × {_processor()}, {_memory_gib()} GiB"),
        ("kernel", f"Linux {platform.release()}"),
        ("Python", f"{interpreter(sys.executable)}; {packages}"),
    ]


def describe(cluster: str = "one broker, one replica") -> list[tuple[str, str]]:
    """Return pairs of a name and a value; `cluster` says what Kafka's part in the run was."""
    proxy = lanes.find_haproxy()
    facts = [
        (name, f"{value}, shared with broker and clients" if name == "machine" else value)
        for name, value in host()
    ]
    return [
        *facts,
        ("Kafka", f"{_kafka()} ({cluster}); {_first_line(java(), '-version')}"),
        ("HAProxy", _first_line(proxy, "-v") if proxy else lanes.HAPROXY_HINT),
    ]
