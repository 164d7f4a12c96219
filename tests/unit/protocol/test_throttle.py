"""Where the throttle time lies, by bytes; `tests/property` and `tests/oracle` compare every version."""

import pytest

from protocol import api, throttle
from protocol.errors import TruncatedError


@pytest.mark.parametrize(
    ("api_key", "version", "position"),
    [
        (api.FETCH, 0, throttle.NONE),
        (api.FETCH, 1, 0),
        (api.METADATA, 2, throttle.NONE),
        (api.METADATA, 3, 0),
        (api.JOIN_GROUP, 1, throttle.NONE),
        (api.JOIN_GROUP, 2, 0),
        (api.PRODUCE, 0, throttle.NONE),
        (api.PRODUCE, 1, throttle.LAST),
        (api.API_VERSIONS, 3, throttle.LAST),
        (api.CREATE_DELEGATION_TOKEN, 1, throttle.LAST),
        (api.DESCRIBE_DELEGATION_TOKEN, 3, throttle.LAST),
        (api.RENEW_DELEGATION_TOKEN, 2, 10),
        (api.EXPIRE_DELEGATION_TOKEN, 1, 10),
        (api.OFFSET_DELETE, 0, 2),
        (api.SASL_HANDSHAKE, 1, throttle.NONE),
        (api.SASL_AUTHENTICATE, 2, throttle.NONE),
        (api.FETCH, api.MAX_VERSION[api.FETCH] + 1, throttle.NONE),
        (9999, 0, throttle.NONE),
        (4, 0, throttle.NONE),
    ],
)
def test_throttle_time_offset_is_known_for_each_version(api_key: int, version: int, position: int) -> None:
    assert throttle.position(api_key, version) == position


def test_throttle_time_at_the_front_is_patched_in_the_head() -> None:
    # Fetch 12: length 1000, correlation id, empty tags, throttle time; the rest has not come.
    head = bytearray.fromhex("000003e8 00000009 00 00000000")
    assert throttle.patch(memoryview(head), api.FETCH, 12, 7)
    assert head.hex() == "000003e8" + "00000009" + "00" + "00000007"
    with pytest.raises(TruncatedError):
        throttle.patch(head[:-1], api.FETCH, 12, 7)


def test_response_to_an_unsupported_version_of_api_versions_has_none() -> None:
    # Error 35 in version 0, though version 4 was asked: one key, and nothing behind it.
    frame = bytearray.fromhex("00000010 00000009 0023 00000001 0012 0000 0003")
    before = bytes(frame)
    assert not throttle.patch(frame, api.API_VERSIONS, 4, 7)
    assert bytes(frame) == before


def test_frame_that_ends_before_its_throttle_time_is_truncated() -> None:
    with pytest.raises(TruncatedError):
        throttle.patch(bytearray.fromhex("00000004 00000009"), api.HEARTBEAT, 1, 7)
