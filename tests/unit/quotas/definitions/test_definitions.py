"""quotas.definitions.definitions: static settings, refusals, changes, the digest, candidates.

The order of precedence is in test_precedence.py.
"""

import gc
import math
import random
import tracemalloc
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.definitions.definitions import Definitions, StaticQuotas, candidates, match
from quotas.definitions.entities import DEFAULT, Entity, Name, code, entity_of
from quotas.errors import DefinitionError

RATE = "producer_byte_rate"
PERCENTAGE = "request_percentage"
CONNECTIONS = "connection_creation_rate"
AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
OF_ALL_KINDS = {
    Entity("u", "c"): {RATE: 1.0, PERCENTAGE: 2.0},
    Entity(topic="orders"): {RATE: 3.0},
    Entity(group="web"): {RATE: 4.0},
    Entity(client_id="web-*", group="web"): {"member": 1.0},
    Entity(capacity="broker"): {RATE: 9.0},
    Entity("night", when="hours=mon-sun"): {RATE: 5.0},
    Entity("night"): {RATE: 6.0},
    Entity("weekend", when="hours=mon-sun"): {RATE: 7.0},
}


def produce(rates: dict[tuple[Name, Name], float], static: StaticQuotas | None = None) -> Definitions:
    return Definitions({Entity(*names): {RATE: rate} for names, rate in rates.items()}, static)


def ask(definitions: Definitions, user: str, client_id: str) -> float | None:
    return definitions.limit(RATE, user, client_id)[0]


def test_static_settings_of_kip_13_hold_where_no_entry_does() -> None:
    static = StaticQuotas(producer_default=2e6, producer_override={"clientA": 4e6, "clientB": 10e6})
    definitions = produce({(None, "clientB"): 1e6}, static)
    assert ask(definitions, "", "x") == 2e6
    assert ask(definitions, "", "clientA") == 4e6
    assert ask(definitions, "", "clientB") == 1e6  # dynamic beats static
    assert definitions.limit("consumer_byte_rate", "", "x")[0] is None
    assert ask(produce({(None, DEFAULT): 3e6}, static), "", "x") == 3e6


def test_client_with_an_entry_is_recognised() -> None:
    definitions = produce({(None, DEFAULT): 1, (None, "a"): 2, ("u", DEFAULT): 3})
    assert definitions.names(RATE, "", "a")
    assert not definitions.names(RATE, "", "b")
    assert not definitions.names(RATE, "u", "b")
    assert not definitions.names("consumer_byte_rate", "", "a")


def test_definitions_are_compared_by_value() -> None:
    assert produce({("A", None): 1}) == produce({("A", None): 1}) != produce({})
    assert produce({}) != produce({}, StaticQuotas(producer_default=1))
    assert produce({}) != 5


