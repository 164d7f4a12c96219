"""Where quotas and the reassignment journal are kept: what goes with each place, and the old name of its key."""

from pathlib import Path

import pytest

from proxy.config import compare
from tests.support.configurations import BASE, made, made_refused, parsed

GATEWAY = '[cluster]\nbootstrap = "kafka:9092"\n[[listeners]]\n'


def test_old_name_is_read_with_a_warning() -> None:
    config = made(quotas={"source": "cluster"})
    assert config.quotas.store == "cluster"
    assert config.warnings == ("quotas.source: is now called store, with the same values",)
    assert parsed(GATEWAY, environ={"SLUICE_QUOTAS__SOURCE": "cluster"}).quotas.store == "cluster"
    assert made(quotas={"store": "cluster"}).warnings == ()


def test_topic_needs_no_file_and_says_what_to_do_with_one() -> None:
    assert made(quotas={"store": "topic"}).quotas.topic == "__sluice-quotas"
    assert "sluice quotas apply FILE" in made_refused(quotas={"store": "topic", "file": "q.toml"})


@pytest.mark.parametrize("key", ["quotas.topic", "quotas.audit_topic", "reassignment.journal_topic"])
def test_name_that_is_too_long_for_a_topic_is_refused(key: str) -> None:
    table, _, name = key.partition(".")
    store = {"quotas": {"store": "topic"}, "reassignment": {"mode": "batch", "journal": "topic"}}[table]
    assert made_refused(**{table: {**store, name: "x" * 250}}).startswith(f"{key}: is not a valid name")


def batch(journal: str | None = "topic", **keys: object) -> dict[str, object]:
    """`[reassignment]` in batches with its journal there."""
    return {"mode": "batch", **({} if journal is None else {"journal": journal}), **keys}


def test_journal_is_a_directory_or_a_topic() -> None:
    settings = made(reassignment=batch()).reassignment
    assert (settings.in_topic, settings.directory) == (True, None)
    assert settings.journal_topic == "__sluice-reassignments"
    for path, directory in (("./topic", "/etc/sluice/topic"), ("/var/journal", "/var/journal")):
        settings = made(reassignment=batch(path)).reassignment
        assert (settings.in_topic, settings.directory) == (False, Path(directory))


@pytest.mark.parametrize("journal", [None, "file"])
def test_file_is_the_default_directory(journal: str | None) -> None:
    state = {"directory": "state"}
    assert (
        made(reassignment=batch(journal), state=state).reassignment.directory
        == BASE / "state" / "reassignment"
    )
    assert 'on disk, or "topic"' in made_refused(reassignment=batch(journal))


def test_limits_apply_live_and_the_mode_does_not() -> None:
    before = made(state={"directory": "state"})
    after = made(state={"directory": "state"}, reassignment={"mode": "batch", "parallel_replica_count": 2})
    changes = compare(before, after)
    assert changes.live == ("reassignment.parallel_replica_count",)
    assert set(changes.restart) == {"reassignment.mode", "reassignment.journal"}
