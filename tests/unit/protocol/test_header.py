"""Headers by their bytes."""

import pytest

from protocol import header
from protocol.api import API_VERSIONS, FETCH, METADATA
from protocol.errors import MalformedFieldError, TruncatedError

# Length, key, version, correlation id, client id "abc"; a flexible version has a tag section behind it.
FETCH_11 = bytes.fromhex("0000000d 0001 000b 00000009 0003 616263")
FETCH_12 = bytes.fromhex("0000000e 0001 000c 00000009 0003 616263 00")


def test_head_is_five_numbers() -> None:
    assert header.REQUEST_HEAD.unpack_from(FETCH_11) == (13, FETCH, 11, 9, 3)


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
def test_client_id_of_any_bytes_is_a_name(raw: str, client_id: str) -> None:
    frame = FETCH_11[:12] + bytes.fromhex(raw)
    assert header.client_id(frame, 0, len(frame)) == client_id
    assert header.body_start(frame, 0, len(frame), FETCH, 11) == len(frame)


def test_client_id_of_a_length_that_cannot_be_is_malformed() -> None:
    frame = FETCH_11[:12] + b"\xff\xfe"
    with pytest.raises(MalformedFieldError):
        header.client_id(frame, 0, len(frame))
    with pytest.raises(MalformedFieldError):
        header.body_start(frame, 0, len(frame), FETCH, 11)


def test_answer_of_a_flexible_version_has_tags_in_its_header() -> None:
    answer = bytes.fromhex("00000006 00000009 00 ff")
    assert header.response_body_start(answer, 0, len(answer), METADATA, 9) == 9
    assert header.response_body_start(answer, 0, len(answer), METADATA, 8) == 8
    with pytest.raises(TruncatedError):
        header.response_body_start(answer, 0, 8, METADATA, 9)
    with pytest.raises(TruncatedError):
        header.response_body_start(answer, 0, 7, METADATA, 8)


def test_answer_to_api_versions_never_has() -> None:
    answer = bytes.fromhex("00000006 00000009 00 ff")
    assert header.response_body_start(answer, 0, len(answer), API_VERSIONS, 3) == 8
