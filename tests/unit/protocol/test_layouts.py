"""The layouts of requests that name things are those of Kafka's message definitions."""

import re
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import layouts
from protocol.api import ADD_PARTITIONS_TO_TXN, API_NAMES, MAX_VERSION, PRODUCE, flexible
from protocol.errors import WireError
from protocol.layouts import GROUP, TOPIC, TRANSACTIONAL_ID
from proxy.channel.own import NEWEST, TREATMENTS, Treatment
from tests.support.kafka_definitions import ENTITIES, KINDS, Definition, kafka, needs_jar, structures

LABELS: Final = {
    ("int16", "ErrorCode"): "e",
    ("int16", "PartitionErrorCode"): "e",
    ("string", "ResourceName"): "r",
    ("int8", "ResourceType"): "k",
    ("bool", "AllowAutoTopicCreation"): "c",
    **{("int32", name): "p" for name in ("PartitionIndex", "Partitions", "PartitionIndexes", "PartitionId")},
}


def written(fields: list[Definition], named: dict[str, list[Definition]]) -> str:
    """The fields in the text of `protocol.layouts`."""
    out = []
    for field in fields:
        if "tag" in field:
            continue
        base = field["type"].removeprefix("[]")
        array = base != field["type"]
        if base in KINDS:
            label = ENTITIES.get(field.get("entityType", ""), "") if base == "string" else ""
            label = label or LABELS.get((base, field["name"]), "")
            always = base == "string" and not array and field.get("nullableVersions") == field["versions"]
            text = f"{label}:" * bool(label) + KINDS[base] + "?" * always
        else:
            inner = written(field.get("fields") or named[base], named)
            text = "?" * (not array and "nullableVersions" in field) + f"{{{inner}}}"
        text = f"[{text}]" if array else text
        out.append(text if field["versions"] == "0+" else f"{text}@{field['versions']}")
    return " ".join(out)


@needs_jar
def test_the_table_is_kafkas() -> None:
    table = layouts.definitions().splitlines()
    expected = []
    for head in table[::3]:
        key = int(head.split()[0])
        request, response = kafka()[key, "request"], kafka()[key, "response"]
        # Brokers before 4.0 took the oldest versions of Produce too; their fields are still in the definitions.
        oldest = 0 if key == PRODUCE else request["validVersions"].split("-")[0]
        expected += [
            f"{key} {request['name'].removesuffix('Request')} {oldest}",
            "    > " + written(request["fields"], structures(request)),
            "    < " + written(response["fields"], structures(response)),
        ]
    assert table == expected


def names_in(fields: list[Definition], named: dict[str, list[Definition]]) -> set[str]:
    """What a request can name: the kinds of its names, and "id" for topics' ids."""
    found = set()
    for field in fields:
        base = field["type"].removeprefix("[]")
        if base not in KINDS:
            found |= names_in(field.get("fields") or named[base], named)
        elif base == "uuid" and "topic" in field["name"].lower():
            found.add("id")
        elif field.get("entityType") in ENTITIES:
            found.add(ENTITIES[field["entityType"]])
        elif base == "string" and re.search(
            r"topic|group|transactionalid|resourcename", field["name"].lower()
        ):
            found.add("?")
    return found


@needs_jar
def test_each_api_has_a_place_and_names_what_its_place_expects() -> None:
    requests = {key: definition for (key, kind), definition in kafka().items() if kind == "request"}
    assert set(requests) <= set(TREATMENTS)
    assert set(API_NAMES) == set(TREATMENTS)
    for key, definition in requests.items():
        if definition["validVersions"] == "none":
            continue  # removed: its fields are not defined any more
        names = names_in(definition["fields"], structures(definition))
        treatment = TREATMENTS[key]
        if treatment is Treatment.NAMES_NOTHING:
            assert not names, f"{definition['name']} names {names}"
        if treatment in (Treatment.ITEMS, Treatment.WHOLE, Treatment.PRODUCE, Treatment.CREATES):
            assert names & {"t", "g", "x", "?"}, f"{definition['name']} names nothing"
            assert layouts.known(key, MAX_VERSION[key]), definition["name"]
        if treatment is Treatment.ITEMS and "id" in names:
            assert key in NEWEST, f"{definition['name']} names topics by id"


REFUSED_WHOLE: Final = sorted(key for key, place in TREATMENTS.items() if place is Treatment.WHOLE)


@pytest.mark.parametrize("key", REFUSED_WHOLE)
def test_the_id_of_a_whole_request_is_found_as_its_bytes_arrive(key: int) -> None:
    for version in range(MAX_VERSION[key] + 1):
        if not layouts.known(key, version):
            continue
        body = (b"\x05name" if flexible(key, version) else b"\0\4name") * 2 + bytes(64)
        found = layouts.named_first(body, 0, len(body), key, version)
        assert (key == ADD_PARTITIONS_TO_TXN and version >= 4) or found[0][1] == b"name"
        for cut in range(5):
            if found:
                with pytest.raises(WireError):
                    layouts.named_first(body, 0, cut, key, version)


@given(st.binary(max_size=200), st.sampled_from(sorted(MAX_VERSION)), st.integers(0, 13))
@settings(max_examples=300)
def test_junk_raises_wire_errors_only(junk: bytes, key: int, version: int) -> None:
    wanted = frozenset(((TOPIC, b"a"), (GROUP, b"a"), (TRANSACTIONAL_ID, b"a")))
    for read in (
        lambda: layouts.named_in_request(junk, 0, key, version, wanted),
        lambda: layouts.named_in_response(junk, key, version, wanted),
        lambda: layouts.refusal(junk, 0, key, version, 1, 30),
        lambda: layouts.creation_at(junk, 0, key, version, wanted),
    ):
        with suppress(WireError):
            read()
