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
    FilterError,
    Parts,
    Quotas,
    alter,
    alterations,
    differences,
    filter_of,
    matching,
)
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity, Name

USER: Parts = [("user", "ann")]
TOPIC: Parts = [("topic", "t")]
RATE = [("producer_byte_rate", 1000.0)]
PRODUCE, CONSUME, CONNECT = "producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"
COMBINATION = "Invalid quota entity combination, "


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
        ([("team", "a")], "Unhandled client quota entity type: team"),
        ([("user", "a"), ("user", "b")], "Invalid client quota entity, duplicate entity entry user"),
        ([("user", "")], "Empty user not supported"),
        ([("user", "a"), ("client-id", "")], "Empty client-id not supported"),
        (
            [("ip", "::1"), ("user", "a")],
            COMBINATION + "IP entity should not be combined with User or ClientId",
        ),
        ([("topic", "t"), ("user", "a")], COMBINATION + "topic should not be combined with other types"),
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
        (USER, "unknown", 1, "Invalid configuration key {}"),
        # Of a user alone, or the default user, it is taken: Kafka refuses it for them too.
        ([("user", "u"), ("client-id", None)], CONNECT, 1, "Invalid configuration key {}"),
        ([("client-id", "c")], CONNECT, 1, "Invalid configuration key {}"),
        (TOPIC, "request_percentage", 1, "Invalid configuration key {}"),
        (TOPIC, CONNECT, 1, "Invalid configuration key {}"),
        ([("ip", "::1")], PRODUCE, 1, "Invalid configuration key {}"),
        ([("topic", None)], PRODUCE, 0.5, "{} cannot be a fractional value."),
        (USER, CONSUME, 10.5, "{} cannot be a fractional value."),
        (USER, CONSUME, 1e-7, "{} cannot be a fractional value."),
        (USER, PRODUCE, 0, "Quota {} must be greater than 0"),
        (USER, PRODUCE, math.nan, "Quota {} must be greater than 0"),
        (USER, "request_percentage", -1, "Quota {} must be greater than 0"),
        (USER, "request_percentage", math.nan, "Quota {} must be greater than 0"),
        (USER, "request_percentage", -math.inf, "Quota {} must be greater than 0"),
        (USER, PRODUCE, 1e19, "Proposed value for {} is too large for a LONG."),
        (USER, PRODUCE, math.inf, "Proposed value for {} is too large for a LONG."),
        ([("ip", None)], CONNECT, 2.0**31, "Proposed value for {} is too large for an INT."),
        (USER, "request_percentage", math.inf, "Proposed value for {} is too large."),
        (USER, "controller_mutation_rate", 1e300, "Proposed value for {} is too large."),
    ],
)
def test_invalid_values_are_refused(parts: Parts, key: str, value: float, text: str) -> None:
    assert problem(parts, (key, value)) == text.format(key)


def test_name_that_the_file_could_not_hold_is_refused() -> None:
    assert "spells the default entity so" in problem([("user", "<default>")], *RATE)


@pytest.mark.parametrize(
    ("parts", "entity", "key"),
    [
        ([("user", None)], Entity(DEFAULT), PRODUCE),
        ([("client-id", "c"), ("user", "u")], Entity("u", "c"), PRODUCE),
        ([("client-id", None), ("user", None)], Entity(DEFAULT, DEFAULT), PRODUCE),
        ([("topic", "t")], Entity(topic="t"), PRODUCE),
        ([("topic", None)], Entity(topic=DEFAULT), PRODUCE),
        ([("ip", "127.0.0.1")], Entity(ip="127.0.0.1"), CONNECT),
        ([("ip", "::1")], Entity(ip="::1"), CONNECT),
        ([("ip", None)], Entity(ip=DEFAULT), CONNECT),
    ],
)
def test_valid_entities_are_accepted(parts: Parts, entity: Entity, key: str) -> None:
    outcome = alter(Definitions(), [(parts, [(key, 5.0)])])
    assert outcome == ([(parts, "")], {entity: {key: 5.0}}, {entity: {}})


def test_nearly_integral_values_are_valid() -> None:
    # Kafka allows for a part of 1e-6 that its clients' arithmetic may have left.
    assert alter(Definitions(), [(USER, [("producer_byte_rate", 1000.0000005)])]).changes == {
        Entity("ann"): {"producer_byte_rate": 1000.0}
    }


SET = Definitions({Entity("ann"): {"producer_byte_rate": 1000.0, "request_percentage": 50.0}})


