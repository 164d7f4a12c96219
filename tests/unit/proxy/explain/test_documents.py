"""The documents of `/v1`: docs/api.md names their fields and no others; members of several versions read each other."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from proxy.events import Event, kinds
from proxy.explain import documents
from proxy.explain.documents import (
    ClientRow,
    ClientsDocument,
    Document,
    DocumentError,
    Missing,
    decode,
    encode,
)

API = (Path(__file__).parents[4] / "docs" / "api.md").read_text(encoding="utf-8")
STRUCTS = {
    "/v1/client": (
        *("ClientDocument", "Rule", "Wait", "Neighbour", "Wants", "DemandRow", "Predicted", "AtBroker"),
        "Level",
        *("ConnectionRow", "MemberTimes", "UserDocument", "UserClient", "UserQuota"),
    ),
    "/v1/clients": ("ClientsDocument", "ClientRow", "ShortRule", "Quota"),
    "/v1/brokers": ("BrokersDocument", "BrokerTimes"),
    "/v1/rules": ("RulesDocument", "RuleRow"),
    "/v1/capacities": ("CapacitiesDocument", "CapacityRow", "ClassRow"),
    "/v1/fleet": ("FleetDocument", "FleetMember"),
    "/v1/status": ("StatusDocument", "Switched"),
    "/v1/events": ("EventsDocument", "EventRow"),
    "POST /v1/enforcement": ("EnforcementDocument",),
}
OF_SEVERAL_MEMBERS = {"members", "member"}  # in rows, set by a reader
OF_EACH = {"enforcing", "missing", "worker", "problem"}  # said once, above all


def section(path: str) -> str:
    return re.split(r"^## ", API.partition(f"\n## {path}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def fields(path: str) -> set[str]:
    return {name for struct in STRUCTS[path] for name in getattr(documents, struct).__struct_encode_fields__}


@pytest.mark.parametrize("path", STRUCTS)
def test_each_field_is_in_the_table_of_its_document(path: str) -> None:
    if path == "POST /v1/enforcement":
        own = fields(path) - fields("/v1/status")
        assert all(f"`{name}`" in section(path) for name in own)
        return
    assert {name for name in fields(path) - OF_SEVERAL_MEMBERS - OF_EACH if f"`{name}`" not in API} == set()
    named = set(re.findall(r"`(\w+)`", section(path)))
    assert fields(path) - named - OF_SEVERAL_MEMBERS - OF_EACH == set()


@pytest.mark.parametrize("path", [path for path in STRUCTS if not path.startswith("POST")])
def test_each_row_of_a_table_is_a_field(path: str) -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section(path), flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    made = [one for one in vars(kinds).values() if isinstance(one, type) and issubclass(one, Event)]
    of_events = {str(one.__struct_config__.tag) for one in made}
    assert named - fields(path) - of_events - {"error", "guesses"} == set()


def test_parts_of_time_and_own_times_are_described() -> None:
    for struct in (documents.Times, documents.OwnTimes, Missing):
        assert all(f"`{name}`" in API for name in struct.__struct_encode_fields__ if name != "member")


def test_document_of_another_version_is_read() -> None:
    old = decode(b'{"clients": [{"user": "", "client_id": "a"}]}', ClientsDocument)
    assert (old.missing, old.clients[0].rule, old.clients[0].time.idle) == ((), None, 0.0)
    new = decode(b'{"window_seconds": 10, "novel": {"a": [1]}, "clients": []}', ClientsDocument)
    assert new.window_seconds == 10


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"clients": [{"time": NaN}]}', b"{}x"]
)
def test_bytes_that_are_no_json_are_refused(body: bytes) -> None:
    with pytest.raises(DocumentError):
        decode(body, ClientsDocument)


def test_text_that_is_not_unicode_is_written_and_read_escaped() -> None:
    body = encode(ClientsDocument(clients=(ClientRow(user="", client_id="a\ud800"),)))
    assert json.loads(body)["clients"][0]["client_id"] == "a\ud800"
    assert decode(body, ClientsDocument).clients[0].client_id == r"a\ud800"


def test_every_document_can_be_decoded() -> None:
    kinds = [one for one in vars(documents).values() if isinstance(one, type) and issubclass(one, Document)]
    assert len(kinds) == 11
    assert all(msgspec.json.Decoder(kind) for kind in kinds)


def test_number_that_no_float_holds_is_refused() -> None:
    with pytest.raises(DocumentError):
        decode(b'{"broker":1,"timed":1' + b"0" * 400 + b"}", documents.BrokerTimes)
