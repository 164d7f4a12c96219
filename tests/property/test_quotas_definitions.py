"""Quota files: what is rendered parses to the same; no text raises anything but a DefinitionError."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity, Name
from quotas.definitions.kinds import CLIENT_KEYS, LONG_MAX, TOPIC_KEYS, WHOLE_KEYS
from quotas.definitions.toml_file import parse, render
from quotas.errors import DefinitionError

# Quotes, backslashes and control characters are what a TOML string must escape.
TEXTS = st.text(st.sampled_from('ab"\\ \t\n\x00\x1f\x7f.*ü€'), min_size=1, max_size=6)
NAMES: st.SearchStrategy[Name] = st.one_of(st.none(), st.just(DEFAULT), TEXTS)
ENTITIES = st.tuples(NAMES, NAMES).filter(any).map(lambda names: Entity(*names))
TOPICS = st.one_of(st.just(DEFAULT), TEXTS).map(lambda name: Entity(topic=name))
RATES = st.dictionaries(st.sampled_from(sorted(TOPIC_KEYS)), st.integers(1, 2**53).map(float), min_size=1)


@st.composite
def values(draw: st.DrawFn) -> dict[str, float]:
    keys = draw(st.lists(st.sampled_from(sorted(CLIENT_KEYS)), min_size=1, unique=True))
    whole = st.integers(1, 2**53).map(float)
    fraction = st.floats(1e-9, float(LONG_MAX) / 2, allow_nan=False)
    return {key: draw(whole if key in WHOLE_KEYS else fraction) for key in keys}


@given(entries=st.dictionaries(ENTITIES, values(), max_size=8))
@settings(max_examples=60, deadline=None)
def test_rendered_definitions_parse_to_the_same(entries: dict[Entity, dict[str, float]]) -> None:
    definitions = Definitions(entries)
    assert parse(render(definitions)) == definitions


@given(entries=st.dictionaries(TOPICS, RATES, max_size=8))
@settings(max_examples=60, deadline=None)
def test_topics_are_rendered_too_and_counted(entries: dict[Entity, dict[str, float]]) -> None:
    definitions = Definitions(entries)
    assert parse(render(definitions)) == definitions
    for key in TOPIC_KEYS:
        assert definitions.limits_topics(key) == any(key in values for values in entries.values())
    for entity in entries:
        definitions.put(entity, {})
    assert not any(definitions.limits_topics(key) for key in TOPIC_KEYS)


@given(text=st.text(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(DefinitionError):
        parse(text)


@given(
    entries=st.dictionaries(
        ENTITIES, st.fixed_dictionaries({"producer_byte_rate": st.integers(1, 9).map(float)})
    ),
    user=TEXTS,
    client_id=st.one_of(st.just(""), TEXTS),
)
@settings(max_examples=60, deadline=None)
def test_limit_is_that_of_the_first_level_that_has_one(
    entries: dict[Entity, dict[str, float]], user: str, client_id: str
) -> None:
    # The model: Kafka's eight levels in their order (kafka-quotas.md §1.3), each asked for by itself.
    levels: list[tuple[Name, Name]] = [
        (user, client_id),
        (user, DEFAULT),
        (user, None),
        (DEFAULT, client_id),
        (DEFAULT, DEFAULT),
        (DEFAULT, None),
        (None, client_id),
        (None, DEFAULT),
    ]
    found = [entries[Entity(*level)]["producer_byte_rate"] for level in levels if Entity(*level) in entries]
    limit, bucket = Definitions(entries).limit("producer_byte_rate", user, client_id)
    assert limit == (found[0] if found else None)
    assert bucket.user in {None, user}
    assert bucket.client_id in {None, client_id}
