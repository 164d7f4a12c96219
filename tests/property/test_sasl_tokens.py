"""Any token gives a name or none, never an error and never a long one; names that were put in come out again."""

import json
from base64 import urlsafe_b64encode

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages.sasl import NAME_BYTES_MAX, bearer_name, plain_name, scram_name
from protocol.messages.sasl_exchange import SaslExchange

# What the patterns know, so that random tokens come near to valid ones.
PARTS = st.sampled_from(b"n,|,|a=|n=|,r=|=2C|=3D|\0|\x01|auth=Bearer |.|e30|tokenauth=true|v=".split(b"|"))
TOKENS = st.lists(PARTS | st.binary(max_size=8), max_size=12).map(b"".join)
MECHANISMS = st.sampled_from(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "x"])
FUZZ = settings(max_examples=300, deadline=None)

JAVA_BLANKS = "".join(map(chr, range(0x21)))  # what String.trim removes


@FUZZ
@given(token=TOKENS)
def test_any_token_gives_a_name_or_none(token: bytes) -> None:
    for name in (
        plain_name(token, 0, len(token)),
        scram_name(token, 0, len(token)),
        bearer_name(token, 0, len(token), "sub"),
    ):
        assert name is None or (name and len(name) <= NAME_BYTES_MAX)
        assert name is None or name.encode()


@FUZZ
@given(
    payload=st.binary(max_size=60)
    | st.recursive(st.text() | st.integers() | st.none(), st.lists).map(
        lambda v: json.dumps({"sub": v}).encode()
    )
)
def test_any_payload_gives_a_name_or_none(payload: bytes) -> None:
    token = b"n,,\x01auth=Bearer a." + urlsafe_b64encode(payload).rstrip(b"=") + b".b\x01\x01"
    name = bearer_name(token, 0, len(token), "sub")
    assert name is None or name.strip(JAVA_BLANKS)  # Python's strip removes more, such as U+0085


@FUZZ
@given(
    user=st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text),
    password=st.binary(max_size=20),
)
def test_plain_name_comes_out_as_it_went_in(user: str, password: bytes) -> None:
    token = b"\0" + user.encode("utf-8", "surrogatepass") + b"\0" + password
    expected = "".join(
        "\ufffd" if "\ud800" <= char <= "\udfff" else char for char in user
    )  # as Java reads it
    assert plain_name(token, 0, len(token)) == expected


@FUZZ
@given(user=st.text(st.characters(min_codepoint=1, max_codepoint=0x7F), min_size=1, max_size=20))
def test_scram_name_comes_out_as_it_went_in(user: str) -> None:
    token = b"n,,n=" + user.replace("=", "=3D").replace(",", "=2C").encode() + b",r=nonce"
    assert scram_name(token, 0, len(token)) == user


@FUZZ
@given(mechanism=MECHANISMS, exchange=st.lists(st.tuples(TOKENS, TOKENS), max_size=4))
def test_any_exchange_ends_with_a_verdict(mechanism: str, exchange: list[tuple[bytes, bytes]]) -> None:
    conversation = SaslExchange(mechanism)
    for sent, response in exchange:
        conversation.read_token(sent, 0, len(sent), "sub")
        assert conversation.succeeded(response, 0, len(response)) in (True, False)
        assert conversation.name != ""
