"""The name that Kafka's own SASL servers accept is the one that Sluice reads: never none, never another.

The reverse is not asked: what Kafka refuses, its refusal ends.
"""

import hashlib
import hmac
import json
import random
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from protocol.messages.sasl import DELEGATION_TOKEN, bearer_name, plain_name, scram_name
from tests.cluster.features import JWT_CLASSES, UTF_16_JWTS
from tests.oracle.judge import Judge

pytestmark = pytest.mark.needs(JWT_CLASSES)

KEY: Final = b"a key of at least 256 bits, as RFC 7518 wants it for HS256"
SEED: Final = 20261122
TIMES: Final = {"iat": int(time.time()) - 60, "exp": int(time.time()) + 3600, "scope": "kafka"}


@pytest.fixture(scope="module")
def names() -> Iterator[Judge]:
    with Judge.start("Names.java", KEY.hex()) as started:
        yield started


def encoded(raw: bytes) -> bytes:
    return urlsafe_b64encode(raw).rstrip(b"=")


def payload(**claims: object) -> bytes:
    return json.dumps(claims | TIMES).encode()


def bearer(token: bytes, before: bytes = b"", behind: bytes = b"") -> bytes:
    return b"n,,\x01" + before + b"auth=Bearer " + token + b"\x01" + behind + b"\x01"


def unsecured(claims: bytes, alphabet: bytes = b"") -> bytes:
    part = encoded(claims)
    return encoded(b'{"alg":"none"}') + b"." + (part.translate(alphabet) if alphabet else part) + b"."


def signed(claims: bytes, vary: Callable[[bytes], bytes] = bytes) -> bytes:
    head = encoded(b'{"alg":"HS256"}') + b"." + encoded(claims)
    return head + b"." + vary(encoded(hmac.new(KEY, head, hashlib.sha256).digest()))


def read(mechanism: str, token: bytes) -> str | None:
    if mechanism == "PLAIN":
        return plain_name(token, 0, len(token))
    if mechanism == "SCRAM":
        return scram_name(token, 0, len(token))
    return bearer_name(token, 0, len(token), "sub")


def judged(names: Judge, mechanism: str, token: bytes) -> str | None:
    """The name that Kafka accepts; None if it accepts none."""
    try:
        response = names.ask(mechanism, token)
    except ValueError:
        return None
    return DELEGATION_TOKEN if response == "T" else bytes.fromhex(response).decode()


