"""`matching` says why `Definitions.limit` returns what it does."""

from hypothesis import given
from hypothesis import strategies as st

from quotas.definitions.definitions import Definitions, StaticQuotas, candidates, match
from quotas.definitions.entities import DEFAULT, Entity

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
