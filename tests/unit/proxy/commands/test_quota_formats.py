"""Quotas as TOML, JSON and jikkou's YAML: both ways, and what is refused."""

import sys

import pytest

from proxy.commands.quota_formats import FORMATS, as_table, describe, jikkou_omits, read, write
from proxy.system.errors import ConfigError, SluiceError
from quotas.definitions.entities import DEFAULT, Entity

# The six levels jikkou has, with its three keys.
JIKKOUS = {
    Entity(DEFAULT): {"producer_byte_rate": 1.0},
    Entity("ann"): {"consumer_byte_rate": 2.0},
    Entity("ann", "c"): {"request_percentage": 12.5},
    Entity("ann", DEFAULT): {"producer_byte_rate": 3.0, "request_percentage": 4.0},
    Entity(None, "ü: c"): {"producer_byte_rate": 5.0},
    Entity(None, DEFAULT): {"producer_byte_rate": 6.0},
}
MORE = {
    Entity(DEFAULT, "c"): {"producer_byte_rate": 7.0},
    Entity(ip="::1"): {"connection_creation_rate": 8.0},
    Entity(topic="orders"): {"producer_byte_rate": 9.0},
    Entity("bob"): {"controller_mutation_rate": 0.5},
}

# Written after jikkou's documentation, "Kafka Quotas".
DOCUMENTED = """\
---
apiVersion: 'kafka.jikkou.io/v1beta2'
kind: 'KafkaClientQuota'
metadata:
  labels: { }
  annotations: { }
spec:
  type: 'CLIENT'
  entity:
    clientId: 'my-client'
  configs:
    requestPercentage: 10
    producerByteRate: 1024
    consumerByteRate: 1024
---
apiVersion: 'kafka.jikkou.io/v1'
kind: 'KafkaClientQuotaList'
items:
  - spec:
      type: 'USER'
      entity:
        user: 'my-user'
      configs:
        producerByteRate: 1024
  - spec:
      type: USERS_DEFAULT
      configs: {requestPercentage: 1.5}
"""


@pytest.mark.parametrize("form", ["toml", "json"])
def test_written_text_is_read_again(form: str) -> None:
    assert read(write(JIKKOUS | MORE, form), form) == JIKKOUS | MORE


def test_jikkou_text_is_read_again() -> None:
    assert read(write(JIKKOUS | MORE, "jikkou"), "jikkou") == JIKKOUS


def test_documented_jikkou_resources_are_read() -> None:
    assert read(DOCUMENTED, "jikkou") == {
        Entity(None, "my-client"): {
            "producer_byte_rate": 1024,
            "consumer_byte_rate": 1024,
            "request_percentage": 10,
        },
        Entity("my-user"): {"producer_byte_rate": 1024},
        Entity(DEFAULT): {"request_percentage": 1.5},
    }


def test_quota_without_a_jikkou_form_is_named() -> None:
    assert list(jikkou_omits(JIKKOUS)) == []
    assert list(jikkou_omits(MORE)) == [
        "user <default>, client id 'c' is left out: jikkou has no such quota type",
        "ip '::1' is left out: jikkou has no such quota type",
        "topic 'orders' is left out: jikkou has no such quota type",
        "controller_mutation_rate of user 'bob' is left out: jikkou has no such key",
    ]


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        ("toml", "[", "not TOML"),
        ("json", "[", "not JSON"),
        ("json", "{}", "must be a list"),
        ("json", "[5]", "must be an object"),
        ("json", '[{"user": "a"}]', "must be an object"),
        ("json", '[{"user": "a", "team": "g", "quotas": {}}]', "must be an object"),
        ("json", '[{"user": 5, "quotas": {"producer_byte_rate": 1}}]', "a name must be a string"),
        ("json", '[{"user": "a", "quotas": {"producer_byte_rate": -1}}]', "greater than 0"),
        ("json", '[{"user": "a", "quotas": {"producer_byte_rate": NaN}}]', "must be a finite number"),
        ("json", '[{"user": "a", "quotas": {"x": 1}}]', "unknown key"),
        (
            "json",
            '[{"user": "a", "quotas": {"producer_byte_rate": 1}}, {"user": "a", "quotas": {"consumer_byte_rate": 1}}]',
            "defined twice",
        ),
        ("jikkou", "{", "not YAML"),
        ("jikkou", "kind: KafkaTopic", "apiVersion"),
        ("jikkou", "apiVersion: kafka.jikkou.io/v1\nkind: KafkaTopic", "kind"),
        ("jikkou", "5", "apiVersion"),
        ("jikkou", DOCUMENTED.replace("'CLIENT'", "'CLUSTER'"), "spec.type"),
        (
            "jikkou",
            DOCUMENTED.replace("clientId: 'my-client'", "user: 'u'"),
            "does not name the whole entity",
        ),
        ("jikkou", DOCUMENTED.replace("requestPercentage: 10", "other: 10"), "unknown key"),
        *(
            (
                "jikkou",
                f"apiVersion: kafka.jikkou.io/v1\nkind: KafkaClientQuota\nspec:\n  {spec}\n",
                "1: spec",
            )
            for spec in ("type: [USER]", "type: USER\n  entity: [a]", "type: USERS_DEFAULT\n  configs: [1]")
        ),
    ],
)
def test_impossible_quota_is_refused(form: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(text, form)


def test_without_yaml_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(SluiceError, match=r"PyYAML is not installed.* -r requirements/operator\.txt$"):
        read(DOCUMENTED, "jikkou")
    assert "jikkou" in FORMATS


def test_entities_have_names() -> None:
    assert describe(Entity("ann", DEFAULT)) == "user 'ann', client id <default>"
    assert as_table(Entity(ip=DEFAULT)) == {"ip": "<default>"}


CHANGES = """\
# unused
[[quota]]
client_id = "old"
remove = true

[[quota]]
client_id = "<default>"
producer_byte_rate = "2M"
"""


def test_a_file_of_changes_may_remove_an_entity() -> None:
    assert read(CHANGES, "toml") == {
        Entity(client_id="old"): {},
        Entity(client_id=DEFAULT): {"producer_byte_rate": 2e6},
    }
    in_one_line = 'quota = [{ client_id = "old", remove = true }, { user = "ann", remove = true }]'
    assert read(in_one_line, "toml") == {Entity(client_id="old"): {}, Entity("ann"): {}}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("remove = true", "remove = false", r"quota\[0\]\.remove: must be true, not False"),
        ("remove = true", 'remove = true\nproducer_byte_rate = "1M"', r"quota\[0\]: has limits and remove"),
        ("<default>", "old", r"quota\[1\]: client_id 'old' is defined twice"),
        ('"2M"', '"fast"', r"quota\[1\]\.producer_byte_rate"),
        (
            "remove = true",
            'remove = true\n[[quota]]\nclient_id = "old"\nremove = true',
            r"quota\[1\]: .* twice",
        ),
    ],
)
def test_removal_that_contradicts_is_refused(old: str, new: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(CHANGES.replace(old, new), "toml")
