"""quotas.definitions.alterations: Kafka's validation table (kafka-quotas.md §6.1), partial success, and what we
refuse beside.
"""

import math

import pytest

from quotas.definitions.alterations import (
    ANY,
    DEFAULT_NAME,
    EXACT,
    Alteration,
    Component,
    Difference,
    FilterError,
    Parts,
    alter,
    alterations,
    differences,
    filter_of,
    matching,
    parts_of,
)
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity, Name

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


A, B, C = Entity(client_id="a"), Entity(client_id="b"), Entity("c", DEFAULT)
CURRENT = {A: {"x": 1.0, "y": 2.0}, B: {"x": 3.0}}
WANTED = {C: {"z": 5.0}, A: {"x": 1.0, "y": 4.0}}


def test_differences_are_limited_to_the_files_entities() -> None:
    assert differences(CURRENT, WANTED, prune=False) == [
        Difference(C, "z", None, 5.0),
        Difference(A, "y", 2.0, 4.0),
    ]


def test_entity_has_exactly_the_limits_that_are_wanted() -> None:
    assert differences(CURRENT, {A: {"x": 1.0}}, prune=False) == [Difference(A, "y", 2.0, None)]


def test_prune_removes_other_entities() -> None:
    assert differences(CURRENT, WANTED, prune=True)[-1] == Difference(B, "x", 3.0, None)


def test_second_run_finds_nothing() -> None:
    assert differences(WANTED, WANTED, prune=True) == []


def test_each_entity_is_altered_once() -> None:
    found = differences(CURRENT, {A: {"x": 9.0, "z": 8.0}, C: {"z": 5.0}}, prune=True)
    assert alterations(found) == [
        ([("client-id", "a")], [("x", 9.0), ("z", 8.0), ("y", None)]),
        ([("user", "c"), ("client-id", None)], [("z", 5.0)]),
        ([("client-id", "b")], [("x", None)]),
    ]


CLIENTS = [
    Entity("user-1", "client-id-1"),
    Entity("user-2", "client-id-1"),
    Entity("user-3", "client-id-2"),
    Entity(DEFAULT, "client-id-1"),
    Entity("user-1", DEFAULT),
    Entity("user-3", DEFAULT),
    Entity("user-1"),
    Entity("user-2"),
    Entity("user-3"),
    Entity(DEFAULT),
    Entity(None, "client-id-2"),
]
IPS = [Entity(ip="1.2.3.4"), Entity(ip=DEFAULT)]
# ClientQuotasRequestTest.testDescribeClientQuotasMatchPartial
KAFKAS = Definitions(
    {entity: {"request_percentage": 1.0} for entity in CLIENTS}
    | {entity: {"connection_creation_rate": 1.0} for entity in IPS}
)


def found(*components: Component, strict: bool) -> list[Entity]:
    return [entity for entity, _ in matching(KAFKAS, filter_of(components, strict))]


@pytest.mark.parametrize(
    ("components", "strict", "count"),
    [
        ([("user", EXACT, "user-1")], False, 3),
        ([("client-id", EXACT, "client-id-2")], False, 2),
        ([("user", DEFAULT_NAME, None)], False, 2),
        ([("user", EXACT, "user-2")], True, 1),
        ([("client-id", EXACT, "client-id-1")], True, 0),
        ([("user", ANY, None)], True, 4),
        ([("user", ANY, None)], False, 10),
        ([("client-id", ANY, None)], True, 1),
        ([("client-id", ANY, None)], False, 7),
        ([("ip", ANY, None)], False, 2),
        ([("ip", EXACT, "1.2.3.4")], True, 1),
        ([], False, 13),
        ([], True, 0),
        ([("user", EXACT, "user-1"), ("client-id", ANY, None)], True, 2),
        ([("user", ANY, None), ("client-id", ANY, None)], True, 6),
        ([("user", EXACT, "user-1"), ("client-id", DEFAULT_NAME, None)], True, 1),
        ([("user", EXACT, "unknown")], False, 0),
    ],
)
def test_matches_equal_kafkas(components: list[Component], strict: bool, count: int) -> None:
    assert len(found(*components, strict=strict)) == count


@pytest.mark.parametrize(
    ("components", "names"),
    [
        ([("topic", ANY, None)], ["t", DEFAULT]),
        ([("topic", EXACT, "t")], ["t"]),
        ([("topic", DEFAULT_NAME, None)], [DEFAULT]),
        ([("user", ANY, None)], [None]),
    ],
)
def test_topics_are_matched_as_the_others_are(components: list[Component], names: list[Name]) -> None:
    entities = (Entity(topic="t"), Entity(topic=DEFAULT), Entity("u"))
    definitions = Definitions({entity: {"producer_byte_rate": 1.0} for entity in entities})
    for strict in (True, False):
        matched = matching(definitions, filter_of(components, strict))
        assert [entity.topic for entity, _ in matched] == names


def test_name_that_is_spelled_as_the_default_matches_nothing() -> None:
    assert found(("user", EXACT, "<default>"), strict=True) == []


def test_match_shows_the_limits_of_the_entity() -> None:
    wanted = filter_of([("user", EXACT, "user-1")], True)
    assert list(matching(KAFKAS, wanted)) == [(Entity("user-1"), {"request_percentage": 1.0})]


def test_entries_may_come_from_a_slow_iterator() -> None:
    wanted = filter_of([("user", ANY, None)], True)
    few = list(KAFKAS.entries())[:7]
    assert [entity for entity, _ in matching(KAFKAS, wanted, iter(few))] == [Entity("user-1")]


@pytest.mark.parametrize(
    ("components", "text"),
    [
        ([("", EXACT, "a")], "Invalid empty entity type."),
        (
            [("user", EXACT, "a"), ("user", ANY, None)],
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("user", EXACT, None)], "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        (
            [("user", DEFAULT_NAME, "a")],
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        ([("user", ANY, "a")], "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 3, None)], "Unknown match type 3"),
        ([("user", -1, "a")], "Unknown match type -1"),
        (
            [("topic", ANY, None), ("client-id", ANY, None)],
            "Invalid entity filter component combination. Topic filter component should not be used with others.",
        ),
        (
            [("ip", ANY, None), ("client-id", ANY, None)],
            (
                "Invalid entity filter component combination. IP filter component should not be used with user "
                "or clientId filter component."
            ),
        ),
    ],
)
def test_invalid_filters_are_refused_as_kafka_does(components: list[Component], text: str) -> None:
    with pytest.raises(FilterError) as refused:
        filter_of(components, strict=False)
    assert str(refused.value) == text
    assert not refused.value.unsupported


def test_unknown_type_differs_from_an_invalid_request() -> None:
    with pytest.raises(FilterError, match="Unsupported entity type group") as refused:
        filter_of([("group", EXACT, "a")], strict=False)
    assert refused.value.unsupported