@pytest.mark.parametrize(
    ("entity", "key", "value", "problem"),
    [
        (Entity(), RATE, 1, "names no user"),
        (Entity(client_id="a", ip="127.0.0.1"), CONNECTIONS, 1, "cannot be combined"),
        (Entity(client_id=""), RATE, 1, "must not be empty"),
        (Entity(client_id="a"), CONNECTIONS, 1, "is no limit of client_id"),
        (Entity(ip="127.0.0.1"), RATE, 1, "is no limit of ip"),
        (Entity(client_id="a"), RATE, 0, "greater than 0"),
        (Entity(client_id="a"), RATE, -1, "greater than 0"),
        (Entity(client_id="a"), "request_percentage", math.nan, "greater than 0"),
        (Entity(client_id="a"), RATE, 1.5, "whole number"),
        (Entity(client_id="a"), RATE, 5e-324, "whole number"),
        (Entity(client_id="a"), RATE, 2.0**64, "too large"),
        (Entity(client_id="a"), RATE, math.inf, "too large"),
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
    found = Definitions({Entity(ip="2001:db8::1"): {CONNECTIONS: 5}})
    found.put(Entity(ip="2001:DB8::0:1"), {CONNECTIONS: 9})
    assert dict(found.entries()) == {Entity(ip="2001:db8::1"): {CONNECTIONS: 9}}
    found.put(Entity(ip="2001:DB8::0:1"), {})
    assert (len(found), found.connection_rate("2001:db8::1")) == (0, None)


def test_drained_definitions_are_empty() -> None:
    found = Definitions({Entity("u", "c"): {RATE: 5}, Entity(client_id="d"): {RATE: 6}})
    assert len(list(found.drain())) == 3  # two entities, one user
    assert found == Definitions()
    assert not found.names_user("u")


def test_nothing_of_drained_definitions_is_taken() -> None:
    drained, found = Definitions(OF_ALL_KINDS), Definitions()
    drained.elapse(AT)
    assert list(drained.drain())
    found.take(drained)
    found.elapse(AT)
    assert (found, found.capacities, found.limited_topics) == (Definitions(), {}, ())
    assert not found.limits_topics(RATE)
    assert not any(found.has(key) for key in (RATE, PERCENTAGE, "member"))
    assert not found.names(RATE, "", "web-1")


def test_entries_that_are_taken_are_as_if_they_were_put() -> None:
    wanted, found, other = Definitions(OF_ALL_KINDS), Definitions(), Definitions(OF_ALL_KINDS)
    changed: list[str] = []
    found.changed = changed.append
    for definitions in (wanted, found):
        definitions.keep_digest()
    found.elapse(AT)
    found.take(other)
    for definitions in (wanted, found):
        definitions.elapse(AT)
    assert found == wanted
    assert (found.digest, found.capacities) == (wanted.digest, wanted.capacities)
    assert set(changed) == set(wanted.codes_in_force())
    assert found.limited_topics == wanted.limited_topics == ("orders",)
    assert [found.names_user(user) for user in ("u", "night", "v")] == [True, True, False]
    for user, client_id in (("u", "c"), ("night", "c"), ("", "web-1"), ("v", "c")):
        assert found.limit(RATE, user, client_id) == wanted.limit(RATE, user, client_id)
    assert found.limit(RATE, "night", "c")[0] == 5.0
    assert (len(other), other.limit(RATE, "u", "c")[0]) == (0, None)


def test_owner_of_a_copy_learns_which_entities_have_changed() -> None:
    definitions, changed = produce({(None, "a"): 1}), list[str]()
    definitions.changed = changed.append
    definitions.put(Entity(client_id="b"), {RATE: 2})
    definitions.put(Entity(client_id="a"), {})
    assert {text: definitions.limits(text) for text in changed} == {
        code(None, "b"): {RATE: 2.0},
        code(None, "a"): {},
    }
    assert definitions.codes() == [code(None, "b")]


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


NAMES = st.sampled_from([None, DEFAULT, "a", "b"])
LIMITS = st.integers(1, 100).map(lambda value: {RATE: value})


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
    found = match(definitions, RATE, user, client_id)
    limit, _ = definitions.limit(RATE, user, client_id)
    assert (None if found is None else found.value) == limit


def test_all_eight_levels_are_shown_in_kafkas_order() -> None:
    entities = [one.entity for one in candidates(Definitions(), RATE, "ann", "a")]
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


def test_catch_up_reads_have_their_own_ceiling_and_share_the_capacity_of_consumers() -> None:
    entries: dict[Entity, dict[str, float]] = {
        Entity(capacity="broker"): {"consumer_byte_rate": 80.0},
        Entity("ann"): {"catch_up_byte_rate": 10.0, "catch_up_byte_rate_ceiling": 40.0, "weight": 2.0},
    }
    definitions = Definitions(entries)
    assert definitions.capacity("catch_up_byte_rate") == definitions.capacity("consumer_byte_rate")
    _, bucket = definitions.limit("catch_up_byte_rate", "ann", "a")
    assert definitions.terms("catch_up_byte_rate", bucket) == (10.0, 40.0, 2.0, False)
    with pytest.raises(DefinitionError, match="catch_up_byte_rate"):
        definitions.put(Entity(capacity="broker"), {"catch_up_byte_rate": 1.0})


# ----------------------------------------------------------------------------------------------------
# Entries with times


NIGHT = "hours=22:00-06:00"
DECEMBER = "from=2026-12-01T00:00:00Z; until=2027-01-01T00:00:00Z"


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def timed() -> Definitions:
    return Definitions(
        {
            Entity(client_id="a"): {RATE: 1.0, PERCENTAGE: 5.0},
            Entity(client_id="a", when=NIGHT): {RATE: 2.0},
            Entity(client_id="a", when=DECEMBER): {RATE: 3.0, "consumer_byte_rate": 4.0},
        }
    )


def test_no_entry_with_times_holds_before_the_time_is_known() -> None:
    definitions = timed()
    assert ask(definitions, "", "a") == 1
    assert definitions.next_change is None


def test_entries_hold_at_their_times_and_the_latest_to_begin_decides_for_its_keys() -> None:
    definitions = timed()
    rates = {}
    for text in (
        "11-26 12:00",
        "11-26 22:00",
        "12-01 00:00",
        "12-01 05:59",
        "12-01 12:00",
        "12-01 23:00",
        "12-02 07:00",
    ):
        definitions.elapse(moment(f"2026-{text}"))
        rates[text] = definitions.in_force(code(None, "a"))
    assert [found[RATE] for found in rates.values()] == [1, 2, 3, 3, 3, 2, 3]
    assert {found[PERCENTAGE] for found in rates.values()} == {5}
    assert [found.get("consumer_byte_rate") for found in rates.values()] == [None, None, 4, 4, 4, 4, 4]


def test_times_that_come_and_go_take_no_memory() -> None:
    definitions = Definitions()
    definitions.elapse(moment("2026-11-26 12:00"))
    kept = Entity(client_id="kept", when="from=2098-01-01T00:00:00Z")
    definitions.put(kept, {RATE: 5.0})
    entity = Entity(client_id="a", when="from=2099-01-01T00:00:00Z")

    def come_and_go() -> None:
        for _ in range(1000):
            definitions.put(entity, {RATE: 5.0})
            definitions.put(entity, {})

    come_and_go()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(5):
        come_and_go()
    gc.collect()  # what waits for the collector is not kept, and is more or less by the tests before
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 50_000  # 5,000 boundaries take more than 300 kB
    assert definitions.next_change == moment("2098-01-01 00:00")
    definitions.elapse(moment("2099-01-01 00:00"))
    assert definitions.in_force(code(None, "kept")) == {RATE: 5.0}


def test_elapse_may_pause_between_entities() -> None:
    entries = {Entity(client_id=name, when="hours=sat"): {RATE: 5.0} for name in "ab"}
    definitions = Definitions(entries)
    paced: list[str] = []

    def pace(codes: Iterable[str]) -> Iterator[str]:
        for one in codes:
            paced.append(one)
            yield one

    assert definitions.elapse(moment("2026-11-28 12:00"), pace)
    assert paced == [code(None, "a"), code(None, "b")]
    assert [definitions.in_force(one) for one in paced] == [{RATE: 5.0}] * 2


def test_elapse_tells_whether_what_holds_has_changed_and_when_to_look_again() -> None:
    definitions = timed()
    assert not definitions.elapse(moment("2026-11-26 12:00"))
    assert definitions.next_change == moment("2026-11-26 22:00")
    assert not definitions.elapse(moment("2026-11-26 21:59"))
    revision = definitions.revision
    assert definitions.elapse(moment("2026-11-26 22:00"))
    assert definitions.revision > revision
    assert not definitions.elapse(moment("2026-11-26 22:01"))
    assert definitions.next_change == moment("2026-11-27 06:00")
    assert definitions.elapse(moment("2026-11-27 06:00"))


def test_clock_that_was_set_back_is_followed() -> None:
    definitions = timed()
    definitions.elapse(moment("2026-12-05 12:00"))
    assert ask(definitions, "", "a") == 3
    assert definitions.elapse(moment("2026-11-26 12:00"))
    assert ask(definitions, "", "a") == 1


def test_what_is_stated_stays_as_it_is_whatever_holds() -> None:
    definitions, other = timed(), timed()
    definitions.keep_digest()
    other.keep_digest()
    entries = dict(definitions.entries())
    definitions.elapse(moment("2026-12-05 12:00"))
    assert dict(definitions.entries()) == entries
    assert definitions == other
    assert definitions.digest == other.digest
    assert definitions.values(Entity(client_id="a")) == {RATE: 1, PERCENTAGE: 5}


def test_entity_may_have_limits_at_certain_times_alone() -> None:
    definitions = Definitions()
    definitions.elapse(moment("2026-11-26 23:00"))
    told: list[str] = []
    definitions.changed = told.append
    definitions.put(Entity("u", when=NIGHT), {RATE: 7.0})
    assert ask(definitions, "u", "x") == 7
    assert told == [code("u", None)]
    assert definitions.codes_in_force() == [code("u", None)]
    definitions.elapse(moment("2026-11-27 06:00"))
    assert ask(definitions, "u", "x") is None
    assert definitions.codes() == [code("u", None, when=NIGHT)]


def test_entry_with_times_that_is_removed_leaves_what_is_stated_without() -> None:
    definitions = timed()
    definitions.elapse(moment("2026-12-05 12:00"))
    definitions.put(Entity(client_id="a"), {RATE: 9.0})
    assert ask(definitions, "", "a") == 3
    definitions.put(Entity(client_id="a", when=DECEMBER), {})
    assert ask(definitions, "", "a") == 9
    definitions.put(Entity(client_id="a", when=NIGHT), {})
    assert definitions == Definitions({Entity(client_id="a"): {RATE: 9.0}})
    assert not definitions.elapse(moment("2026-12-05 23:00"))


def test_process_without_a_clock_has_what_holds_by_the_codes_in_force() -> None:
    definitions, worker = timed(), Definitions()
    definitions.elapse(moment("2026-12-05 12:00"))
    for text in definitions.codes_in_force():
        worker.put(entity_of(text), definitions.in_force(text))
    assert ask(worker, "", "a") == 3
    assert len(worker) == 1


def test_limit_that_changes_within_a_week_is_told_with_its_next_value() -> None:
    definitions, a = timed(), Entity(client_id="a")
    assert definitions.coming(a, RATE, moment("2026-11-26 12:00")) == (moment("2026-11-26 22:00"), 2)
    assert definitions.coming(a, RATE, moment("2026-11-26 23:00")) == (moment("2026-11-27 06:00"), 1)
    assert definitions.coming(a, RATE, moment("2026-12-05 12:00")) == (moment("2026-12-05 22:00"), 2)
    assert (
        definitions.coming(a, "consumer_byte_rate", moment("2026-12-05 12:00")) is None
    )  # later than in a week
    assert definitions.coming(a, PERCENTAGE, moment("2026-11-26 12:00")) is None
    assert definitions.coming(Entity(client_id="b"), RATE, moment("2026-11-26 12:00")) is None
    ends = Definitions({Entity(client_id="b", when="until=2026-11-27T00:00:00Z"): {RATE: 5.0}})
    assert ends.coming(Entity(client_id="b"), RATE, moment("2026-11-26 12:00")) == (
        moment("2026-11-27 00:00"),
        None,
    )
