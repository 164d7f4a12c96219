"""quotas.definitions.definitions: precedence as Kafka's own test has it (kafka-quotas.md §1.3), static settings,
refusals.
"""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.definitions.definitions import Definitions, StaticQuotas, candidates, match
from quotas.definitions.entities import DEFAULT, BucketKey, Entity, code
from quotas.definitions.kinds import CONNECTION_CREATION_RATE, CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from quotas.errors import DefinitionError
from tests.unit.quotas.definitions.kafkas_precedence import KAFKAS, Rates


def produce(rates: Rates, static: StaticQuotas | None = None) -> Definitions:
    entries = {
        Entity(user, client_id): {PRODUCER_BYTE_RATE: rate} for (user, client_id), rate in rates.items()
    }
    return Definitions(entries, static)


def ask(definitions: Definitions, user: str, client_id: str) -> tuple[float | None, BucketKey]:
    return definitions.limit(PRODUCER_BYTE_RATE, user, client_id)


def test_precedence_of_kafkas_own_test() -> None:
    # ClientQuotaManagerTest.testQuotaConfigPrecedence
    definitions = produce(KAFKAS)
    assert ask(definitions, "A", "c1") == (5000, BucketKey("A", "c1"))
    assert ask(definitions, "A", "c2") == (4000, BucketKey("A", None))
    assert ask(definitions, "A", "c3") == (4000, BucketKey("A", None))  # shared with c2
    assert ask(definitions, "B", "c1") == (7000, BucketKey("B", "c1"))
    assert ask(definitions, "B", "c2") == (8000, BucketKey("B", "c2"))
    assert ask(definitions, "B", "c3") == (8000, BucketKey("B", "c3"))  # each its own
    assert ask(definitions, "D", "c1") == (3000, BucketKey("D", "c1"))
    assert ask(definitions, "D", "c2") == (3000, BucketKey("D", "c2"))


def test_precedence_without_the_default_pair_falls_to_the_default_user() -> None:
    definitions = produce({key: rate for key, rate in KAFKAS.items() if key != (DEFAULT, DEFAULT)})
    assert ask(definitions, "D", "c1") == (1000, BucketKey("D", None))
    assert ask(definitions, "F", "c4") == ask(definitions, "F", "c5") == (1000, BucketKey("F", None))


def test_precedence_without_the_default_user_falls_to_the_client() -> None:
    rest = {key: rate for key, rate in KAFKAS.items() if key not in {(DEFAULT, DEFAULT), (DEFAULT, None)}}
    definitions = produce(rest)
    assert ask(definitions, "F", "c4") == (2000, BucketKey(None, "c4"))
    assert ask(definitions, "F", "c5") == ask(definitions, "G", "c5")  # shared by all users
    assert ask(definitions, "D", "c1") == (9000, BucketKey(None, "c1"))


def test_each_key_is_looked_up_by_itself() -> None:
    definitions = Definitions(
        {
            Entity("A", None): {CONSUMER_BYTE_RATE: 5},
            Entity(None, DEFAULT): {PRODUCER_BYTE_RATE: 7, CONSUMER_BYTE_RATE: 9},
        }
    )
    assert definitions.limit(CONSUMER_BYTE_RATE, "A", "x")[0] == 5
    assert definitions.limit(PRODUCER_BYTE_RATE, "A", "x")[0] == 7


def test_empty_client_id_takes_the_default_in_one_bucket() -> None:
    # KIP-13; Kafka leaves it unlimited (KAFKA-13341).
    definitions = produce({(None, DEFAULT): 2000})
    assert ask(definitions, "", "") == ask(definitions, "A", "") == (2000, BucketKey(None, ""))


def test_nothing_defined_is_unlimited() -> None:
    assert ask(Definitions(), "u", "c") == (None, BucketKey(None, "c"))


def test_client_without_user_is_judged_by_client_levels_alone() -> None:
    assert ask(produce({(DEFAULT, None): 1000}), "", "c") == (None, BucketKey(None, "c"))


def test_static_settings_of_kip_13_hold_where_no_entry_does() -> None:
    static = StaticQuotas(producer_default=2e6, producer_override={"clientA": 4e6, "clientB": 10e6})
    definitions = produce({(None, "clientB"): 1e6}, static)
    assert ask(definitions, "", "x")[0] == 2e6
    assert ask(definitions, "", "clientA")[0] == 4e6
    assert ask(definitions, "", "clientB")[0] == 1e6  # dynamic beats static
    assert definitions.limit(CONSUMER_BYTE_RATE, "", "x")[0] is None
    assert ask(produce({(None, DEFAULT): 3e6}, static), "", "x")[0] == 3e6


def test_client_with_an_entry_is_recognised() -> None:
    definitions = produce({(None, DEFAULT): 1, (None, "a"): 2, ("u", DEFAULT): 3})
    assert definitions.names(PRODUCER_BYTE_RATE, "", "a")
    assert not definitions.names(PRODUCER_BYTE_RATE, "", "b")
    assert not definitions.names(PRODUCER_BYTE_RATE, "u", "b")
    assert not definitions.names(CONSUMER_BYTE_RATE, "", "a")


def test_definitions_are_compared_by_value() -> None:
    assert produce(KAFKAS) == produce(dict(KAFKAS))
    assert produce(KAFKAS) != produce({})
    assert produce({}) != produce({}, StaticQuotas(producer_default=1))
    assert produce({}) != 5


