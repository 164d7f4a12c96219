"""proxy.config.stores: what goes with each store, and the key's old name."""

from pathlib import Path

import pytest

from proxy.config import Config, parse
from proxy.config.options import Source
from proxy.system.errors import ConfigError

LISTENER: dict[str, object] = {"bootstrap_port": 19090, "first_broker_port": 19100}


def made(quotas: dict[str, object], environ: dict[str, str] | None = None, **tables: object) -> Config:
    found: dict[str, object] = {
        "cluster": {"bootstrap": "kafka:9092"},
        "listeners": [LISTENER],
        "quotas": quotas,
    }
    return parse({**found, **tables}, Source(environ=environ or {}), Path("/etc"))


def refused(quotas: dict[str, object], **tables: object) -> str:
    with pytest.raises(ConfigError) as caught:
        made(quotas, None, **tables)
    return str(caught.value)


def test_old_name_is_read_with_a_warning() -> None:
    config = made({"source": "cluster"})
    assert config.quotas.store == "cluster"
    assert config.warnings == ("quotas.source: is now called store, with the same values",)
    assert made({}, {"SLUICE_QUOTAS__SOURCE": "cluster"}).quotas.store == "cluster"
    assert made({"store": "cluster"}).warnings == ()


def test_both_names_are_refused() -> None:
    assert refused({"source": "file", "store": "file"}).startswith("quotas.source: is the old name of store")


def test_topic_needs_no_file_and_says_what_to_do_with_one() -> None:
    assert made({"store": "topic"}).quotas.topic == "__sluice-quotas"
    assert "sluice quotas apply FILE" in refused({"store": "topic", "file": "q.toml"})


@pytest.mark.parametrize("name", ["a b", "..", "x" * 250, "ä"])
def test_name_that_no_topic_may_have_is_refused(name: str) -> None:
    assert "is not a valid name of a topic" in refused({"store": "topic", "topic": name})
    assert "is not a valid name of a topic" in refused({"store": "topic", "audit_topic": name})


def test_one_topic_for_both_is_refused() -> None:
    assert "must be another topic" in refused({"store": "topic", "topic": "a", "audit_topic": "a"})
    assert made({"store": "topic", "audit_topic": ""}).quotas.audit_topic == ""


def test_mechanism_that_aiokafka_lacks_is_refused() -> None:
    cluster = {"bootstrap": "kafka:9092", "sasl_mechanism": "AWS_MSK_IAM", "tls": {}}
    assert "cannot be used" in refused({"store": "topic"}, cluster=cluster)


def test_sidecar_needs_a_listener_of_the_brokers_that_is_not_behind_it() -> None:
    sidecar = {**LISTENER, "upstreams": {"1": "127.0.0.1:29092"}}
    for cluster in ({}, {"bootstrap": "127.0.0.1:29092"}):
        assert "not behind Sluice" in refused({"store": "topic"}, cluster=cluster, listeners=[sidecar])
    own = {"bootstrap": "127.0.0.1:9094"}
    assert made({"store": "topic"}, cluster=own, listeners=[sidecar]).quotas.store == "topic"


def test_alter_principals_have_no_effect_where_each_member_has_a_file() -> None:
    fleet = {"holder": "gw-1:19070"}
    (warning,) = made({"alter_principals": ["ops"]}, None, fleet=fleet).warnings
    assert warning.startswith('quotas.alter_principals: has no effect with [fleet] and store = "file"')
    assert made({"alter_principals": ["ops"]}).warnings == ()
    assert made({"alter_principals": ["ops"], "store": "topic"}, None, fleet=fleet).warnings == ()
