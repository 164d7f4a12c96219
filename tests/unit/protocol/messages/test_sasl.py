"""protocol.messages.sasl against kafka-python's encoding: mechanism, token's place, verdict."""

import json
from base64 import urlsafe_b64encode

import pytest

from protocol.api import SASL_AUTHENTICATE, SASL_HANDSHAKE
from protocol.errors import MalformedFieldError, TruncatedError
from protocol.header import body_start
from protocol.messages import sasl
from protocol.messages.sasl import DELEGATION_TOKEN, NAME_BYTES_MAX, bearer_name, plain_name, scram_name
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
@pytest.mark.parametrize(("error", "data"), [(0, b"v=abc"), (58, b"")])
def test_authenticate_response_is_read(version: int, error: int, data: bytes) -> None:
    response = RESPONSES[SASL_AUTHENTICATE][version](
        error_code=error, error_message="no" if error else None, auth_bytes=data, session_lifetime_ms=3000
    )
    frame = framed(response)
    found = sasl.verdict(frame, 0, len(frame), version)
    assert (found.error_code, frame[found.start : found.stop]) == (error, data)
    assert found.session_lifetime_ms == (3000 if version else 0)
    with pytest.raises(TruncatedError):
        sasl.verdict(frame, 0, len(frame) - 2, version)  # without the tags behind it since version 2


SCRAM_FIRST = b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL"


def encoded(value: object) -> bytes:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def jwt(claims: object, header: object = None, signature: bytes = b"c2lnbmF0dXJl") -> bytes:
    return b".".join((encoded(header or {"alg": "RS256"}), encoded(claims), signature))


def bearer(token: bytes) -> bytes:
    return b"n,,\x01auth=Bearer " + token + b"\x01\x01"


