"""quotas.definitions.definitions, and the digest that definitions keep."""

import random

import pytest

from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import DEFAULT, Entity

RATE = "producer_byte_rate"
PERCENTAGE = "request_percentage"
ENTRIES: dict[Entity, dict[str, float]] = {
    Entity("ann"): {RATE: 5.0, PERCENTAGE: 1.5},
    Entity("ann", "app"): {RATE: 6},
    Entity(client_id=DEFAULT): {RATE: 7},
    Entity(client_id="\ud800"): {RATE: 7},
    Entity(topic="orders"): {RATE: 8},
}


def digest_of(definitions: Definitions) -> str:
    definitions.keep_digest()
    return definitions.digest


def test_digest_is_kept_only_where_it_is_asked_for() -> None:
    assert Definitions(ENTRIES).digest == ""
    assert len(digest_of(Definitions())) == 16


def test_digest_does_not_depend_on_the_order_and_the_way() -> None:
    shuffled = list(ENTRIES.items())
    random.shuffle(shuffled)
    followed = Definitions({Entity("ann"): {RATE: 1.0}, Entity("eve"): {RATE: 1.0}})
    followed.keep_digest()
    followed.put(Entity("eve"), {})
    for entity, values in shuffled:
        followed.put(entity, values)
    assert followed.digest == digest_of(Definitions(ENTRIES)) == digest_of(Definitions(dict(shuffled)))


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        (Entity("ann"), {RATE: 5.0}),
        (Entity("ann"), {RATE: 5.0, PERCENTAGE: 1.6}),
        (Entity("ann"), {}),
        (Entity("bob"), {RATE: 5.0}),
        (Entity(DEFAULT), {RATE: 5.0}),
    ],
)
def test_every_change_changes_the_digest_and_its_undoing_brings_it_back(
    entity: Entity, values: dict[str, float]
) -> None:
    definitions = Definitions(ENTRIES)
    before = digest_of(definitions)
    definitions.put(entity, values)
    assert definitions.digest != before
    definitions.put(entity, ENTRIES.get(entity, {}))
    assert definitions.digest == before


def test_limits_that_two_entities_exchange_change_the_digest() -> None:
    one = Definitions({Entity("a"): {RATE: 1}, Entity("b"): {RATE: 2}})
    other = Definitions({Entity("a"): {RATE: 2}, Entity("b"): {RATE: 1}})
    assert digest_of(one) != digest_of(other)


def test_static_settings_are_part_of_the_digest() -> None:
    statics = [
        StaticQuotas(),
        StaticQuotas(producer_default=5),
        StaticQuotas(consumer_default=5),
        StaticQuotas(producer_override={"None": 5}),
        StaticQuotas(producer_override={"a": 5}),
    ]
    assert len({digest_of(Definitions(ENTRIES, static)) for static in statics}) == len(statics)
    followed = Definitions(ENTRIES)
    followed.keep_digest()
    for static in reversed(statics):
        followed.static = static
        assert followed.digest == digest_of(Definitions(ENTRIES, static))
