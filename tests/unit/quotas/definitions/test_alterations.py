"""quotas.definitions.alterations: Kafka's validation table (kafka-quotas.md §6.1), partial success, and what we
refuse beside.
"""

import math

import pytest

from quotas.definitions.alterations import Alteration, Parts, alter, parts_of
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity

USER: Parts = [("user", "ann")]
RATE = [("producer_byte_rate", 1000.0)]


def problem(parts: Parts, *ops: tuple[str, float | None], definitions: Definitions | None = None) -> str:
    """The error of one alteration, which must then change nothing."""
    outcome = alter(definitions or Definitions(), [(parts, ops)])
    ((named, text),) = outcome.results
    assert named == parts
    assert not (text and outcome.changes)
    return text


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], "Invalid empty client quota entity"),
        ([("group", "a")], "Unhandled client quota entity type: group"),
        ([("user", "a"), ("user", "b")], "Invalid client quota entity, duplicate entity entry user"),
        ([("user", "")], "Empty user not supported"),
        ([("user", "a"), ("client-id", "")], "Empty client-id not supported"),
        (
            [("ip", "127.0.0.1"), ("user", "a")],
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        ),
        (
            [("topic", "t"), ("user", "a")],
            "Invalid quota entity combination, topic should not be combined with other types",
        ),
        ([("topic", "")], "Empty topic not supported"),
        ([("ip", "no-host")], "no-host is not a valid IP or resolvable host."),
        ([("ip", "1.2.3")], "1.2.3 is not a valid IP or resolvable host."),
    ],
)
def test_invalid_entities_are_refused_as_kafka_does(parts: Parts, text: str) -> None:
    assert problem(parts, *RATE) == text


