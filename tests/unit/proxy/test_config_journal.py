"""proxy.config.stores: where the reassignment journal is, and what a topic needs."""

from pathlib import Path

import pytest

from proxy.config import Config, parse
from proxy.config.options import Source
from proxy.system.errors import ConfigError

LISTENER: dict[str, object] = {"bootstrap_port": 19090, "first_broker_port": 19100}
FLEET: dict[str, object] = {"bind": "0.0.0.0:19070", "secret_file": "fleet.secret"}


def made(journal: str | None, **tables: object) -> Config:
    reassignment = tables.pop("reassignment", {})
    assert isinstance(reassignment, dict)
    keys = {"mode": "batch", **({} if journal is None else {"journal": journal}), **reassignment}
    found: dict[str, object] = {
        "cluster": {"bootstrap": "kafka:9092"},
        "listeners": [LISTENER],
        "reassignment": keys,
    }
    return parse({**found, **tables}, Source(), Path("/etc"))


def refused(journal: str | None, **tables: object) -> str:
    with pytest.raises(ConfigError) as caught:
        made(journal, **tables)
    return str(caught.value)


def test_journal_is_a_directory_or_a_topic() -> None:
    settings = made("topic").reassignment
    assert (settings.in_topic, settings.directory) == (True, None)
    assert settings.journal_topic == "__sluice-reassignments"
    for path, directory in (("./topic", "/etc/topic"), ("/var/journal", "/var/journal")):
        settings = made(path).reassignment
        assert (settings.in_topic, settings.directory) == (False, Path(directory))


@pytest.mark.parametrize("journal", [None, "file"])
def test_file_is_the_default_directory(journal: str | None) -> None:
    state = {"directory": "state"}
    assert made(journal, state=state).reassignment.directory == Path("/etc/state/reassignment")
    assert 'on disk, or "topic"' in refused(journal)


@pytest.mark.parametrize("name", ["a b", "..", "x" * 250, ""])
def test_name_that_no_topic_may_have_is_refused(name: str) -> None:
    assert "reassignment.journal_topic" in refused("topic", reassignment={"journal_topic": name})


def test_topic_of_something_else_is_refused() -> None:
    other = {"journal_topic": "__mine"}
    store = {"store": "topic", "topic": "__mine"}
    assert "another topic than quotas.topic" in refused("topic", reassignment=other, quotas=store)
    assert made("topic", reassignment=other, quotas={"topic": "__mine"}).reassignment.in_topic
    fleet = {**FLEET, "group": "__mine"}
    assert "another topic than fleet.group" in refused("topic", reassignment=other, fleet=fleet)


def test_fleet_needs_a_secret() -> None:
    assert "fleet.secret_file: is needed" in refused("topic", fleet={"bind": "0.0.0.0:19070"})
    assert made("topic", fleet=FLEET).reassignment.in_topic
    assert made("/journal", fleet={"bind": "0.0.0.0:19070"}).reassignment.batches


def test_brokers_must_be_reached_without_sluice_and_with_a_known_login() -> None:
    sidecar = {**LISTENER, "upstreams": {"1": "127.0.0.1:29092"}}
    cluster = {"bootstrap": "127.0.0.1:29092"}
    assert "not behind Sluice" in refused("topic", cluster=cluster, listeners=[sidecar])
    cluster = {"bootstrap": "kafka:9092", "sasl_mechanism": "AWS_MSK_IAM", "tls": {}}  # type: ignore[dict-item]
    assert 'cannot be used with [reassignment] journal = "topic"' in refused("topic", cluster=cluster)


def test_passing_needs_nothing() -> None:
    config = made("topic", reassignment={"mode": "pass"}, fleet={"bind": "0.0.0.0:19070"})
    assert not config.reassignment.batches
    assert any("reassignment.journal: has no effect" in warning for warning in config.warnings)