def test_definitions_copy_their_arguments() -> None:
    values: dict[str, float] = {PRODUCER_BYTE_RATE: 1}
    definitions = Definitions({Entity(None, "a"): values})
    values[PRODUCER_BYTE_RATE] = 2
    assert dict(definitions.entries())[Entity(None, "a")] == {PRODUCER_BYTE_RATE: 1}
    assert len(definitions) == 1


@pytest.mark.parametrize(
    ("entity", "key", "value", "problem"),
    [
        (Entity(), PRODUCER_BYTE_RATE, 1, "names no user"),
        (Entity(client_id="a", ip="127.0.0.1"), "connection_creation_rate", 1, "cannot be combined"),
        (Entity(client_id=""), PRODUCER_BYTE_RATE, 1, "must not be empty"),
        (Entity(client_id="a"), "connection_creation_rate", 1, "is no limit of client_id"),
        (Entity(ip="127.0.0.1"), PRODUCER_BYTE_RATE, 1, "is no limit of ip"),
        (Entity(client_id="a"), PRODUCER_BYTE_RATE, 0, "greater than 0"),
        (Entity(client_id="a"), PRODUCER_BYTE_RATE, -1, "greater than 0"),
        (Entity(client_id="a"), "request_percentage", math.nan, "greater than 0"),
        (Entity(client_id="a"), PRODUCER_BYTE_RATE, 1.5, "whole number"),
        (Entity(client_id="a"), PRODUCER_BYTE_RATE, 5e-324, "whole number"),
        (Entity(client_id="a"), PRODUCER_BYTE_RATE, 2.0**64, "too large"),
        (Entity(client_id="a"), PRODUCER_BYTE_RATE, math.inf, "too large"),
    ],
)
def test_definition_that_cannot_be_is_refused(entity: Entity, key: str, value: float, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Definitions({entity: {key: value}})


def test_static_setting_that_cannot_be_names_its_key() -> None:
    with pytest.raises(DefinitionError, match=r"producer_override\.a: must be greater than 0"):
        Definitions(static=StaticQuotas(producer_override={"a": 0}))
    with pytest.raises(DefinitionError, match="consumer_default: must be greater than 0"):
        Definitions(static=StaticQuotas(consumer_default=-1))


def test_two_spellings_of_an_address_are_one_entity() -> None:
    found = Definitions({Entity(ip="2001:db8::1"): {CONNECTION_CREATION_RATE: 5}})
    found.put(Entity(ip="2001:DB8::0:1"), {CONNECTION_CREATION_RATE: 9})
    assert dict(found.entries()) == {Entity(ip="2001:db8::1"): {CONNECTION_CREATION_RATE: 9}}
    found.put(Entity(ip="2001:DB8::0:1"), {})
    assert (len(found), found.connection_rate("2001:db8::1")) == (0, None)


def test_drained_definitions_are_empty() -> None:
    found = Definitions(
        {Entity("u", "c"): {PRODUCER_BYTE_RATE: 5}, Entity(client_id="d"): {PRODUCER_BYTE_RATE: 6}}
    )
    assert len(list(found.drain())) == 3  # two entities, one user
    assert found == Definitions()
    assert not found.names_user("u")


def test_owner_of_a_copy_learns_which_entities_have_changed() -> None:
    definitions, changed = produce({(None, "a"): 1}), list[str]()
    definitions.changed = changed.append
    definitions.put(Entity(client_id="b"), {PRODUCER_BYTE_RATE: 2})
    definitions.put(Entity(client_id="a"), {})
    assert {text: definitions.limits(text) for text in changed} == {
        code(None, "b"): {PRODUCER_BYTE_RATE: 2.0},
        code(None, "a"): {},
    }
    assert definitions.codes() == [code(None, "b")]


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


KEY = "producer_byte_rate"
NAMES = st.sampled_from([None, DEFAULT, "a", "b"])
LIMITS = st.integers(1, 100).map(lambda value: {KEY: value})


@given(
    st.dictionaries(
        st.tuples(NAMES, NAMES).filter(any).map(lambda names: Entity(*names)), LIMITS, max_size=12
    ),
    st.none() | st.integers(1, 100),
    st.dictionaries(st.sampled_from("ab"), st.integers(1, 100)),
    st.sampled_from(["", "a", "b", "c"]),
    st.sampled_from(["", "a", "b", "c"]),
)
def test_match_has_the_limit_that_traffic_gets(
    entries: dict[Entity, dict[str, float]],
    default: float | None,
    override: dict[str, float],
    user: str,
    client_id: str,
) -> None:
    definitions = Definitions(entries, StaticQuotas(producer_default=default, producer_override=override))
    found = match(definitions, KEY, user, client_id)
    limit, _ = definitions.limit(KEY, user, client_id)
    assert (None if found is None else found.value) == limit


def test_all_eight_levels_are_shown_in_kafkas_order() -> None:
    entities = [one.entity for one in candidates(Definitions(), KEY, "ann", "a")]
    assert entities == [
        Entity("ann", "a"),
        Entity("ann", DEFAULT),
        Entity("ann"),
        Entity(DEFAULT, "a"),
        Entity(DEFAULT, DEFAULT),
        Entity(DEFAULT),
        Entity(client_id="a"),
        Entity(client_id=DEFAULT),
    ]


def test_client_without_a_user_has_two_levels() -> None:
    entities = [one.entity for one in candidates(Definitions(), KEY, "", "a")]
    assert entities == [Entity(client_id="a"), Entity(client_id=DEFAULT)]
