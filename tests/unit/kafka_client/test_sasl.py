"""kafka_client.sasl: SCRAM against a server made of RFC 5802, and the ways in which a broker can be wrong."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest

from kafka_client import LoginError
from kafka_client.sasl import Exchange

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


@pytest.mark.parametrize("mechanism", HASHES)
def test_exchange_proves_the_password_to_both_sides(mechanism: str) -> None:
    exchange, server = begun(mechanism)
    assert not exchange.receive(server.challenge)
    assert exchange.receive(server.final(exchange.token()))


def test_plain_shows_name_and_password_and_ends_with_nothing() -> None:
    exchange = Exchange("PLAIN", "sluice", "secret", "broker")
    assert exchange.token() == b"sluice\0sluice\0secret"
    assert exchange.receive(b"")


def test_plain_that_is_answered_is_no_login() -> None:
    with pytest.raises(LoginError, match="PLAIN message is wrong"):
        Exchange("PLAIN", "sluice", "secret", "broker").receive(b"hello")


def test_name_is_escaped() -> None:
    first = Exchange("SCRAM-SHA-512", "a,b=c", "x", "broker").token()
    assert first.startswith(b"n,,n=a=2Cb=3Dc,r=")


@pytest.mark.parametrize(
    ("challenge", "problem"),
    [
        ("e=other-error", "not a challenge"),
        ("\xff", "not a challenge"),
        ("r={nonce},s=a,i=4096", "wrong"),
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


def test_challenge_may_have_extensions() -> None:
    exchange, server = begun()
    assert not exchange.receive(server.challenge + b",x=later")


@pytest.mark.parametrize(
    "final", [b"", b"v=", b"e=other-error", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="]
)
def test_broker_that_does_not_know_the_password_is_refused(final: bytes) -> None:
    exchange, server = begun()
    exchange.receive(server.challenge)
    exchange.token()
    with pytest.raises(LoginError, match="SCRAM-SHA-256 message is wrong"):
        exchange.receive(final)
