"""Sluice's own SASL identity, against a scripted broker."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafka_client import Connection, Login, LoginError
from protocol.api import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from proxy.config import ClusterOptions
from proxy.control.cluster import BrokerClient, BrokerMap, Poller, login_of
from proxy.system.stats import Stats
from tests.support.loop_broker import LoopBroker, listening
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, decoded, framed

SECRET = "very-secret-indeed"
PLAIN = Login("PLAIN", "sluice", SECRET)


def welcome(error: int = 0) -> bytes:
    return framed(RESPONSES[SASL_HANDSHAKE][1](error_code=error, mechanisms=["PLAIN"]), correlation_id=1)


def verdict(token: bytes = b"", error: int = 0, message: str | None = None) -> bytes:
    response = RESPONSES[SASL_AUTHENTICATE][0](error_code=error, error_message=message, auth_bytes=token)
    return framed(response, correlation_id=1)


@asynccontextmanager
async def broker(*responses: bytes) -> AsyncIterator[LoopBroker]:
    """A broker that responds to one request after the other, then closes."""
    left = iter(responses)
    async with listening(lambda _: next(left, None)) as found:
        yield found


async def logged_in(login: Login, *responses: bytes) -> list[bytes]:
    """Log in once; return the frames that the broker was asked."""
    async with broker(*responses) as found:
        (await Connection.open(*found.address, login=login)).close()
    return found.asked


async def polled(found: LoopBroker, login: Login | None = None) -> Poller:
    poller = Poller(BrokerClient(BrokerMap((found.address,), Stats()), login), None, follow=True)
    await poller.poll()
    return poller


def from_file(path: Path) -> Login:
    """The login that a configuration with a password file gives."""
    login = login_of(ClusterOptions(sasl_mechanism="PLAIN", username="sluice", password_file=path))
    assert login is not None
    return login


def token_in(frame: bytes) -> bytes:
    found: bytes = decoded(REQUESTS[SASL_AUTHENTICATE], 0, frame).auth_bytes
    return found


async def test_scram_never_shows_the_password() -> None:
    async with broker(welcome(), verdict(b"r=wrong,s=c2FsdA==,i=4096")) as found:
        with pytest.raises(LoginError, match="did not start with client nonce"):
            await Connection.open(*found.address, login=Login("SCRAM-SHA-512", "sluice", SECRET))
    assert token_in(found.asked[1]).startswith(b"n,,n=sluice,r=")
    assert SECRET.encode() not in b"".join(found.asked)


async def test_mechanism_that_the_broker_does_not_take_is_named() -> None:
    with pytest.raises(LoginError, match=r"does not support SCRAM-SHA-256 \(error 33\)"):
        await logged_in(Login("SCRAM-SHA-256", "sluice", SECRET), welcome(33))


async def test_refusal_is_told_in_the_brokers_words() -> None:
    with pytest.raises(LoginError, match=r"refuses the credentials \(error 58\): Invalid password"):
        await logged_in(PLAIN, welcome(), verdict(error=58, message="Invalid password"))


async def test_password_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "password"
    login = from_file(path)
    for password in ("one", "two"):
        path.write_text(password + "\n")
        heard = await logged_in(login, welcome(), verdict())
        assert decoded(REQUESTS[SASL_HANDSHAKE], 1, heard[0]).mechanism == "PLAIN"
        assert token_in(heard[1]) == b"sluice\0sluice\0" + password.encode()
    assert login_of(ClusterOptions()) is None, "without SASL"


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read: No such file"), (b"\n", "is empty"), (b"\xff", "is not UTF-8")],
)
async def test_password_file_that_cannot_be_used(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoginError, match=problem):
        await logged_in(from_file(path))


async def test_poller_logs_in_before_it_asks() -> None:
    metadata = framed(RESPONSES[METADATA](version=2, brokers=[], topics=[]), correlation_id=1)
    async with broker(welcome(), verdict(), metadata) as found:
        assert (await polled(found, PLAIN)).problem == ""
    assert found.keys() == [SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA]


async def test_refused_poller_says_why_and_not_the_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with broker(welcome(), verdict(error=58, message="Authentication failed")) as found:
        poller = await polled(found, PLAIN)
    assert "Authentication failed" in poller.problem
    assert SECRET not in poller.problem + caplog.text + repr(poller)


async def test_broker_that_closes_at_once_may_ask_for_sasl() -> None:
    async with broker() as found:
        problem = (await polled(found)).problem
    assert "SASL" in problem or "reset" in problem.lower()