def bearer_of(token: bytes, claim: str = "sub") -> str | None:
    return bearer_name(token, 0, len(token), claim)


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (b"\0alice\0alice-secret", "alice"),
        (b"alice\0alice\0alice-secret", "alice"),
        (b"bob\0alice\0alice-secret", "alice"),  # Kafka refuses it, which is Kafka's to say
        (b"\0j\xc3\xbcrgen\0x", "jürgen"),
        (b"\0alice\0se\0cret", "alice"),  # Kafka's split ends with the third part
        (b"\0" + b"a" * NAME_BYTES_MAX + b"\0x", "a" * NAME_BYTES_MAX),
        (b"\0" + b"a" * (NAME_BYTES_MAX + 1) + b"\0x", None),
        (b"\0alice", None),
        (b"\0\0secret", None),
        (b"alice\0", None),
        (b"\0\xff\xfe\0x", "\ufffd\ufffd"),
        (b"\0\xed\xa0\x80\xed\xbf\0x", "\ufffd\ufffd"),  # Java: one for each half of a surrogate pair
        (b"", None),
    ],
)
def test_plain_name(token: bytes, name: str | None) -> None:
    assert plain_name(token, 0, len(token)) == name


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (SCRAM_FIRST, "alice"),
        (b"n,a=alice,n=alice,r=x", "alice"),
        (b"n,,m=ext,n=alice,r=x", "alice"),
        (b"n,,n=a=2Cb=3Dc,r=x", "a,b=c"),
        (b"n,,n=a=3D2Cb,r=x", "a=2Cb"),  # unescaped once
        (b"n,,n=alice,r=x,tokenauth=false", "alice"),
        (b"n,,n=alice,r=x,tokenauth=true,tokenauth=false", "alice"),  # the last one counts, as in Kafka
        (b"n,,n=tokenid,r=x,tokenauth=true", DELEGATION_TOKEN),
        (b"n,,n=tokenid,r=x,other=1,tokenauth=TRUE", DELEGATION_TOKEN),
        (b"n,,n=a=2cb,r=x", None),
        (b"n,,n=a=b,r=x", None),
        (b"y,,n=alice,r=x", None),  # channel binding: Kafka knows only n
        (b"p=tls-unique,,n=alice,r=x", None),
        (b"n,,n=alice", None),
        (b"n,,n=,r=x", None),
        (b"n,,n=j\xc3\xbcrgen,r=x", None),  # Kafka's own pattern is ASCII
        (b"n,,n=alice,r=x\0", "alice"),  # Kafka refuses it, which is Kafka's to say
        (b"n,,n=tokenid,r=x,tokenauth=true ", "tokenid"),
        (b"n,,n=alice,r=x" + b",a=b" * 260_000, "alice"),
        (b"n,,n=tokenid,r=x" + b",a=b" * 130_000 + b",tokenauth=true" + b",a=b" * 130_000, DELEGATION_TOKEN),
        (b"c=biws,r=fyko,p=cHJvb2Y=", None),
        (b"n,,n=" + b"a" * (NAME_BYTES_MAX + 1) + b",r=x", None),
        (b"", None),
    ],
)
def test_scram_name(token: bytes, name: str | None) -> None:
    assert scram_name(token, 0, len(token)) == name


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (bearer(jwt({"sub": "alice"})), "alice"),
        (bearer(jwt({"sub": "alice"}, {"alg": "none"}, b"")), "alice"),  # unsecured, as in Kafka's own tests
        (bearer(jwt({"sub": " alice"}, {"alg": "none"}, b"")), " alice"),  # and as it is
        (bearer(jwt({"sub": True}, {"alg": "none"}, b"")), "true"),
        (bearer(jwt({"sub": True})), None),
        *((bearer(jwt({"sub": "alice"}, signature=odd)), "alice") for odd in (b"a=", b"a==", b"~a~", b"+/+")),
        (bearer(b"e30." + encoded({"sub": "a?~>?"}).replace(b"_", b"/").replace(b"-", b"+") + b"."), "a?~>?"),
        (bearer(jwt({"sub": " alice\t"})), "alice"),  # trimmed, as Kafka does
        (b"n,a=alice,\x01auth=bearer  " + jwt({"sub": "alice"}) + b"\x01\x01", "alice"),
        (b"n,,\x01host=h\x01auth=Bearer " + jwt({"sub": "alice"}) + b"\x01port=1\x01\x01", "alice"),
        (bearer(jwt({"sub": 7})), None),
        (bearer(jwt({"sub": ""})), None),
        (bearer(jwt({"sub": "  "})), None),
        (bearer(jwt({"name": "alice"})), None),
        (bearer(jwt(["sub", "alice"])), None),
        (bearer(jwt({"sub": "a\ud800"})), "a?"),  # as Kafka's quotas call it
        (bearer(jwt({"sub": "a" * (NAME_BYTES_MAX + 1)})), None),
        (bearer(b"opaque-token"), None),
        (bearer(b"a.!!!.c"), None),
        (bearer(b"a.e30.c.d.e"), None),
        (bearer(b"a." + urlsafe_b64encode(b"[" * 100_000).rstrip(b"=") + b".c"), None),
        (bearer(b"a." + urlsafe_b64encode(b"[" * 40_000).rstrip(b"=") + b".c"), None),
        (bearer(jwt({"sub": "alice", "pad": "x" * 60_000})), None),  # 80 kB of base64
        (b"n,,\x01auth=Basic " + jwt({"sub": "alice"}) + b"\x01\x01", None),
        (b"n,,\x01auth=Bearer " + jwt({"sub": "alice"}), None),
        (b"n,,\x01" + b"a=b\x01" * 260_000 + b"auth=Bearer " + jwt({"sub": "alice"}) + b"\x01\x01", "alice"),
        (b"\x01", None),
        (b"", None),
    ],
)
def test_bearer_name(token: bytes, name: str | None) -> None:
    assert bearer_of(token) == name


def test_of_several_pairs_named_auth_the_last_one_counts() -> None:
    # Kafka reads them into a map: the token that it verifies is the last one.
    first, last = jwt({"sub": "victim"}), jwt({"sub": "alice"})
    token = b"n,,\x01auth=Bearer " + first + b"\x01auth=Bearer " + last + b"\x01\x01"
    assert bearer_of(token) == "alice"
    token = b"n,,\x01auth=Bearer " + first + b"\x01auth=nonsense\x01\x01"
    assert bearer_of(token) is None


def test_claim_is_chosen() -> None:
    token = bearer(jwt({"sub": "12-34", "preferred_username": "alice"}))
    assert bearer_of(token, "preferred_username") == "alice"
    assert bearer_of(token, "email") is None


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_names_are_read_where_the_token_lies(kind: type) -> None:
    token = b"\0alice\0x"
    buf = kind(b"before" + token + b"behind\0")
    assert plain_name(buf, 6, 6 + len(token)) == "alice"
    buf = kind(b"before" + SCRAM_FIRST + b",behind")
    assert scram_name(buf, 6, 6 + len(SCRAM_FIRST)) == "alice"
    token = bearer(jwt({"sub": "alice"}))
    buf = kind(b"before" + token + b"behind")
    assert bearer_name(buf, 6, 6 + len(token), "sub") == "alice"
