"""quotas.definitions.alterations: Kafka's own oracle of what matches (kafka-quotas.md §6.2), and what it refuses."""

import pytest

from quotas.definitions.alterations import (
    ANY,
    DEFAULT_NAME,
    EXACT,
    Component,
    FilterError,
    filter_of,
    matching,
)
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity, Name

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
