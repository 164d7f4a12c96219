"""quotas.definitions.classes: the terms of a class, and the bucket of a client with groups, ceilings, exemptions."""

import pytest

from quotas.definitions.classes import UNPROMISED, Capacity, Terms
from quotas.definitions.definitions import Definitions, StaticQuotas, match
from quotas.definitions.entities import DEFAULT, BucketKey, Entity
from quotas.errors import DefinitionError

RATE = "producer_byte_rate"
READ = "consumer_byte_rate"
CEILING = "producer_byte_rate_ceiling"
BROKER = Entity(capacity="broker")
OTHERS = Entity(client_id=DEFAULT)
MEMBER = {"member": 1.0}
WEB = Entity(group="web")
MEMBERS = {Entity(client_id="web-*", group="web"): MEMBER, Entity("svc", group="web"): MEMBER}

Entries = dict[Entity, dict[str, float]]


def found(entries: Entries, user: str, client_id: str, key: str = RATE) -> tuple[BucketKey, Terms]:
    """Return the bucket and the terms of a client where the capacity of producers is 100."""
    definitions = Definitions({BROKER: {RATE: 100}, **entries})
    limit, bucket = definitions.limit(key, user, client_id)
    applies = match(definitions, key, user, client_id)
    assert limit == (None if applies is None else applies.value)
    terms = definitions.terms(key, bucket)
    assert limit == (terms.rate or None)
    return bucket, terms


def test_capacities_are_of_one_scope_a_direction_and_go_with_their_entity() -> None:
    definitions = Definitions({BROKER: {RATE: 100}})
    assert definitions.capacities == {RATE: Capacity(100, cluster=False)}
    definitions.put(Entity(capacity="cluster"), {RATE: 500, READ: 700})  # two records of a topic may meet
    assert definitions.capacity(RATE) == Capacity(100, cluster=False)
    assert definitions.capacity(READ) == Capacity(700, cluster=True)
    definitions.put(BROKER, {})
    assert definitions.capacity(RATE) == Capacity(500, cluster=True)


def test_ceiling_is_the_rate_without_one_and_the_capacity_without_either() -> None:
    entries: Entries = {
        Entity(client_id="a"): {RATE: 10, CEILING: 40, "weight": 2},
        Entity(client_id="b"): {RATE: 10},
        Entity(client_id="c"): {CEILING: 30},
    }
    assert [found(entries, "", name)[1] for name in "abcd"] == [
        Terms(10, 40, 2),
        Terms(10, 10),
        Terms(0, 30),
        Terms(0, 100),
    ]


def test_ceiling_without_a_rate_hides_the_defaults_rate_and_a_weight_does_not() -> None:
    entries: Entries = {
        OTHERS: {RATE: 10, CEILING: 20, "weight": 3},
        Entity("ann"): {CEILING: 50},
        Entity(client_id="w"): {"weight": 5},
    }
    assert found(entries, "ann", "a") == (BucketKey("ann", None), Terms(0, 50))
    assert found(entries, "", "w") == (BucketKey(None, "w"), Terms(10, 20, 5))
    assert found(entries, "", "a") == (BucketKey(None, "a"), Terms(10, 20, 3))


def test_weight_alone_makes_a_class_where_nothing_is_promised() -> None:
    assert found({Entity("ann"): {"weight": 5}}, "ann", "a") == (BucketKey("ann", None), Terms(0, 100, 5))


def test_exempt_is_its_own_class_whatever_the_defaults_promise() -> None:
    entries: Entries = {OTHERS: {RATE: 10}, Entity("ops"): {"exempt": 1}}
    assert found(entries, "ops", "a") == (BucketKey("ops", None), Terms(0, 100, exempt=True))
    assert found(entries, "ann", "a")[1] == Terms(10, 10)


