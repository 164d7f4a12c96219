"""Quota files: what is rendered parses to the same; no text raises anything but a DefinitionError."""

import io
from collections.abc import Iterator, Mapping
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.definitions.alterations import (
    ANY,
    EVERYTHING,
    alter,
    alterations,
    differences,
    entity_of_parts,
    filter_of,
    matching,
    parts_of,
)
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity, Name, entity_of
from quotas.definitions.kinds import CLIENT_KEYS, KAFKA_KEYS, LONG_MAX, TOPIC_KEYS, WHOLE_KEYS
from quotas.definitions.records import Author, key_of, read_key, read_setting, value_of
from quotas.definitions.toml_file import Document, parse, render
from quotas.errors import DefinitionError
from tests.support.definitions import definitions

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


@given(found=definitions())
@settings(max_examples=150, deadline=None)
def test_file_has_all_that_is_defined(found: Definitions) -> None:
    text = render(found)
    assert parse(text) == found
    _, read, gone = Document.read(io.StringIO(text, newline="\n"))
    assert read == found
    assert not gone


@given(before=definitions(), after=definitions())
@settings(max_examples=150, deadline=None)
def test_file_that_is_edited_has_what_it_should(before: Definitions, after: Definitions) -> None:
    document, _, _ = Document.read(io.StringIO(render(before), newline="\n"))
    edit = document.edit(changed(before, after))
    text = "".join(document.text(edit))
    assert parse(text) == after
    document.apply(edit)
    again, differs, gone = Document.read(io.StringIO(text, newline="\n"), document)
    assert not len(differs)
    assert not gone
    assert parse("".join(again.text({}))) == after


@given(before=definitions(), after=definitions())
@settings(max_examples=150, deadline=None)
def test_file_that_is_read_again_tells_what_has_changed(before: Definitions, after: Definitions) -> None:
    document, found, _ = Document.read(io.StringIO(render(before), newline="\n"))
    _, differs, gone = Document.read(io.StringIO(render(after), newline="\n"), document)
    for entity, values in differs.entries():
        found.put(entity, values)
    for text in gone:
        found.put(entity_of(text), {})
    assert found == after


@given(before=definitions(), after=definitions())
@settings(max_examples=150, deadline=None)
def test_api_carries_all_that_is_defined(before: Definitions, after: Definitions) -> None:
    """What one process describes, another one is altered to."""
    wanted = {
        entity_of_parts(parts_of(entity)): values
        for entity, values in matching(after, filter_of([(EVERYTHING, ANY, None)], strict=False))
    }
    found = alterations(
        differences(dict(before.entries()), {e: v for e, v in wanted.items() if e}, prune=True)
    )
    outcome = alter(before, found)
    assert [problem for _, problem in outcome.results if problem] == []
    for entity, values in outcome.changes.items():
        before.put(entity, values)
    assert before == after


@given(found=definitions())
@settings(max_examples=100, deadline=None)
def test_kafkas_tools_see_kafkas_keys_and_lose_nothing_else(found: Definitions) -> None:
    entries = dict(found.entries())
    for entity, values in matching(found, filter_of([], strict=False)):
        assert entity[4:] == (None, None, None)
        assert values == {key: value for key, value in entries[entity].items() if key in KAFKA_KEYS}
        key = next(iter(values))
        outcome = alter(found, [(parts_of(entity), [(key, None)])])
        assert outcome.changes == {
            entity: {other: value for other, value in entries[entity].items() if other != key}
        }


@given(found=definitions())
@settings(max_examples=100, deadline=None)
def test_topic_carries_all_that_is_defined(found: Definitions) -> None:
    author = Author("ann", "::1", "2026-01-31T12:00:00.000Z")
    read: dict[Entity, dict[str, float]] = {}
    for entity, values in found.entries():
        for key, value in values.items():
            assert read_key(key_of(entity, key)) == (entity, key)
            setting = read_setting(entity, key, value_of(value, author))
            assert setting is not None
            read.setdefault(entity, {})[key] = setting.value
    assert Definitions(read) == found


def changed(before: Definitions, after: Definitions) -> Iterator[tuple[Entity, Mapping[str, float]]]:
    """Yield the changes from one set of definitions to another."""
    for entity, values in after.entries():
        if before.values(entity) != values:
            yield entity, values
    for entity, _ in before.entries():
        if entity not in after:
            yield entity, {}