ACCEPTED = [
    *((f"signature {extra!r}", "SIGNED", bearer(signed(payload(sub="alice"), vary)), "alice") for extra, vary in (
        ("plain", bytes),
        ("=", lambda s: s + b"="),
        ("===", lambda s: s + b"==="),
        ("~", lambda s: s[:9] + b"~" + s[9:] + b"~~"),
        ("+/", lambda s: s.translate(bytes.maketrans(b"-_", b"+/"))),
    )),
    ("trimmed", "SIGNED", bearer(signed(payload(sub=" alice\t"))), "alice"),
    ("half a pair", "SIGNED", bearer(signed(payload(sub="a\ud800b"))), "a?b"),
    ("unsecured", "UNSECURED", bearer(unsecured(payload(sub="alice"))), "alice"),
    ("blanks stay", "UNSECURED", bearer(unsecured(payload(sub=" alice"))), " alice"),
    ("true", "UNSECURED", bearer(unsecured(payload(sub=True))), "true"),
    ("null", "UNSECURED", bearer(unsecured(payload(sub=None))), "null"),
    ("behind it", "UNSECURED", bearer(unsecured(b" " + payload(sub="alice") + b" x{")), "alice"),
    ("twice", "UNSECURED", bearer(unsecured(b'{"sub":"bob",' + payload(sub="alice")[1:])), "alice"),
    ("escaped", "UNSECURED", bearer(unsecured(payload(x=1)[:-1] + rb',"s\u0075b":"\u0061lice"}')), "alice"),
    ("wide", "UNSECURED", bearer(unsecured(payload(sub="alice").decode().encode("utf-16"))), "alice"),
    ("wider", "UNSECURED", bearer(unsecured(payload(sub="alice").decode().encode("utf-32-be"))), "alice"),
    ("digits", "UNSECURED", bearer(unsecured(b'{"x":' + b"9" * 900 + b"," + payload(sub="alice")[1:])), "alice"),
    ("nested", "UNSECURED", bearer(unsecured(b'{"x":' + b"[" * 400 + b"]" * 400 + b"," + payload(sub="a")[1:])), "a"),
    ("scheme", "UNSECURED", b"n,a=al=2Cice,\x01auth=bEARER    " + unsecured(payload(sub="al=2Cice")) + b"\x01\x01",
     "al=2Cice"),
    ("last auth", "UNSECURED", bearer(unsecured(payload(sub="alice")), b"auth=Basic x\x01"), "alice"),
    ("extensions", "UNSECURED", bearer(unsecured(payload(sub="alice")), b"a=1\x01" * 40, b"Auth=auth=\x01" * 40),
     "alice"),
    ("plain", "PLAIN", b"\0alice\0x", "alice"),
    ("bytes", "PLAIN", b"\0al\xff\xc3ice\0x", "al\ufffd\ufffdice"),
    ("surrogates", "PLAIN", b"\0al\xed\xa0\x80ice\xed\xbf\0x", "al\ufffdice\ufffd"),
    ("not normalised", "PLAIN", "\0a\u00adli\u2168ce \0x".encode(), "a\u00adli\u2168ce "),
    ("scram", "SCRAM", b"n,,n=a=2Cb=3D2C,r=x", "a,b=2C"),
    ("own id", "SCRAM", b"n,a=alice,m=x,n=alice,r=x,y=z", "alice"),
    ("large", "SCRAM", b"n,,n=alice,r=x,y=" + b"z" * 500_000, "alice"),
    ("token", "SCRAM", b"n,,n=id,r=x,tokenauth=no,tokenauth=tRUE,y=tokenauth=no", DELEGATION_TOKEN),
    ("no token", "SCRAM", b"n,,n=id,r=x,tokenauth=true,tokenauth=true ", "id"),
    ("other key", "SCRAM", b"n,,n=id,r=x,Tokenauth=true", "id"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mechanism", "token", "name"),
    [
        pytest.param(*row[1:], id=row[0], marks=pytest.mark.needs(UTF_16_JWTS) if row[0] == "wide" else ())
        for row in ACCEPTED
    ],
)
def test_name_equals_the_one_that_kafka_accepts(
    names: Judge, mechanism: str, token: bytes, name: str
) -> None:
    assert judged(names, mechanism, token) == name, "Kafka's own reading"
    assert read(mechanism, token) == name


def mutated(rng: random.Random, token: bytes) -> bytes:
    """The token with a few bytes put in, taken out, or doubled, mostly those that mean something."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(token) + 1)
        match rng.randrange(4):
            case 0:
                token = token[:at] + rng.choice(PARTS) + token[at:]
            case 1:
                token = token[:at] + token[at + 1 :]
            case 2:
                token = token[:at] + bytes((rng.randrange(256),)) + token[at + 1 :]
            case _:
                until = min(len(token), at + rng.randint(1, 20))
                token = token[:until] + token[at:until] + token[until:]
    return token


PARTS: Final = (
    b"=", b"~", b"+", b"/", b"-", b"_", b".", b",", b" ", b"\x01", b"\0", b"a", b"=2C", b"=3D", b"auth=", b"x=y\x01",
    b"\x01auth=bearer ", b",tokenauth=true", b",n=", b"\xc3", b"\xed\xa0", b"\x80",
)  # fmt: skip


def varied(rng: random.Random, mechanism: str, token: bytes) -> bytes:
    """A token that is nearly that one: of a signed one what is signed stays, of an unsecured one JSON changes too."""
    if mechanism == "SIGNED":
        head, dot, rest = token.rpartition(b".")
        return head + dot + mutated(rng, rest)
    if mechanism == "UNSECURED" and rng.random() < 0.7:
        return bearer(unsecured(mutated(rng, payload(sub="alice", x=[1, "y"]))))
    return mutated(rng, token)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM", "UNSECURED", "SIGNED"])
def test_names_of_many_tokens_equal_those_that_kafka_accepts(names: Judge, mechanism: str) -> None:
    rng = random.Random(SEED)
    seeds = [token for _, kind, token, _ in ACCEPTED if kind == mechanism and len(token) < 5000]
    accepted = 0
    for _ in range(3000):
        token = varied(rng, mechanism, rng.choice(seeds))
        known = judged(names, mechanism, token)
        if known is not None:
            accepted += 1
            assert read(mechanism, token) == known, token
    assert accepted > 30
