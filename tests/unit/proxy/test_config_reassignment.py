"""`[reassignment]`: where the journal lies, and what needs a restart."""

from pathlib import Path

import pytest

from proxy.config import Config, Source, compare, parse
from proxy.system.errors import ConfigError

BASE = Path("/etc/sluice")
BARE: dict[str, object] = {"cluster": {"bootstrap": "a:1"}, "listeners": [{}]}


def configured(**tables: object) -> Config:
    return parse({**BARE, **tables}, Source(), BASE)


def test_reassignments_pass_by_default() -> None:
    assert not configured().reassignment.batches


def test_journal_lies_in_the_state_directory() -> None:
    config = configured(reassignment={"mode": "batch"}, state={"directory": "state"})
    assert config.reassignment.directory == BASE / "state" / "reassignment"


def test_journal_may_lie_elsewhere() -> None:
    config = configured(reassignment={"mode": "batch", "journal": "/shared"})
    assert config.reassignment.directory == Path("/shared")


def test_batches_without_a_place_on_disk_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"reassignment\.journal: .*needs a directory on disk"):
        configured(reassignment={"mode": "batch"})


def test_journal_without_batch_mode_is_a_warning() -> None:
    config = configured(reassignment={"journal": "/shared"})
    assert config.warnings == ('reassignment.journal: has no effect with mode = "pass"',)


def test_limits_apply_live_and_the_mode_does_not() -> None:
    before = configured(state={"directory": "state"})
    after = configured(
        state={"directory": "state"}, reassignment={"mode": "batch", "parallel_replica_count": 2}
    )
    changes = compare(before, after)
    assert changes.live == ("reassignment.parallel_replica_count",)
    assert set(changes.restart) == {"reassignment.mode", "reassignment.journal"}
