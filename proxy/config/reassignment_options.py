"""`[reassignment]`: whether reassignments are executed in small batches, and the limits (KIP-435).

The limits have the names of the proposal's configs. They apply from the next step on, not to a step under way.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from proxy.config import readers
from proxy.config.keys import key
from quotas.reassignment.batch import BatchLimits

_COUNT_MAX: Final = 1_000_000
_DAY_SECONDS: Final = 86400
TOPIC: Final = "topic"
_FILE: Final = "file"


def _limit(default: int, unit: str) -> int:
    found: int = field(
        default=default, metadata=key(readers.count(1, _COUNT_MAX), "number", unit=unit, live=True)
    )
    return found


def _cap() -> int | None:
    found: int | None = field(
        default=None,
        metadata=key(readers.count(1, _COUNT_MAX), "number", unit="replicas", live=True, default="unlimited"),
    )
    return found


def _journal(path: str, value: object) -> Path | str | None:
    """Read where the journal is; "file" is the default directory, and a directory called topic is "./topic"."""
    if value == TOPIC:
        return TOPIC
    return None if value == _FILE else readers.optional_file_path(path, value)


@dataclass(frozen=True, slots=True)
class ReassignmentSettings:
    """`[reassignment]`."""

    mode: str = field(default="pass", metadata=key(readers.choice("pass", "batch"), '"pass" or "batch"'))
    journal: Path | str | None = field(
        default=None,
        metadata=key(
            _journal,
            'path, "file" or "topic"',
            default='`reassignment` in `[state] directory`; needed with `mode = "batch"`',
        ),
    )
    journal_topic: str = field(default="__sluice-reassignments", metadata=key(readers.text, "topic"))
    parallel_replica_count: int = _limit(1, "replicas")
    parallel_partition_count: int = _limit(10, "partitions")
    parallel_leader_movements: int = _limit(2, "partitions")
    max_concurrent_replica_movements: int = _limit(20, "replicas")
    max_movements_in_per_broker: int | None = _cap()
    max_movements_out_per_broker: int | None = _cap()
    dead_target_seconds: float = field(
        default=300.0, metadata=key(readers.seconds(0, 7 * _DAY_SECONDS), "number", unit="seconds", live=True)
    )
    moves_max: int = field(
        default=20_000, metadata=key(readers.count(1, _COUNT_MAX), "number", unit="partitions", live=True)
    )

    @property
    def batches(self) -> bool:
        """Whether reassignments are executed in batches."""
        return self.mode == "batch"

    @property
    def in_topic(self) -> bool:
        """Whether there is a journal, and it is in a topic."""
        return self.batches and self.journal == TOPIC

    @property
    def directory(self) -> Path | None:
        """The directory of a journal on files."""
        return self.journal if isinstance(self.journal, Path) else None

    @property
    def limits(self) -> BatchLimits:
        """The planner's limits."""
        return BatchLimits(
            parallel_replica_count=self.parallel_replica_count,
            parallel_partition_count=self.parallel_partition_count,
            parallel_leader_movements=self.parallel_leader_movements,
            max_concurrent_replica_movements=self.max_concurrent_replica_movements,
            max_movements_in_per_broker=self.max_movements_in_per_broker,
            max_movements_out_per_broker=self.max_movements_out_per_broker,
        )

    def warnings(self) -> Iterator[str]:
        """Yield warnings about keys without effect."""
        if self.journal is not None and not self.batches:
            yield 'reassignment.journal: has no effect with mode = "pass"'