@pytest.mark.parametrize(
    ("ops", "changed"),
    [
        ([(PRODUCE, None), (CONSUME, 5.0)], {"request_percentage": 50.0, CONSUME: 5.0}),
        ([(PRODUCE, None), ("request_percentage", None)], {}),
        ([], None),
        ([(PRODUCE, 1000.0)], None),
        ([(CONSUME, None)], None),
        ([("unknown", None)], None),
    ],
)
def test_ops_change_and_remove_their_keys(ops: list[tuple[str, float | None]], changed: object) -> None:
    outcome = alter(SET, [(USER, ops)])
    assert outcome.results == [(USER, "")]
    assert outcome.changes == ({} if changed is None else {Entity("ann"): changed})
    assert SET.values(Entity("ann"))[PRODUCE] == 1000  # nothing is applied here


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


A, B, C = Entity(client_id="a"), Entity(client_id="b"), Entity("c", DEFAULT)
CURRENT = {A: {"x": 1.0, "y": 2.0}, B: {"x": 3.0}}
WANTED = {C: {"z": 5.0}, A: {"x": 1.0, "y": 4.0}}


@pytest.mark.parametrize(
    ("current", "wanted", "prune", "found"),
    [
        (CURRENT, WANTED, False, [(C, "z", None, 5.0), (A, "y", 2.0, 4.0)]),
        (CURRENT, WANTED, True, [(C, "z", None, 5.0), (A, "y", 2.0, 4.0), (B, "x", 3.0, None)]),
        (CURRENT, {A: {"x": 1.0}}, False, [(A, "y", 2.0, None)]),
        (WANTED, WANTED, True, []),
    ],
    ids=["the file's entities alone", "pruned", "a limit that is not wanted", "a second run"],
)
def test_differences_are_changes_and_then_removals(
    current: Quotas, wanted: Quotas, prune: bool, found: list[object]
) -> None:
    assert differences(current, wanted, prune=prune) == found


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
        ([("user", EXACT, "<default>")], True, 0),
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


def test_match_shows_the_limits_of_the_entity() -> None:
    wanted = filter_of([("user", EXACT, "user-1")], True)
    assert list(matching(KAFKAS, wanted)) == [(Entity("user-1"), {"request_percentage": 1.0})]


def test_entries_may_come_from_a_slow_iterator() -> None:
    wanted = filter_of([("user", ANY, None)], True)
    few = list(KAFKAS.entries())[:7]
    assert [entity for entity, _ in matching(KAFKAS, wanted, iter(few))] == [Entity("user-1")]


INVALID = "Invalid entity filter component combination. "


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
            INVALID + "Topic filter component should not be used with others.",
        ),
        (
            [("ip", ANY, None), ("client-id", ANY, None)],
            INVALID + "IP filter component should not be used with user or clientId filter component.",
        ),
    ],
)
def test_invalid_filters_are_refused_as_kafka_does(components: list[Component], text: str) -> None:
    with pytest.raises(FilterError) as refused:
        filter_of(components, strict=False)
    assert str(refused.value) == text
    assert not refused.value.unsupported


def test_unknown_type_differs_from_an_invalid_request() -> None:
    with pytest.raises(FilterError, match="Unsupported entity type team") as refused:
        filter_of([("team", EXACT, "a")], strict=False)
    assert refused.value.unsupported


# ----------------------------------------------------------------------------------------------------
# Groups, capacities, terms and times, which Kafka does not have

WEB = [("client-id", "web-*"), ("group", "web")]
JOIN = [("member", 1.0)]


def grouped() -> Definitions:
    return Definitions(
        {
            Entity(client_id="web-*", group="web"): {"member": 1.0},
            Entity(group="web"): {PRODUCE: 5.0, "producer_byte_rate_ceiling": 9.0, "weight": 2.0},
            Entity("ann"): {PRODUCE: 5.0, "producer_byte_rate_ceiling": 9.0},
            Entity("ann", when="hours=sat"): {PRODUCE: 6.0},
            Entity("exempt"): {"exempt": 1.0},
            Entity(capacity="broker"): {PRODUCE: 100.0},
        }
    )


