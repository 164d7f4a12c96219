"""quotas.definitions.records: every limit survives its record, and no bytes do harm."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity, Name, canonical
from quotas.definitions.records import (
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    Author,
    RecordError,
    Setting,
    event_of,
    key_of,
    read_key,
    read_setting,
    value_of,
)
from tests.support.definitions import LIMITED, MEMBERS, limits_of

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(lambda text: text != "<default>")
NAMES: st.SearchStrategy[Name] = TEXT | st.just(DEFAULT)
ENTITIES = st.one_of(
    NAMES.map(Entity),
    NAMES.map(lambda name: Entity(client_id=name)),
    st.tuples(NAMES, NAMES).map(lambda names: Entity(*names)),
    (st.ip_addresses().map(str) | st.just(DEFAULT)).map(lambda name: canonical(Entity(ip=name))),
    NAMES.map(lambda name: Entity(topic=name)),
    LIMITED,
    MEMBERS,
)
FIELDS = ["v", "value", "entity", "limit"]
AUTHORS = st.builds(
    Author, st.text(max_size=1000), st.text(max_size=1000), st.just("2026-01-31T12:00:00.000Z")
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner),
    max_leaves=10,
)


@given(ENTITIES, st.data(), AUTHORS)
def test_limit_survives_its_record(entity: Entity, data: st.DataObject, author: Author) -> None:
    limit, value = next(iter(data.draw(limits_of(entity)).items()))

    key, written = key_of(entity, limit), value_of(value, author)

    assert read_key(key) == (entity, limit)
    found = read_setting(entity, limit, written)
    assert found is not None
    assert found.value == value
    assert len(written) <= VALUE_BYTES_MAX
    assert json.loads(event_of(entity, limit, None, value, author))["new"] == value


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_do_harm(data: bytes) -> None:
    """What is read as a key is the key that would be written; what is read as a value may be put in force."""
    try:
        entity, limit = read_key(data)
    except RecordError:
        pass
    else:
        assert key_of(entity, limit) == data
    try:
        setting = read_setting(Entity("ann"), "producer_byte_rate", data)
    except RecordError:
        return
    assert setting is not None
    Definitions().put(Entity("ann"), {"producer_byte_rate": setting.value})


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"[]",
        b"\xff",
        b"[" * 50_000,
        b"9" * 5000,
        b'{"entity":[],"limit":"producer_byte_rate"}',
        b'{"entity":[["user","a"]],"limit":"unknown"}',
        b'{"entity":[["user",""]],"limit":"producer_byte_rate"}',
        b'{"entity":[["user",5]],"limit":"producer_byte_rate"}',
        b'{"entity":[["team","a"]],"limit":"producer_byte_rate"}',
        b'{"entity":[["ip","1.2.3.4"],["user","a"]],"limit":"producer_byte_rate"}',
        b'{"entity":[["ip","nowhere"]],"limit":"connection_creation_rate"}',
        b'{"entity":[["user","<default>"]],"limit":"producer_byte_rate"}',
        # The same entity in other spellings: compaction would take them for others.
        b'{"entity": [["user","a"]],"limit":"producer_byte_rate"}',
        b'{"limit":"producer_byte_rate","entity":[["user","a"]]}',
        b'{"entity":[["user","\\u0061"]],"limit":"producer_byte_rate"}',
        b'{"entity":[["user","a"],["user","a"]],"limit":"producer_byte_rate"}',
        b'{"entity":[["client-id","b"],["user","a"]],"limit":"producer_byte_rate"}',
        b'{"entity":[["user","a"]],"limit":"producer_byte_rate","x":1}',
    ],
)
def test_wrong_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(RecordError) as caught:
        read_key(key)
    assert caught.value.cause == "key"


def test_long_key_is_refused_by_its_size() -> None:
    with pytest.raises(RecordError) as caught:
        read_key(b"x" * (KEY_BYTES_MAX + 1))
    assert caught.value.cause == "size"


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (b"", "value"),
        (b"5", "value"),
        (b'{"value":5}', "version"),
        (b'{"v":2,"value":5}', "version"),
        (b'{"v":true,"value":5}', "version"),
        (b'{"v":1}', "value"),
        (b'{"v":1,"value":"5"}', "value"),
        (b'{"v":1,"value":true}', "value"),
        (b'{"v":1,"value":0}', "value"),
        (b'{"v":1,"value":-1}', "value"),
        (b'{"v":1,"value":1.5}', "value"),
        (b'{"v":1,"value":NaN}', "value"),
        (b'{"v":1,"value":Infinity}', "value"),
        (b'{"v":1,"value":' + b"9" * 400 + b"}", "value"),
        (b'{"v":1,"value":' + b"9" * 4000 + b"}", "value"),
        (b'{"v":1,"value":5,"x":"' + b"x" * 1_000_000 + b'"}', "size"),
    ],
)
def test_wrong_value_is_refused(value: bytes, cause: str) -> None:
    with pytest.raises(RecordError) as caught:
        read_setting(Entity("ann"), "producer_byte_rate", value)
    assert caught.value.cause == cause


def test_limit_of_another_kind_of_entity_is_refused() -> None:
    with pytest.raises(RecordError):
        read_setting(Entity(topic="t"), "request_percentage", b'{"v":1,"value":5}')


def test_author_that_is_no_text_is_unknown_and_the_limit_applies() -> None:
    value = b'{"v":1,"value":5,"by":5,"from":"::1","at":""}'
    assert read_setting(Entity("ann"), "producer_byte_rate", value) == Setting(5.0, None)
