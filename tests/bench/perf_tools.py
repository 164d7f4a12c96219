"""Kafka's producer and consumer performance tools: their command lines and what they print."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster import tools

RECORD_BYTES: Final = 1000
_TOOL_SECONDS: Final = 300.0
_JVM: Final = ("-Xmx512m",)


@dataclass(frozen=True, slots=True)
class Throughput:
    """What a tool moved, counted in bytes of records."""

    records: int
    megabytes_per_second: float

    @property
    def gigabytes(self) -> float:
        """Return the bytes moved in units of 1e9."""
        return self.records * RECORD_BYTES / 1e9


def parse_producer(printed: str) -> Throughput:
    r"""Return what kafka-producer-perf-test's last line says; its "MB" are 1024 * 1024 bytes.

    >>> parse_producer("500 records sent, 100.0 records/sec (0.10 MB/sec), 5.00 ms avg latency\n")
    Throughput(records=500, megabytes_per_second=0.1)
    """
    last = next(line for line in reversed(printed.splitlines()) if "records/sec" in line)
    words = last.replace("(", " ").split()
    per_second = float(words[words.index("records/sec") - 1])
    return Throughput(int(words[0]), per_second * RECORD_BYTES / 1e6)


def parse_consumer(printed: str) -> Throughput:
    r"""Return what kafka-consumer-perf-test says; the time its group needed to form is left out.

    >>> parse_consumer("2026-01-01 0:0:0:0, 2026-01-01 0:0:2:0, 0.95, 0.5, 1000, 500.0, 1000, 1000, 0.95, 1000.0\n")
    Throughput(records=1000, megabytes_per_second=1.0)
    """
    last = next(line for line in reversed(printed.splitlines()) if line.count(",") == 9)
    cells = [cell.strip() for cell in last.split(",")]
    return Throughput(int(cells[4]), float(cells[9]) * RECORD_BYTES / 1e6)


def produce(
    bootstrap: str, topic: str, records: int, *properties: str, config: Path | None = None
) -> Throughput:
    """Run kafka-producer-perf-test to its end; `config` is a file of more properties."""
    words = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)]
    words += ["--record-size", str(RECORD_BYTES), "--throughput", "-1", "--command-property", *properties]
    words += ["--command-config", str(config)] if config else []
    return parse_producer(_run(tools.PRODUCER_PERFORMANCE, *words))


def consume(bootstrap: str, topic: str, records: int, group: str, config: Path | None = None) -> Throughput:
    """Run kafka-consumer-perf-test to its end; `config` is a file of more properties."""
    words = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)]
    words += ["--group", group, "--hide-header", "--timeout", "30000"]
    words += ["--command-config", str(config)] if config else []
    return parse_consumer(_run(tools.CONSUMER_PERFORMANCE, *words))


def _run(tool: str, *words: str) -> str:
    # Not `tools.run`: it spares the second compiler, which suits short tools and makes a producer three times slower.
    line = tools.command(tool, *words, jvm_options=_JVM)
    done = subprocess.run(line, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False)
    if done.returncode != 0:
        raise ChildProcessError(
            f"{tool} ended with {done.returncode}: {done.stdout[-1000:]} {done.stderr[-1000:]}"
        )
    return done.stdout
