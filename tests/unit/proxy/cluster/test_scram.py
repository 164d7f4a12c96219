"""proxy.cluster.scram: the exchange of RFC 7677, section 3, and every way in which a broker can be wrong."""

import pytest

from proxy.cluster.scram import Scram, ScramError

NONCE = "rOprNGfwEbeRWgbNEkqO"
BOTH = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
CHALLENGE = f"r={BOTH},s={SALT},i=4096".encode()


def scram() -> Scram:
    return Scram("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_exchange_of_the_rfc() -> None:
    exchange = scram()
    assert exchange.first() == f"n,,n=user,r={NONCE}".encode()
    assert (
        exchange.final(CHALLENGE)
        == f"c=biws,r={BOTH},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    exchange.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_name_is_escaped() -> None:
    assert Scram("SCRAM-SHA-512", "a,b=c", "x", "n").first() == b"n,,n=a=2Cb=3Dc,r=n"


@pytest.mark.parametrize(
    ("challenge", "problem"),
    [
        (b"e=other-error", "malformed"),
        (b"\xff", "malformed"),
        (f"r={BOTH},s=!,i=4096".encode(), "malformed"),
        (f"r={BOTH},s=a,i=4096".encode(), "malformed"),
        (f"r={NONCE},s={SALT},i=4096".encode(), "does not continue"),
        (f"r=another,s={SALT},i=4096".encode(), "does not continue"),
        (f"r={BOTH},s={SALT},i=4095".encode(), "4095 iterations"),
        (f"r={BOTH},s={SALT},i=999999999".encode(), "999999999 iterations"),
    ],
)
def test_challenge_that_cannot_be_is_refused(challenge: bytes, problem: str) -> None:
    with pytest.raises(ScramError, match=problem):
        scram().final(challenge)


@pytest.mark.parametrize(
    "final", [b"", b"v=", b"e=other-error", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="]
)
def test_broker_that_does_not_know_the_password_is_refused(final: bytes) -> None:
    exchange = scram()
    exchange.final(CHALLENGE)
    with pytest.raises(ScramError, match="did not prove"):
        exchange.verify(final)
