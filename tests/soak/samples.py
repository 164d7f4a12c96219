"""Samples of a long run, and what they say: memory early against late, the table, the plot. No socket, no clock."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Final

from tests.bench.figures import median

_WARM_UP_SHARE: Final = 0.25
_WARM_UP_SECONDS_MAX: Final = 900.0
_MIB: Final = 1024.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The proxy at one moment; latencies and CPU are those since the sample before."""

    seconds: float
    resident_kib: int
    descriptors: int
    sockets: int
    cpu_percent: float
    ping_p50_ms: float
    ping_p99_ms: float
    ping_max_ms: float
    connections: int
    connection_errors: int
    throttled_channels: int
    acknowledged: int
    read: int
    reloads: int


class Log:
    """Writes samples to a CSV file as they come, so that a run that is cut off leaves what it has."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("w", newline="")
        self._writer = csv.DictWriter(self._file, [each.name for each in fields(Sample)])
        self._writer.writeheader()
        self.samples: list[Sample] = []

    def add(self, sample: Sample) -> None:
        """Keep a sample."""
        self.samples.append(sample)
        self._writer.writerow(asdict(sample))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def windows(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Return the first and the last third of what comes after the warm-up: a quarter of the run, 15 minutes at most."""
    if not samples:
        return [], []
    end = samples[-1].seconds
    warm = min(end * _WARM_UP_SHARE, _WARM_UP_SECONDS_MAX)
    third = (end - warm) / 3
    early = [sample for sample in samples if warm <= sample.seconds <= warm + third]
    late = [sample for sample in samples if sample.seconds >= end - third]
    return early, late


def growth(samples: Sequence[Sample]) -> float | None:
    """Return by how much the late window's median of resident memory is over the early one's: 0.02 is 2 %."""
    early, late = windows(samples)
    if not early or not late:
        return None
    return median(one.resident_kib for one in late) / median(one.resident_kib for one in early) - 1


def percentage(share: float) -> str:
    """Write a share.

    >>> percentage(-0.0123)
    '-1.2 %'
    """
    return f"{100 * share:+.1f} %"


def plot(samples: Sequence[Sample], events: Sequence[tuple[float, str]], path: Path) -> bool:
    """Draw memory, descriptors, CPU and latency over time; False where matplotlib is missing."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    minutes = [sample.seconds / 60 for sample in samples]
    drawn = (
        ("resident MiB", [sample.resident_kib / _MIB for sample in samples]),
        ("descriptors", [float(sample.descriptors) for sample in samples]),
        ("CPU %", [sample.cpu_percent for sample in samples]),
        ("ping p99 ms", [sample.ping_p99_ms for sample in samples]),
    )
    figure, axes = pyplot.subplots(len(drawn), 1, sharex=True, figsize=(10, 9))
    for axis, (name, values) in zip(axes, drawn, strict=True):
        axis.plot(minutes, values, linewidth=0.8)
        axis.set_ylabel(name)
        axis.set_ylim(bottom=0)
        axis.grid(visible=True, alpha=0.3)
        for at, what in events:
            axis.axvline(
                at / 60, color="tab:red" if what == "broker" else "tab:gray", alpha=0.25, linewidth=0.6
            )
    axes[-1].set_xlabel("minutes (red: a broker restarts, gray: a reload)")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return True
