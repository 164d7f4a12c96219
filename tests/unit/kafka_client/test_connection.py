"""kafka_client.connection: a response to one of Sluice's own requests is no longer than what was asked for can be."""

import asyncio
import hashlib
import hmac
import sys
from base64 import b64decode, b64encode
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_client import ClosedError, Connection, LoginError, Request, metadata, quotas
from kafka_client.connection import Exchange
from kafka_client.request import MIB
from protocol.api import API_NAMES, METADATA
from protocol.errors import WireError


def connected(received: bytes, *, ends: bool = True) -> Connection:
    """A connection to a broker that has sent these bytes already."""
    reader = asyncio.StreamReader()
    reader.feed_data(received)
    if ends:
        reader.feed_eof()
    return Connection(("h", 1), reader, Mock(is_closing=lambda: False))


ASKING = Request(METADATA, 0, b"", bytes, MIB)


async def requested(request: Request[Any], length: int) -> bytes:
    """Ask; the response announces so many bytes, and four come."""
    received = length.to_bytes(4, "big", signed=True) + b"\0\0\0\1"
    return await connected(received).send(request)


@pytest.mark.parametrize(
    ("request_", "most"),
    [
        (metadata.brokers(), 2 * MIB),
        (metadata.partitions(["t"]), 8 * MIB),
        (metadata.registered_brokers(), MIB),
        (metadata.describe_topics(["t"], ["k"]), 8 * MIB),
        (metadata.list_ongoing(), 8 * MIB),
        (metadata.alter({}, 1), 4 * MIB),
        (quotas.describe(), 16 * MIB),
    ],
    ids=lambda value: API_NAMES[value.api_key] if isinstance(value, Request) else "",
)
async def test_longer_response_is_refused_at_its_length(request_: Request[Any], most: int) -> None:
    assert request_.bytes_max == most
    with pytest.raises(ClosedError):  # it was waited for
        await requested(request_, most)
    with pytest.raises(WireError, match=f"a response of {most + 1} bytes"):
        await requested(request_, most + 1)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3])
async def test_length_that_cannot_be_is_refused(length: int) -> None:
    with pytest.raises(WireError, match=f"a response of {length} bytes to Metadata"):
        await requested(ASKING, length)


async def test_response_that_does_not_begin_in_time_is_a_timeout() -> None:
    with pytest.raises(TimeoutError, match=r"no response within 0\.01 s"):
        await connected(b"\0\0", ends=False).send(ASKING, begin_seconds=0.01)


async def test_deadline_of_the_caller_is_not_taken_for_that() -> None:
    with pytest.raises(TimeoutError) as raised:
        async with asyncio.timeout(0.01):
            await connected(b"", ends=False).send(ASKING, begin_seconds=10)
    assert str(raised.value) == ""


async def test_nothing_is_written_to_a_connection_that_was_reset() -> None:
    writer = Mock(is_closing=lambda: True)
    connection = Connection(("h", 1), asyncio.StreamReader(), writer)
    with pytest.raises(ClosedError):
        await connection.send(ASKING)
    writer.write.assert_not_called()
    assert connection.closed


PASSWORD = "pencil"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Server:
    """A server's side of one exchange (RFC 5802, section 3)."""

    def __init__(self, mechanism: str, first: bytes, iterations: int = 4096) -> None:
        self.hash = HASHES[mechanism]
        self.bare = first.removeprefix(b"n,,")
        self.nonce = dict(part.split(b"=", 1) for part in self.bare.split(b","))[b"r"] + b"%hvYDp"
        self.challenge = b"r=%b,s=%b,i=%d" % (self.nonce, b64encode(SALT), iterations)
        self.salted = hashlib.pbkdf2_hmac(self.hash, PASSWORD.encode(), SALT, iterations)

    def final(self, proof: bytes) -> bytes:
        """Check the client's proof; return the server's signature."""
        without, _, given = proof.partition(b",p=")
        message = b",".join((self.bare, self.challenge, without))
        key = hmac.digest(self.salted, b"Client Key", self.hash)
        signature = hmac.digest(hashlib.new(self.hash, key).digest(), message, self.hash)
        assert b64decode(given) == bytes(a ^ b for a, b in zip(key, signature, strict=True))
        server_key = hmac.digest(self.salted, b"Server Key", self.hash)
        return b"v=" + b64encode(hmac.digest(server_key, message, self.hash))


def begun(mechanism: str = "SCRAM-SHA-256", **options: int) -> tuple[Exchange, Server]:
    exchange = Exchange(mechanism, "user", PASSWORD, "broker")
    return exchange, Server(mechanism, exchange.token(), **options)


