"""Headers by their bytes."""

import pytest

from protocol import header
from protocol.api import API_VERSIONS, FETCH, JOIN_GROUP, METADATA
from protocol.errors import MalformedFieldError, OversizedError, TruncatedError
from protocol.header import HEADER_TAGS_BYTES_MAX, HEADER_TAGS_MAX, skip_header_tags
from protocol.primitives import uvarint_bytes
from tests.support.frames import request

# Length, key, version, correlation id, client id "abc"; a flexible version has a tag section behind it.
FETCH_11 = bytes.fromhex("0000000d 0001 000b 00000009 0003 616263")
FETCH_12 = bytes.fromhex("0000000e 0001 000c 00000009 0003 616263 00")


@pytest.mark.parametrize(("frame", "version"), [(FETCH_11, 11), (FETCH_12, 12)])
def test_body_begins_behind_the_header(frame: bytes, version: int) -> None:
    assert header.body_start(frame, 0, len(frame), FETCH, version) == len(frame)
    assert header.body_start(b"xx" + frame, 2, len(frame) + 2, FETCH, version) == len(frame) + 2
    for end in range(len(frame)):
        assert header.body_start(frame, 0, end, FETCH, version) is None


def test_client_id_waits_for_its_last_byte() -> None:
    assert header.client_id(FETCH_11, 0, len(FETCH_11)) == "abc"
    for end in range(len(FETCH_11)):
        assert header.client_id(FETCH_11, 0, end) is None


@pytest.mark.parametrize(("raw", "client_id"), [("ffff", ""), ("0000", ""), ("0002 61ff", "a\\xff")])
def test_client_id_that_is_not_utf8_is_accepted(raw: str, client_id: str) -> None:
    frame = FETCH_11[:12] + bytes.fromhex(raw)
    assert header.client_id(frame, 0, len(frame)) == client_id
    assert header.body_start(frame, 0, len(frame), FETCH, 11) == len(frame)


def test_client_id_of_a_length_that_cannot_be_is_malformed() -> None:
    frame = FETCH_11[:12] + b"\xff\xfe"
    with pytest.raises(MalformedFieldError):
        header.client_id(frame, 0, len(frame))
    with pytest.raises(MalformedFieldError):
        header.body_start(frame, 0, len(frame), FETCH, 11)


def test_response_of_a_flexible_version_has_tags_in_its_header() -> None:
    response = bytes.fromhex("00000006 00000009 00 ff")
    assert header.response_body_start(response, 0, len(response), METADATA, 9) == 9
    assert header.response_body_start(response, 0, len(response), METADATA, 8) == 8
    with pytest.raises(TruncatedError):
        header.response_body_start(response, 0, 8, METADATA, 9)
    with pytest.raises(TruncatedError):
        header.response_body_start(response, 0, 7, METADATA, 8)


def test_response_to_api_versions_never_has() -> None:
    response = bytes.fromhex("00000006 00000009 00 ff")
    assert header.response_body_start(response, 0, len(response), API_VERSIONS, 3) == 8


def test_header_tags_are_few_and_short() -> None:
    tags = b"\x10" + b"\x01\x01x" * HEADER_TAGS_MAX
    assert skip_header_tags(tags + b"rest", 0, 100) == len(tags)
    with pytest.raises(OversizedError, match="17 tags in a header, at most 16"):
        skip_header_tags(b"\x11", 0, 1)
    size = HEADER_TAGS_BYTES_MAX - 4  # count, tag, and two bytes of length
    longest = b"\x01\x05" + uvarint_bytes(size) + bytes(size)
    assert skip_header_tags(longest + b"rest", 0, len(longest) + 4) == HEADER_TAGS_BYTES_MAX
    longer = b"\x01\x05" + uvarint_bytes(size + 1) + bytes(size + 1)
    with pytest.raises(OversizedError, match="more than 4096 bytes"):
        skip_header_tags(longer + b"rest", 0, len(longer) + 4)


def test_header_tags_are_waited_for_until_their_bound() -> None:
    tags = b"\x01\x05" + uvarint_bytes(3000) + bytes(3000)
    for end in (0, 1, 2, 3, 100, len(tags) - 1):
        with pytest.raises(TruncatedError):
            skip_header_tags(tags, 0, end)


def test_millions_of_header_tags_are_refused_at_their_count() -> None:
    frame = request(JOIN_GROUP, 9, uvarint_bytes(8_000_000), client_id="a")
    tags_at = len(frame) - 4
    frame = frame[: tags_at - 1] + frame[tags_at:]
    with pytest.raises(OversizedError):
        header.body_start(frame, 0, len(frame), JOIN_GROUP, 9)