def test_clients_without_a_promise_are_one_class_unless_they_are_named_or_exempt() -> None:
    definitions = Definitions(
        {
            BROKER: {RATE: 100},
            Entity(DEFAULT): {"exempt": 1},
            Entity(client_id=DEFAULT): {CEILING: 50},
            Entity(client_id="w"): {"weight": 5},
            Entity(client_id="c"): {CEILING: 50},
        }
    )

    def class_of(user: str, client_id: str) -> BucketKey:
        return definitions.class_of(RATE, *definitions.limit(RATE, user, client_id))

    assert class_of("ann", "a") == BucketKey("ann", None)
    assert class_of("", "c") == BucketKey(None, "c")
    assert class_of("", "a") == UNPROMISED
    # A weight decides nothing, so the default's ceiling does; the class is the client's own all the same.
    assert class_of("", "w") == BucketKey(None, "w")
    assert definitions.terms(RATE, class_of("", "w")) == Terms(0, 50, 5)


def test_without_a_capacity_of_the_direction_terms_decide_nothing() -> None:
    entries: Entries = {OTHERS: {READ: 10}, Entity("ops"): {"exempt": 1, "consumer_byte_rate_ceiling": 50}}
    assert found(entries, "ops", "a", READ)[0] == BucketKey(None, "a")
    assert Definitions(entries).limit(READ, "ops", "a") == (10, BucketKey(None, "a"))


def test_ceiling_in_force_is_never_below_the_rate() -> None:
    assert found({OTHERS: {RATE: 10, CEILING: 5}}, "", "a")[1] == Terms(10, 10)


def test_group_has_one_bucket_for_users_and_client_ids() -> None:
    entries: Entries = {**MEMBERS, WEB: {RATE: 10, CEILING: 40, "weight": 2}, OTHERS: {RATE: 1}}
    terms = Terms(10, 40, 2)
    group = BucketKey(None, None, "web")
    assert found(entries, "", "web-1") == found(entries, "ann", "web-2") == (group, terms)
    assert found(entries, "svc", "x") == (group, terms)
    assert found(entries, "ann", "x") == (BucketKey(None, "x"), Terms(1, 1))


def test_each_of_a_group_has_a_bucket_of_its_own() -> None:
    entries: Entries = {**MEMBERS, WEB: {RATE: 10, CEILING: 40, "each": 1}, OTHERS: {RATE: 1}}
    assert found(entries, "ann", "web-1") == (BucketKey(None, "web-1"), Terms(10, 40))
    assert found(entries, "svc", "x") == found(entries, "svc", "y") == (BucketKey("svc", None), Terms(10, 40))


# What decides for the client (ann, web-1), in the order in which it does; the user's group goes before the client id's.
ORDER: list[tuple[Entity, BucketKey]] = [
    (Entity("ann", "web-1"), BucketKey("ann", "web-1")),
    (Entity("ann", DEFAULT), BucketKey("ann", "web-1")),
    (Entity("ann"), BucketKey("ann", None)),
    (Entity(DEFAULT, "web-1"), BucketKey("ann", "web-1")),
    (Entity(client_id="web-1"), BucketKey(None, "web-1")),
    (Entity(group="people"), BucketKey(None, None, "people")),
    (Entity(group="web"), BucketKey(None, None, "web")),
    (Entity(DEFAULT, DEFAULT), BucketKey("ann", "web-1")),
    (Entity(DEFAULT), BucketKey("ann", None)),
    (Entity(client_id=DEFAULT), BucketKey(None, "web-1")),
]
IN_GROUPS = {Entity("ann", group="people"): MEMBER, Entity(client_id="web-*", group="web"): MEMBER}


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_own_entities_go_before_groups_and_groups_before_defaults(first: int) -> None:
    definitions = Definitions(
        {
            **IN_GROUPS,
            **{entity: {RATE: float(1 + place)} for place, (entity, _) in enumerate(ORDER) if place >= first},
        }
    )
    assert definitions.limit(RATE, "ann", "web-1") == (1 + first, ORDER[first][1])


