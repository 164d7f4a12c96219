"""protocol.messages.client_quotas: bytes by hand; kafka-python judges the rest (tests/property)."""

import pytest

from protocol.errors import MalformedFieldError, UnknownVersionError
from protocol.messages import client_quotas

# One component: user, exactly "a"; strict.
DESCRIBE_0 = bytes.fromhex("000000010004") + b"user" + bytes.fromhex("000001") + b"a" + b"\1"
DESCRIBE_1 = bytes.fromhex("0205") + b"user" + bytes.fromhex("0002") + b"a" + b"\0\1\0"


@pytest.mark.parametrize(("version", "body"), [(0, DESCRIBE_0), (1, DESCRIBE_1)])
def test_describe_request_is_read(version: int, body: bytes) -> None:
    found = client_quotas.read_describe(b"xx" + body, 2, 2 + len(body), version)
    assert found == ([("user", 0, "a")], True)


def test_request_with_a_null_array_is_malformed() -> None:
    with pytest.raises(MalformedFieldError, match="null array"):
        client_quotas.read_describe(bytes.fromhex("ffffffff00"), 0, 5, 0)


def test_request_with_a_null_entity_type_is_malformed() -> None:
    with pytest.raises(MalformedFieldError, match="null string"):
        client_quotas.read_describe(bytes.fromhex("00000001ffff00ffff00"), 0, 10, 0)


@pytest.mark.parametrize("version", [-1, 2])
def test_other_versions_are_not_known(version: int) -> None:
    with pytest.raises(UnknownVersionError):
        client_quotas.read_describe(DESCRIBE_0, 0, len(DESCRIBE_0), version)
    with pytest.raises(UnknownVersionError):
        client_quotas.AlterRequest(b"", 0, 0, version)


def test_responses_are_whole_frames() -> None:
    entity = bytes.fromhex("000000010004") + b"user" + b"\xff\xff"
    result = b"\0\0\xff\xff" + entity
    assert client_quotas.alter_response(0, 9, [([("user", None)], 0, None)]) == (
        (12 + len(result)).to_bytes(4, "big") + bytes.fromhex("000000090000000000000001") + result
    )


LONG = b"\xff" * 2 + b"\x7f"  # a compact array of two million


@pytest.mark.parametrize("before", [b"", b"\x02", b"\x02\x01"], ids=["entries", "parts", "operations"])
def test_array_longer_than_any_request_needs_is_refused_unread(before: bytes) -> None:
    body = before + LONG
    with pytest.raises(MalformedFieldError, match="are accepted"):
        list(client_quotas.AlterRequest(body, 0, len(body), 1))


def test_filter_of_too_many_parts_is_refused_unread() -> None:
    with pytest.raises(MalformedFieldError, match="at most 16 are accepted"):
        client_quotas.read_describe(LONG, 0, len(LONG), 1)