@pytest.mark.parametrize(
    ("parts", "key", "value", "text"),
    [
        (USER, "unknown", 1.0, "Invalid configuration key unknown"),
        # Of a user alone, or the default user, it is taken: Kafka refuses it for them too.
        (
            [("user", "u"), ("client-id", None)],
            "connection_creation_rate",
            1.0,
            "Invalid configuration key connection_creation_rate",
        ),
        (
            [("client-id", "c")],
            "connection_creation_rate",
            1.0,
            "Invalid configuration key connection_creation_rate",
        ),
        ([("topic", "t")], "request_percentage", 1.0, "Invalid configuration key request_percentage"),
        (
            [("topic", "t")],
            "connection_creation_rate",
            1.0,
            "Invalid configuration key connection_creation_rate",
        ),
        ([("topic", None)], "producer_byte_rate", 0.5, "producer_byte_rate cannot be a fractional value."),
        ([("ip", "::1")], "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        (USER, "producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        (USER, "request_percentage", -1.0, "Quota request_percentage must be greater than 0"),
        (USER, "producer_byte_rate", 1e19, "Proposed value for producer_byte_rate is too large for a LONG."),
        (
            [("ip", None)],
            "connection_creation_rate",
            2.0**31,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (USER, "consumer_byte_rate", 10.5, "consumer_byte_rate cannot be a fractional value."),
        (USER, "consumer_byte_rate", 1e-7, "consumer_byte_rate cannot be a fractional value."),
        (USER, "producer_byte_rate", math.nan, "Quota producer_byte_rate must be greater than 0"),
        (USER, "request_percentage", math.nan, "Quota request_percentage must be greater than 0"),
        (USER, "request_percentage", -math.inf, "Quota request_percentage must be greater than 0"),
        (
            USER,
            "producer_byte_rate",
            math.inf,
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (USER, "request_percentage", math.inf, "Proposed value for request_percentage is too large."),
        (
            USER,
            "controller_mutation_rate",
            1e300,
            "Proposed value for controller_mutation_rate is too large.",
        ),
    ],
)
def test_invalid_values_are_refused(parts: Parts, key: str, value: float, text: str) -> None:
    assert problem(parts, (key, value)) == text


def test_name_that_the_file_could_not_hold_is_refused() -> None:
    assert "spells the default entity so" in problem([("user", "<default>")], *RATE)


@pytest.mark.parametrize(
    ("parts", "entity"),
    [
        ([("user", None)], Entity(DEFAULT)),
        ([("client-id", "c"), ("user", "u")], Entity("u", "c")),
        ([("client-id", None), ("user", None)], Entity(DEFAULT, DEFAULT)),
        ([("topic", "t")], Entity(topic="t")),
        ([("topic", None)], Entity(topic=DEFAULT)),
    ],
)
def test_valid_entities_are_accepted(parts: Parts, entity: Entity) -> None:
    outcome = alter(Definitions(), [(parts, RATE)])
    assert outcome == ([(parts, "")], {entity: {"producer_byte_rate": 1000.0}}, {entity: {}})


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1", None])
def test_ip_has_its_own_key(ip: str | None) -> None:
    outcome = alter(Definitions(), [([("ip", ip)], [("connection_creation_rate", 5.0)])])
    assert outcome.changes == {Entity(ip=ip or DEFAULT): {"connection_creation_rate": 5.0}}


def test_nearly_integral_values_are_valid() -> None:
    # Kafka allows for a part of 1e-6 that its clients' arithmetic may have left.
    assert alter(Definitions(), [(USER, [("producer_byte_rate", 1000.0000005)])]).changes == {
        Entity("ann"): {"producer_byte_rate": 1000.0}
    }


SET = Definitions({Entity("ann"): {"producer_byte_rate": 1000.0, "request_percentage": 50.0}})


def test_ops_change_and_remove_their_keys() -> None:
    ops: list[tuple[str, float | None]] = [("producer_byte_rate", None), ("consumer_byte_rate", 5.0)]
    outcome = alter(SET, [(USER, ops)])
    assert outcome.changes == {Entity("ann"): {"request_percentage": 50.0, "consumer_byte_rate": 5.0}}
    assert SET.values(Entity("ann"))["producer_byte_rate"] == 1000  # nothing is applied here


@pytest.mark.parametrize(
    "ops", [[], [("producer_byte_rate", 1000.0)], [("consumer_byte_rate", None)], [("unknown", None)]]
)
def test_alteration_without_a_change_succeeds(ops: list[tuple[str, float | None]]) -> None:
    assert alter(SET, [(USER, ops)]) == ([(USER, "")], {}, {})


def test_entity_is_gone_with_its_last_key() -> None:
    outcome = alter(SET, [(USER, [("producer_byte_rate", None), ("request_percentage", None)])])
    assert outcome.changes == {Entity("ann"): {}}


def test_each_entity_succeeds_or_fails_by_itself() -> None:
    bob: Alteration = ([("user", "bob")], [("producer_byte_rate", 1.0), ("unknown", 1.0)])
    outcome = alter(SET, [bob, (USER, [("producer_byte_rate", 7.0)])])
    assert outcome.results == [(bob[0], "Invalid configuration key unknown"), (USER, "")]
    assert outcome.changes == {Entity("ann"): {"producer_byte_rate": 7.0, "request_percentage": 50.0}}


def test_repeated_entity_is_refused_once_and_not_applied() -> None:
    one: Parts = [("user", "u"), ("client-id", "c")]
    other: Parts = [("client-id", "c"), ("user", "u")]
    outcome = alter(Definitions(), [(one, RATE), (USER, RATE), (other, RATE), (one, RATE)])
    assert [(parts, text[:25]) for parts, text in outcome.results] == [
        (one, "Ignoring duplicate entity"),
        (USER, ""),
    ]
    assert list(outcome.changes) == [Entity("ann")]


def test_repeated_key_is_refused_as_kafka_says_it() -> None:
    assert problem(USER, *RATE, *RATE).startswith("Ignoring duplicate entity")


def test_no_more_entities_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quotas.definitions.alterations.ENTITIES_MAX", 2)
    found = alter(SET, [([("user", name)], RATE) for name in ("b", "c", "ann")])
    assert [text[:21] for _, text in found.results] == ["", "There may be no more ", ""]


def test_entity_is_shown_in_kafkas_words() -> None:
    assert parts_of(Entity("u", DEFAULT)) == [("user", "u"), ("client-id", None)]
    assert parts_of(Entity(ip=DEFAULT)) == [("ip", None)]
