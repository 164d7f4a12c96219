"""The HTTP server on streams without sockets: bytes in, bytes out, and its limits."""

import asyncio
import logging

import pytest

from proxy.admin import AdminServer, Page, Request
from proxy.admin import server as module
from proxy.admin.http import HEAD_BYTES_MAX
from proxy.config import Address
from proxy.errors import StartError


class Pipe(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: "bytes | bytearray | memoryview[int]") -> None:
        """Keep it."""
        self.written += bytes(data)

    def is_closing(self) -> bool:
        """Tell whether it was closed."""
        return self.closed

    def close(self) -> None:
        """Close it."""
        self.closed = True

    def abort(self) -> None:
        """Close it at once."""
        self.closed = True


async def hello(request: Request) -> Page:
    return Page(200, "text/plain", f"hello {request.accept}\n".encode())


async def broken(_: Request) -> Page:
    raise ValueError("boom")


def made(request_seconds_max: float = 5.0) -> AdminServer:
    return AdminServer({"/": hello, "/broken": broken}, request_seconds_max)


async def serve(server: AdminServer, sent: bytes, *, eof: bool = True) -> Pipe:
    """Let a client send something and close."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
    protocol = asyncio.StreamReaderProtocol(reader)
    pipe = Pipe()
    protocol.connection_made(pipe)
    writer = asyncio.StreamWriter(pipe, protocol, reader, loop)
    reader.feed_data(sent)
    if eof:
        reader.feed_eof()
    await server._serve(reader, writer)
    protocol.connection_lost(None)
    return pipe


def statuses(pipe: Pipe) -> list[int]:
    return [int(part[:3]) for part in pipe.written.decode().split("HTTP/1.1 ")[1:]]


async def test_page_is_answered() -> None:
    pipe = await serve(made(), b"GET / HTTP/1.1\r\nAccept: x\r\n\r\n")
    assert statuses(pipe) == [200]
    assert pipe.written.endswith(b"hello x\n")
    assert pipe.closed


async def test_requests_follow_each_other_on_one_connection() -> None:
    pipe = await serve(made(), b"GET / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\n\r\nGET /no HTTP/1.1\r\n\r\n")
    assert statuses(pipe) == [200, 200, 404]
    assert pipe.written.count(b"hello") == 1


async def test_nothing_follows_a_request_to_close() -> None:
    pipe = await serve(made(), b"GET / HTTP/1.1\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert statuses(pipe) == [200]


async def test_refused_request_ends_the_connection() -> None:
    pipe = await serve(made(), b"POST / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert statuses(pipe) == [405]
    assert pipe.closed


async def test_head_over_the_limit_is_refused() -> None:
    pipe = await serve(made(), b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * HEAD_BYTES_MAX, eof=False)
    assert statuses(pipe) == [431]
    assert pipe.closed


async def test_client_that_sends_nothing_more_is_closed_in_time() -> None:
    pipe = await serve(made(request_seconds_max=0), b"GET / HT", eof=False)
    assert pipe.written == b""
    assert pipe.closed


async def test_client_that_closes_mid_request_is_nobodys_error(caplog: pytest.LogCaptureFixture) -> None:
    pipe = await serve(made(), b"GET / HT")
    assert pipe.closed
    assert not caplog.records


async def test_page_that_fails_is_a_500_and_logged_and_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    pipe = await serve(made(), b"GET /broken HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert statuses(pipe) == [500, 200]
    assert b"boom" not in pipe.written
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 1)
    server = made()
    first = asyncio.create_task(serve(server, b"", eof=False))
    await asyncio.sleep(0)
    second = await serve(server, b"GET / HTTP/1.1\r\n\r\n")
    assert second.written == b""
    assert second.closed
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert statuses(await serve(server, b"GET / HTTP/1.1\r\n\r\n")) == [200]


async def test_port_in_use_is_a_start_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> asyncio.Server:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(asyncio, "start_server", refuse)
    with pytest.raises(
        StartError, match=r"^admin\.bind: 127\.0\.0\.1:19080 cannot be bound: Address already"
    ):
        await made().start(Address("127.0.0.1", 19080))


async def test_close_before_start_does_nothing() -> None:
    await made().close()
