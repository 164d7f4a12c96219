"""protocol.messages.sasl against kafka-python's encoding: mechanism, token's place, verdict."""

import pytest

from protocol.api import SASL_AUTHENTICATE, SASL_HANDSHAKE
from protocol.errors import MalformedFieldError, TruncatedError
from protocol.header import body_start
from protocol.messages import sasl
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, framed

HANDSHAKES = [0, 1]
VERSIONS = [0, 1, 2]


def body(frame: bytes, api_key: int, version: int) -> int:
    found = body_start(frame, 0, len(frame), api_key, version)
    assert found is not None
    return found


@pytest.mark.parametrize("version", HANDSHAKES)
def test_mechanism_is_read(version: int) -> None:
    frame = framed(REQUESTS[SASL_HANDSHAKE][version](mechanism="SCRAM-SHA-256"))
    assert sasl.mechanism(frame, body(frame, SASL_HANDSHAKE, version), len(frame)) == "SCRAM-SHA-256"


def test_null_mechanism_is_malformed() -> None:
    with pytest.raises(MalformedFieldError, match="is null"):
        sasl.mechanism(b"\xff\xff", 0, 2)


@pytest.mark.parametrize("version", HANDSHAKES)
@pytest.mark.parametrize("error", [0, 33])
def test_handshake_error_is_read(version: int, error: int) -> None:
    frame = framed(RESPONSES[SASL_HANDSHAKE][version](error_code=error, mechanisms=["PLAIN"]))
    assert sasl.handshake_error(frame, 0, len(frame)) == error


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("token", [b"", b"\0alice\0secret", bytes(200)])
def test_token_is_found(version: int, token: bytes) -> None:
    frame = framed(REQUESTS[SASL_AUTHENTICATE][version](auth_bytes=token))
    start, stop = sasl.token_span(frame, body(frame, SASL_AUTHENTICATE, version), len(frame), version)
    assert frame[start:stop] == token


@pytest.mark.parametrize(("version", "null"), [(0, b"\xff\xff\xff\xff"), (2, b"\0")])
def test_null_token_is_malformed(version: int, null: bytes) -> None:
    with pytest.raises(MalformedFieldError, match="is null"):
        sasl.token_span(null, 0, len(null), version)


def test_token_that_ends_behind_its_frame_is_truncated() -> None:
    with pytest.raises(TruncatedError):
        sasl.token_span(b"\0\0\0\5abcd", 0, 8, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_authenticate_response_is_read(version: int) -> None:
    answer = RESPONSES[SASL_AUTHENTICATE][version](
        error_code=0, error_message=None, auth_bytes=b"v=abc", session_lifetime_ms=3000
    )
    frame = framed(answer)
    found = sasl.verdict(frame, 0, len(frame), version)
    assert found.error_code == 0
    assert frame[found.start : found.stop] == b"v=abc"
    assert found.session_lifetime_ms == (3000 if version else 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_refused_authenticate_response_is_read(version: int) -> None:
    answer = RESPONSES[SASL_AUTHENTICATE][version](
        error_code=58, error_message="Authentication failed", auth_bytes=b"", session_lifetime_ms=0
    )
    frame = framed(answer)
    found = sasl.verdict(frame, 0, len(frame), version)
    assert (found.error_code, found.start == found.stop) == (58, True)


def test_authenticate_response_cut_before_its_lifetime_is_truncated() -> None:
    frame = framed(
        RESPONSES[SASL_AUTHENTICATE][1](
            error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0
        )
    )
    with pytest.raises(TruncatedError):
        sasl.verdict(frame, 0, len(frame) - 1, 1)
