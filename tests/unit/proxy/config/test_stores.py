"""Where quotas and the reassignment journal are kept: what goes with each place, and the old name of its key."""

from pathlib import Path
from typing import Any

import pytest

from proxy.config import compare
from tests.support.configurations import BASE, made, made_refused, parsed

GATEWAY = '[cluster]\nbootstrap = "kafka:9092"\n[[listeners]]\n'
LISTENER: dict[str, object] = {"bootstrap_port": 19090, "first_broker_port": 19100}
FLEET: dict[str, object] = {"bind": "0.0.0.0:19070", "secret_file": "fleet.secret"}


def test_old_name_is_read_with_a_warning() -> None:
    config = made(quotas={"source": "cluster"})
    assert config.quotas.store == "cluster"
    assert config.warnings == ("quotas.source: is now called store, with the same values",)
    assert parsed(GATEWAY, environ={"SLUICE_QUOTAS__SOURCE": "cluster"}).quotas.store == "cluster"
    assert made(quotas={"store": "cluster"}).warnings == ()


def test_both_names_are_refused() -> None:
    assert made_refused(quotas={"source": "file", "store": "file"}).startswith(
        "quotas.source: is the old name of store"
    )


def test_topic_needs_no_file_and_says_what_to_do_with_one() -> None:
    assert made(quotas={"store": "topic"}).quotas.topic == "__sluice-quotas"
    assert "sluice quotas apply FILE" in made_refused(quotas={"store": "topic", "file": "q.toml"})


@pytest.mark.parametrize("name", ["a b", "..", "x" * 250, "ä"])
def test_name_that_no_topic_may_have_is_refused(name: str) -> None:
    assert "is not a valid name of a topic" in made_refused(quotas={"store": "topic", "topic": name})
    assert "is not a valid name of a topic" in made_refused(quotas={"store": "topic", "audit_topic": name})


def test_one_topic_for_both_is_refused() -> None:
    assert "must be another topic" in made_refused(
        quotas={"store": "topic", "topic": "a", "audit_topic": "a"}
    )
    assert made(quotas={"store": "topic", "audit_topic": ""}).quotas.audit_topic == ""


def test_mechanism_that_aiokafka_lacks_is_refused() -> None:
    cluster = {"bootstrap": "kafka:9092", "sasl_mechanism": "AWS_MSK_IAM", "tls": {}}
    assert "cannot be used" in made_refused(quotas={"store": "topic"}, cluster=cluster)


def test_sidecar_needs_a_listener_of_the_brokers_that_is_not_behind_it() -> None:
    sidecar = {**LISTENER, "upstreams": {"1": "127.0.0.1:29092"}}
    for cluster in ({}, {"bootstrap": "127.0.0.1:29092"}):
        assert "not behind Sluice" in made_refused(
            quotas={"store": "topic"}, cluster=cluster, listeners=[sidecar]
        )
    own = {"bootstrap": "127.0.0.1:9094"}
    assert made(quotas={"store": "topic"}, cluster=own, listeners=[sidecar]).quotas.store == "topic"


def test_alter_principals_have_no_effect_where_each_member_has_a_file() -> None:
    fleet = {"holder": "gw-1:19070"}
    (warning,) = made(quotas={"alter_principals": ["ops"]}, fleet=fleet).warnings
    assert warning.startswith('quotas.alter_principals: has no effect with [fleet] and store = "file"')
    assert made(quotas={"alter_principals": ["ops"]}).warnings == ()
    assert made(quotas={"alter_principals": ["ops"], "store": "topic"}, fleet=fleet).warnings == ()


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


@pytest.mark.parametrize("name", ["a b", "..", "x" * 250, ""])
def test_name_that_no_journal_may_have_is_refused(name: str) -> None:
    assert "reassignment.journal_topic" in made_refused(reassignment=batch(journal_topic=name))


def test_topic_of_something_else_is_refused() -> None:
    other: dict[str, Any] = {"journal_topic": "__mine"}
    store = {"store": "topic", "topic": "__mine"}
    assert "another topic than quotas.topic" in made_refused(reassignment=batch(**other), quotas=store)
    assert made(reassignment=batch(**other), quotas={"topic": "__mine"}).reassignment.in_topic
    fleet = {**FLEET, "group": "__mine"}
    assert "another topic than fleet.group" in made_refused(reassignment=batch(**other), fleet=fleet)


def test_fleet_needs_a_secret() -> None:
    assert "fleet.secret_file: is needed" in made_refused(
        reassignment=batch(), fleet={"bind": "0.0.0.0:19070"}
    )
    assert made(reassignment=batch(), fleet=FLEET).reassignment.in_topic
    assert made(reassignment=batch("/journal"), fleet={"bind": "0.0.0.0:19070"}).reassignment.batches


def test_brokers_must_be_reached_without_sluice_and_with_a_known_login() -> None:
    sidecar = {**LISTENER, "upstreams": {"1": "127.0.0.1:29092"}}
    cluster = {"bootstrap": "127.0.0.1:29092"}
    assert "not behind Sluice" in made_refused(reassignment=batch(), cluster=cluster, listeners=[sidecar])
    cluster = {"bootstrap": "kafka:9092", "sasl_mechanism": "AWS_MSK_IAM", "tls": {}}  # type: ignore[dict-item]
    assert 'cannot be used with [reassignment] journal = "topic"' in made_refused(
        reassignment=batch(), cluster=cluster
    )


def test_passing_needs_nothing() -> None:
    config = made(reassignment=batch(mode="pass"), fleet={"bind": "0.0.0.0:19070"})
    assert not config.reassignment.batches
    assert any("reassignment.journal: has no effect" in warning for warning in config.warnings)


def test_limits_apply_live_and_the_mode_does_not() -> None:
    before = made(state={"directory": "state"})
    after = made(state={"directory": "state"}, reassignment={"mode": "batch", "parallel_replica_count": 2})
    changes = compare(before, after)
    assert changes.live == ("reassignment.parallel_replica_count",)
    assert set(changes.restart) == {"reassignment.mode", "reassignment.journal"}
