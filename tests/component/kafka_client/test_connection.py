"""Sluice's own SASL identity, against a scripted broker."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from kafka_client import Connection, Login, LoginError
from protocol.api import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from proxy.config import Address, ClusterOptions
from proxy.control.cluster import BrokerClient, BrokerMap, Poller, login_of
from proxy.system.stats import Stats
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, decoded, framed

HOST = "127.0.0.1"
SECRET = "very-secret-indeed"


def welcome(error: int = 0) -> bytes:
    return framed(RESPONSES[SASL_HANDSHAKE][1](error_code=error, mechanisms=["PLAIN"]), correlation_id=1)


def verdict(token: bytes = b"", error: int = 0, message: str | None = None) -> bytes:
    response = RESPONSES[SASL_AUTHENTICATE][0](error_code=error, error_message=message, auth_bytes=token)
    return framed(response, correlation_id=1)


@asynccontextmanager
async def broker(responses: Sequence[bytes], heard: list[bytes]) -> AsyncIterator[Address]:
    """A broker that answers one request after the other, then closes."""
    ended: list[asyncio.Future[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        done = asyncio.get_running_loop().create_future()
        ended.append(done)
        with suppress(asyncio.IncompleteReadError):
            for response in responses:
                head = await reader.readexactly(4)
                (length,) = struct.unpack(">i", head)
                heard.append(head + await reader.readexactly(length))
                writer.write(response)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        done.set_result(None)

    server = await asyncio.start_server(serve, HOST, 0)
    async with server:
        yield Address(HOST, server.sockets[0].getsockname()[1])
        await asyncio.gather(*ended)


async def logged_in(login: Login, responses: Sequence[bytes]) -> list[bytes]:
    """Log in once; gives the frames that the broker heard."""
    heard: list[bytes] = []
    async with broker(responses, heard) as address:
        connection = await Connection.open(*address, login=login)
        connection.close()
    return heard


def from_file(path: Path) -> Login:
    """The login that a configuration with a password file gives."""
    login = login_of(ClusterOptions(sasl_mechanism="PLAIN", username="sluice", password_file=path))
    assert login is not None
    return login


def token_in(frame: bytes) -> bytes:
    found: bytes = decoded(REQUESTS[SASL_AUTHENTICATE], 0, frame).auth_bytes
    return found


async def test_plain_shows_name_and_password() -> None:
    heard = await logged_in(Login("PLAIN", "sluice", SECRET), [welcome(), verdict()])
    assert decoded(REQUESTS[SASL_HANDSHAKE], 1, heard[0]).mechanism == "PLAIN"
    assert token_in(heard[1]) == b"sluice\0sluice\0" + SECRET.encode()


async def test_scram_never_shows_the_password() -> None:
    heard: list[bytes] = []
    async with broker([welcome(), verdict(b"r=wrong,s=c2FsdA==,i=4096")], heard) as address:
        with pytest.raises(LoginError, match="did not start with client nonce"):
            await Connection.open(*address, login=Login("SCRAM-SHA-512", "sluice", SECRET))
    assert token_in(heard[1]).startswith(b"n,,n=sluice,r=")
    assert SECRET.encode() not in b"".join(heard)


async def test_mechanism_that_the_broker_does_not_take_is_named() -> None:
    with pytest.raises(LoginError, match=r"does not support SCRAM-SHA-256 \(error 33\)"):
        await logged_in(Login("SCRAM-SHA-256", "sluice", SECRET), [welcome(33)])


async def test_refusal_is_told_in_the_brokers_words() -> None:
    with pytest.raises(
        LoginError, match=r"refuses the credentials \(error 58\): Invalid username or password"
    ):
        await logged_in(
            Login("PLAIN", "sluice", SECRET),
            [welcome(), verdict(error=58, message="Invalid username or password")],
        )


async def test_password_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "password"
    login = from_file(path)
    for password in ("one", "two"):
        path.write_text(password + "\n")
        heard = await logged_in(login, [welcome(), verdict()])
        assert token_in(heard[1]) == b"sluice\0sluice\0" + password.encode()


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read: No such file"), (b"\n", "is empty"), (b"\xff", "is not UTF-8")],
)
async def test_password_file_that_cannot_be_used(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoginError, match=problem):
        await logged_in(from_file(path), [])


def test_login_is_made_of_the_options(tmp_path: Path) -> None:
    assert login_of(ClusterOptions()) is None
    given = ClusterOptions(sasl_mechanism="PLAIN", username="sluice", password_file=tmp_path)
    assert isinstance(login_of(given), Login)


async def test_poller_logs_in_before_it_asks() -> None:
    metadata = framed(RESPONSES[METADATA](version=1, brokers=[], topics=[]), correlation_id=1)
    heard: list[bytes] = []
    async with broker([welcome(), verdict(), metadata], heard) as address:
        client = BrokerClient(BrokerMap((address,), Stats()), Login("PLAIN", "sluice", SECRET))
        poller = Poller(client, None, follow=True)
        await poller.poll()
    assert poller.problem == ""
    assert [struct.unpack_from(">h", frame, 4)[0] for frame in heard] == [
        SASL_HANDSHAKE,
        SASL_AUTHENTICATE,
        METADATA,
    ]


async def test_refused_poller_says_why_and_not_the_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with broker([welcome(), verdict(error=58, message="Authentication failed")], []) as address:
        client = BrokerClient(BrokerMap((address,), Stats()), Login("PLAIN", "sluice", SECRET))
        poller = Poller(client, None, follow=True)
        await poller.poll()
    assert "Authentication failed" in poller.problem
    assert SECRET not in poller.problem + caplog.text + repr(poller)


async def test_broker_that_closes_at_once_may_ask_for_sasl() -> None:
    async with broker([], []) as address:
        poller = Poller(BrokerClient(BrokerMap((address,), Stats())), None, follow=True)
        await poller.poll()
    assert "SASL" in poller.problem or "reset" in poller.problem.lower()