def test_static_settings_stand_with_the_client_id_and_its_default() -> None:
    static = StaticQuotas(producer_default=9, producer_override={"web-1": 7})
    entries: Entries = {**IN_GROUPS, WEB: {RATE: 5}}
    definitions = Definitions(entries, static)
    assert definitions.limit(RATE, "", "web-1") == (7, BucketKey(None, "web-1"))
    assert definitions.limit(RATE, "", "web-2") == (5, BucketKey(None, None, "web"))
    assert definitions.limit(RATE, "", "x") == (9, BucketKey(None, "x"))


def test_group_without_a_limit_for_the_key_leaves_kafkas_order() -> None:
    entries: Entries = {
        **IN_GROUPS,
        WEB: {READ: 5},
        Entity(DEFAULT): {RATE: 1},
        Entity(client_id="web-1"): {RATE: 2},
    }
    definitions = Definitions(entries)
    assert definitions.limit(RATE, "bob", "web-1") == (1, BucketKey("bob", None))  # level 6 before 7
    definitions.put(WEB, {RATE: 5})
    assert definitions.limit(RATE, "bob", "web-1") == (2, BucketKey(None, "web-1"))
    assert definitions.limit(RATE, "bob", "x") == (1, BucketKey("bob", None))  # in no group


def test_exact_member_has_an_entry_of_its_own_and_a_prefix_has_not() -> None:
    definitions = Definitions({**MEMBERS, Entity(client_id="front", group="web"): MEMBER})
    assert definitions.names(RATE, "", "front")
    assert not definitions.names(RATE, "", "web-1")
    assert definitions.names_user("svc")


@pytest.mark.parametrize(
    ("entity", "values", "message"),
    [
        (Entity(client_id="a", group="g"), {RATE: 1}, "is no limit of client_id and group"),
        (Entity(client_id=DEFAULT, group="g"), MEMBER, "the default entity is in no group"),
        (Entity("u", "c", group="g"), MEMBER, "a user or a client_id, not both"),
        (Entity(client_id="a*b", group="g"), MEMBER, r"\* may only stand at the end"),
        (Entity(client_id="*", group="g"), MEMBER, "names every client"),
        (Entity(group="g", topic="t"), {RATE: 1}, "cannot be combined"),
        (Entity(group=""), {RATE: 1}, "must not be empty"),
        (Entity(group="<default>"), {RATE: 1}, "there is no default group"),
        (Entity(capacity="rack"), {RATE: 1}, "must be one of broker, cluster"),
        (Entity(capacity="broker", user="u"), {RATE: 1}, "cannot be combined"),
        (Entity(capacity="broker"), {"weight": 1}, "is no limit of capacity"),
        (Entity(capacity="broker", when="hours=sat"), {RATE: 1}, "has no times"),
        (Entity("u", group="g", when="hours=sat"), MEMBER, "has no times"),
        (Entity(when="hours=sat"), {RATE: 1}, "names no user"),
        (Entity("u", when="hours=SAT"), {RATE: 1}, "must be spelled 'hours=sat'"),
        (Entity("u", when="hours=never"), {RATE: 1}, "must be as in"),
        (Entity("u"), {"weight": 2e6}, "must be at most 1000000"),
        (Entity("u"), {"weight": 0}, "must be greater than 0"),
        (Entity("u"), {"exempt": 2}, "must be 1"),
        (Entity("u"), {CEILING: 1.5}, "whole number"),
        (Entity(topic="t"), {CEILING: 1}, "is no limit of topic"),
        (Entity(ip="10.0.0.1"), {"exempt": 1}, "is no limit of ip"),
        (Entity(group="g", when="hours=sat"), {"each": 1}, "is no limit of group and when"),
    ],
)
def test_what_cannot_be_is_refused(entity: Entity, values: dict[str, float], message: str) -> None:
    definitions = Definitions()
    with pytest.raises(DefinitionError, match=message):
        definitions.put(entity, values, "x")
    assert len(definitions) == 0