@pytest.mark.parametrize(
    ("parts", "ops", "text"),
    [
        (
            [("client-id", "web-1"), ("group", "ops")],
            JOIN,
            "'web-*' of group 'web' and 'web-1' of group 'ops'",
        ),
        ([("client-id", "w*"), ("group", "ops")], JOIN, "'w*' of group 'ops' and 'web-*' of group 'web'"),
        ([("client-id", "a*b"), ("group", "ops")], JOIN, "'a*b': * may only stand at the end"),
        (WEB, [(PRODUCE, 5.0)], "Invalid configuration key producer_byte_rate"),
        ([("group", None)], [(PRODUCE, 5.0)], "there is no default group"),
        (
            [("capacity", "cluster")],
            [(PRODUCE, 5.0)],
            "producer_byte_rate is the capacity of scope 'broker' already",
        ),
        ([("capacity", "rack")], [(PRODUCE, 5.0)], "'rack' must be one of broker, cluster"),
        (
            [("user", "ann")],
            [(PRODUCE, 10.0)],
            "producer_byte_rate_ceiling 9 must be at least producer_byte_rate",
        ),
        ([("user", "ann")], [("weight", 0.0)], "weight must be greater than 0"),
        ([("user", "ann")], [("exempt", 0.5)], "exempt must be 1"),
        ([("user", "ann"), ("when", "hours=SAT")], [(PRODUCE, 10.0)], "must be spelled 'hours=sat'"),
    ],
)
def test_what_contradicts_itself_or_others_is_refused(
    parts: Parts, ops: list[tuple[str, float | None]], text: str
) -> None:
    assert text in problem(parts, *ops, definitions=grouped())


def test_name_moves_to_another_group_in_one_request() -> None:
    definitions = grouped()
    outcome = alter(
        definitions, [([("client-id", "web-*"), ("group", "ops")], JOIN), (WEB, [("member", None)])]
    )
    assert [text for _, text in outcome.results] == ["", ""]
    assert outcome.changes == {
        Entity(client_id="web-*", group="ops"): {"member": 1.0},
        Entity(client_id="web-*", group="web"): {},
    }


def test_capacity_moves_to_another_scope_in_one_request() -> None:
    there, here = [("capacity", "cluster")], [("capacity", "broker")]
    outcome = alter(grouped(), [(there, [(PRODUCE, 5.0)]), (here, [(PRODUCE, None)])])
    assert [text for _, text in outcome.results] == ["", ""]
    assert len(outcome.changes) == 2


def test_of_two_members_in_one_request_that_name_the_same_clients_the_second_is_refused() -> None:
    outcome = alter(Definitions(), [(WEB, JOIN), ([("client-id", "web-1"), ("group", "ops")], JOIN)])
    assert [bool(text) for _, text in outcome.results] == [False, True]
    assert list(outcome.changes) == [Entity(client_id="web-*", group="web")]


def test_ten_thousand_members_are_looked_at_together() -> None:
    members = [([("client-id", f"c{number}"), ("group", "g")], JOIN) for number in range(10_000)]
    assert not any(text for _, text in alter(Definitions(), members).results)
    outcome = alter(grouped(), [*members, ([("client-id", "web-1"), ("group", "g")], JOIN)])
    assert {text for _, text in outcome.results} == {
        "'web-*' of group 'web' and 'web-1' of group 'g' name the same clients; a client may be in one group only"
    }
    assert not outcome.changes


def test_ceiling_that_is_below_its_rate_already_refuses_no_other_change() -> None:
    below = {PRODUCE: 9.0, "producer_byte_rate_ceiling": 5.0}  # as records of a topic may make it
    definitions = Definitions({Entity("ann"): below})
    outcome = alter(definitions, [([("user", "ann")], [("request_percentage", 50.0)])])
    assert outcome.changes == {Entity("ann"): {**below, "request_percentage": 50.0}}
    assert problem([("user", "ann")], (PRODUCE, 8.0), definitions=definitions)


def test_rate_that_is_removed_leaves_the_ceiling() -> None:
    outcome = alter(grouped(), [([("user", "ann")], [(PRODUCE, None)])])
    assert outcome.changes == {Entity("ann"): {"producer_byte_rate_ceiling": 9.0}}


def test_kafkas_tools_see_kafkas_entities_and_keys_alone() -> None:
    definitions = grouped()
    assert list(matching(definitions, filter_of([], strict=False))) == [(Entity("ann"), {PRODUCE: 5.0})]
    assert not list(matching(definitions, filter_of([("user", EXACT, "exempt")], strict=True)))
    assert list(matching(definitions, filter_of([("sluice", ANY, None)], strict=False))) == list(
        definitions.entries()
    )
    group = filter_of([("group", EXACT, "web"), ("sluice", ANY, None)], strict=True)
    assert [entity for entity, _ in matching(definitions, group)] == [Entity(group="web")]
    saturday = filter_of(
        [("user", EXACT, "ann"), ("when", EXACT, "hours=sat"), ("sluice", ANY, None)], strict=True
    )
    assert list(matching(definitions, saturday)) == [(Entity("ann", when="hours=sat"), {PRODUCE: 6.0})]