@pytest.mark.parametrize("extension", [b"", b",x=later"])
@pytest.mark.parametrize("mechanism", HASHES)
def test_exchange_proves_the_password_to_both_sides(mechanism: str, extension: bytes) -> None:
    exchange, server = begun(mechanism)
    server.challenge += extension
    assert not exchange.receive(server.challenge)
    assert exchange.receive(server.final(exchange.token()))


def test_plain_shows_name_and_password_and_ends_with_nothing() -> None:
    exchange = Exchange("PLAIN", "sluice", "secret", "broker")
    assert exchange.token() == b"sluice\0sluice\0secret"
    assert exchange.receive(b"")
    with pytest.raises(LoginError, match="PLAIN got a wrong message from the broker"):
        exchange.receive(b"hello")


def test_name_is_escaped() -> None:
    first = Exchange("SCRAM-SHA-512", "a,b=c", "x", "broker").token()
    assert first.startswith(b"n,,n=a=2Cb=3Dc,r=")


@pytest.mark.parametrize(
    ("challenge", "problem"),
    [
        ("e=other-error", "not a challenge"),
        ("\xff", "not a challenge"),
        ("r={nonce},s=a,i=4096", "wrong message"),
        ("r=another,s={salt},i=4096", "did not start with client nonce"),
        ("r={nonce},s={salt},i=4095", "4095 iterations"),
        ("r={nonce},s={salt},i=4096,i=1", "not a challenge"),
        ("v=x,r={nonce},s={salt},i=1", "not a challenge"),
        ("r={nonce},s={salt},i=999999999", "too large"),
    ],
)
def test_challenge_that_cannot_be_is_refused(challenge: str, problem: str) -> None:
    exchange, server = begun()
    text = challenge.format(nonce=server.nonce.decode(), salt=b64encode(SALT).decode())
    with pytest.raises(LoginError, match=problem):
        exchange.receive(text.encode("latin-1"))


@pytest.mark.parametrize(
    "final", [b"", b"v=", b"e=other-error", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="]
)
def test_broker_that_does_not_know_the_password_is_refused(final: bytes) -> None:
    exchange, server = begun()
    exchange.receive(server.challenge)
    exchange.token()
    with pytest.raises(LoginError, match="SCRAM-SHA-256 got a wrong message from the broker"):
        exchange.receive(final)


def test_token_is_shown_and_a_refused_one_is_given_up() -> None:
    exchange = Exchange("OAUTHBEARER", "", "a.b.c", "broker")
    assert exchange.token() == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    assert not exchange.receive(b'{"status":"invalid_token"}')
    assert exchange.token() == b"\x01", "the broker then says why, in its own words"
    accepted = Exchange("OAUTHBEARER", "", "a.b.c", "broker")
    accepted.token()
    assert accepted.receive(b"")


@pytest.mark.parametrize(
    ("mechanism", "problem"),
    [("GSSAPI", "GSSAPI lib not found"), ("AWS_MSK_IAM", 'requires the "botocore" package')],
)
def test_mechanism_whose_package_is_not_there_is_one_clear_line(
    mechanism: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("gssapi", "botocore", "botocore.session"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(LoginError, match=f"{mechanism} cannot begin: RuntimeError: .*{problem}"):
        Exchange(mechanism, "", "", "broker")


class Context:
    """A GSSAPI context that is complete after one token of the server."""

    complete = False

    def step(self, token: bytes | None) -> bytes:
        self.complete = token is not None
        return b"final" if token else b"first"

    def unwrap(self, message: bytes) -> SimpleNamespace:
        return SimpleNamespace(message=message)

    def wrap(self, message: bytes, _encrypt: bool) -> SimpleNamespace:
        return SimpleNamespace(message=b"wrapped " + message)


def test_kerberos_is_asked_for_the_brokers_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def name(of: str, **_: object) -> SimpleNamespace:
        names.append(of)
        return SimpleNamespace(canonicalize=lambda _mechanism: of)

    library = SimpleNamespace(
        Name=name,
        NameType=SimpleNamespace(hostbased_service=1),
        MechType=SimpleNamespace(kerberos=1),
        SecurityContext=lambda **_: Context(),
    )
    monkeypatch.setitem(sys.modules, "gssapi", library)
    exchange = Exchange("GSSAPI", "", "", "b1.example")
    tokens = [exchange.token()]
    for received in (b"a", b"\x07\0\0\0"):
        assert not exchange.receive(received)
        tokens.append(exchange.token())
    assert exchange.receive(b"")
    assert names == ["kafka@b1.example"]
    assert tokens == [b"first", b"final", b"wrapped \x01\0\0\0kafka@b1.example"]
