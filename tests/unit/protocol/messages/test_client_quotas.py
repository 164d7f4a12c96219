"""protocol.messages.client_quotas: bytes by hand; kafka-python judges the rest (tests/property)."""

import pytest

from protocol.errors import MalformedFieldError, UnknownVersionError
from protocol.messages import client_quotas

LONG = b"\xff" * 2 + b"\x7f"  # a compact array of two million


@pytest.mark.parametrize(
    ("body", "version", "error"),
    [
        (bytes.fromhex("ffffffff00"), 0, "null array"),
        (bytes.fromhex("00000001ffff00ffff00"), 0, "null string"),  # the type of an entity
        (LONG, 1, "at most 16 are accepted"),
    ],
)
def test_filter_that_cannot_be_is_malformed(body: bytes, version: int, error: str) -> None:
    with pytest.raises(MalformedFieldError, match=error):
        client_quotas.read_describe(body, 0, len(body), version)


@pytest.mark.parametrize("version", [-1, 2])
def test_other_versions_are_not_known(version: int) -> None:
    with pytest.raises(UnknownVersionError):
        client_quotas.read_describe(b"", 0, 0, version)
    with pytest.raises(UnknownVersionError):
        client_quotas.AlterRequest(b"", 0, 0, version)


@pytest.mark.parametrize("before", [b"", b"\x02", b"\x02\x01"], ids=["entries", "parts", "operations"])
def test_array_longer_than_any_request_needs_is_refused_unread(before: bytes) -> None:
    body = before + LONG
    with pytest.raises(MalformedFieldError, match="are accepted"):
        list(client_quotas.AlterRequest(body, 0, len(body), 1))
