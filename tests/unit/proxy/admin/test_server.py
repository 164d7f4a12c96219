"""The HTTP server on streams without sockets: bytes in, bytes out, and its limits."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from proxy.admin import AdminServer, Page, Request
from proxy.admin import server as module
from proxy.admin.http import HEAD_BYTES_MAX
from proxy.config import Address
from proxy.system.errors import StartError


class Pipe(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self, host: str = "10.0.0.1") -> None:
        super().__init__({"peername": (host, 1)})
        self.written = b""
        self.closed = False
        self.protocol: asyncio.StreamReaderProtocol

    def write(self, data: "bytes | bytearray | memoryview[int]") -> None:
        """Keep it."""
        self.written += bytes(data)

    def is_closing(self) -> bool:
        """Tell whether it was closed."""
        return self.closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Be told that nothing may be left when a response counts as taken."""
        assert (high, low) == (0, None)

    def close(self) -> None:
        """Close it."""
        self.closed = True

    def abort(self) -> None:
        """Close it at once."""
        self.closed = True
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, ConnectionAbortedError())


async def hello(request: Request) -> Page:
    return Page(200, "text/plain", f"hello {request.accept}\n".encode())


async def broken(_: Request) -> Page:
    raise ValueError("boom")


async def never(_: Request) -> Page:
    await asyncio.Event().wait()
    raise AssertionError("nothing sets it")


async def not_taken(_: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def made(request_seconds_max: float = 5.0) -> AdminServer:
    return AdminServer(
        {"/": hello, "/broken": broken, "/slow": never}, ["Admin.example"], request_seconds_max
    )


async def serve(server: AdminServer, sent: bytes, *, eof: bool = True, pipe: Pipe | None = None) -> Pipe:
    """Let a client send something and close."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
    protocol = asyncio.StreamReaderProtocol(reader)
    pipe = pipe or Pipe()
    protocol.connection_made(pipe)
    pipe.protocol = protocol
    writer = asyncio.StreamWriter(pipe, protocol, reader, loop)
    reader.feed_data(sent)
    if eof:
        reader.feed_eof()
    await server.serve(reader, writer)
    protocol.connection_lost(None)
    return pipe


def statuses(pipe: Pipe) -> list[int]:
    return [int(part[:3]) for part in pipe.written.decode().split("HTTP/1.1 ")[1:]]


async def test_requests_follow_each_other_on_one_connection() -> None:
    sent = b"GET / HTTP/1.1\r\nAccept: x\r\n\r\nHEAD / HTTP/1.1\r\n\r\nGET /no HTTP/1.1\r\n\r\n"
    pipe = await serve(made(), sent)
    assert statuses(pipe) == [200, 200, 404]
    assert pipe.written.count(b"hello") == pipe.written.count(b"\r\n\r\nhello x\n") == 1
    assert pipe.closed


async def test_traffic_has_its_turn_between_requests_that_follow_each_other() -> None:
    turns = 0

    async def traffic() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(traffic())
    pipe = await serve(made(), b"GET / HTTP/1.1\r\n\r\n" * 400)  # 7 KiB: all are here at once
    task.cancel()
    assert statuses(pipe) == [200] * 400
    assert turns >= 400


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\n\r\n", 200),
        (b"POST / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * HEAD_BYTES_MAX, 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example\r\n\r\nGET / HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01", 400),
    ],
    ids=["to close", "refused", "a head over the limit", "two hosts", "a TLS hello"],
)
async def test_nothing_follows_a_request_that_ends_the_connection(sent: bytes, status: int) -> None:
    pipe = await serve(made(), sent, eof=False)
    assert statuses(pipe) == [status]
    assert pipe.closed


async def test_client_that_sends_nothing_more_is_closed_in_time() -> None:
    pipe = await serve(made(request_seconds_max=0), b"GET / HT", eof=False)
    assert pipe.written == b""
    assert pipe.closed


async def test_client_that_closes_mid_request_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    pipe = await serve(made(), b"GET / HT")
    assert pipe.closed
    assert not caplog.records


async def test_page_that_fails_is_a_500_and_logged_and_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    pipe = await serve(made(), b"GET /broken HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert statuses(pipe) == [500, 200]
    assert b"boom" not in pipe.written
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


class Idle:
    """Connections that were opened and not used."""

    def __init__(self, server: AdminServer) -> None:
        self.server = server
        self.pipes: list[Pipe] = []
        self._tasks: list[asyncio.Task[Pipe]] = []

    async def open(self, host: str, sent: bytes = b"") -> Pipe:
        """Open one more."""
        pipe = Pipe(host)
        self.pipes.append(pipe)
        self._tasks.append(asyncio.create_task(serve(self.server, sent, eof=False, pipe=pipe)))
        for _ in range(5):
            await asyncio.sleep(0)
        return pipe

    async def end(self) -> None:
        """Close them all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def idle() -> AsyncIterator[Idle]:
    """A server, and connections to it that are not used."""
    opened = Idle(made())
    yield opened
    await opened.end()


async def test_newcomer_gets_a_response_though_all_connections_are_taken(idle: Idle) -> None:
    for _ in range(module.CONNECTIONS_MAX):
        await idle.open("10.0.0.1")
    assert statuses(await serve(idle.server, b"GET / HTTP/1.1\r\n\r\n")) == [200]
    assert [pipe.closed for pipe in idle.pipes] == [True] + [False] * (module.CONNECTIONS_MAX - 1)


@pytest.mark.parametrize(
    ("maximum", "opened"),
    [
        (3, [("10.0.0.1", b""), ("10.0.0.2", b""), ("10.0.0.2", b""), ("10.0.0.3", b"")]),
        (2, [("10.0.0.1", b"GET /slow HTTP/1.1\r\n\r\n"), ("10.0.0.1", b""), ("10.0.0.1", b"")]),
    ],
    ids=["of the address with most connections", "an idle one before a served one"],
)
async def test_second_connection_gives_way(
    idle: Idle, monkeypatch: pytest.MonkeyPatch, maximum: int, opened: list[tuple[str, bytes]]
) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", maximum)
    for host, sent in opened:
        await idle.open(host, sent)
    assert [number for number, pipe in enumerate(idle.pipes) if pipe.closed] == [1]


async def test_responses_that_are_not_taken_are_bounded(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len((await idle.open("10.0.0.9", b"GET / HTTP/1.1\r\n\r\n")).written)
    monkeypatch.setattr(module, "UNSENT_BYTES_MAX", 2 * size)
    monkeypatch.setattr(asyncio.StreamWriter, "drain", not_taken)
    for _ in range(3):
        await idle.open("10.0.0.1", b"GET / HTTP/1.1\r\n\r\n")
    assert [pipe.closed for pipe in idle.pipes] == [False, True, False, False]


OWN = [
    "127.0.0.1:19080",
    "192.0.2.7",
    "[::1]:19080",
    "localhost",
    "LOCALHOST.:80",
    "admin.example:19080",
    "ADMIN.EXAMPLE",
]
OTHERS = ["rebound.example", "admin.example.evil.example", "[::1].evil", "127.0.0.1.evil", "[x"]


@pytest.mark.parametrize(
    ("host", "status"), [*((host, 200) for host in OWN), *((host, 403) for host in OTHERS)]
)
async def test_only_a_request_for_a_known_host_gets_a_page(host: str, status: int) -> None:
    assert statuses(await serve(made(), f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())) == [status]


async def test_port_in_use_is_a_start_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asyncio's own text begins with `error while attempting to bind` and the address again."""

    async def refuse(*_: object, **__: object) -> asyncio.Server:
        address = ("127.0.0.1", 19080)
        raise OSError(98, f"error while attempting to bind on address {address}: address already in use")

    monkeypatch.setattr(asyncio, "start_server", refuse)
    problem = r"^admin\.bind: 127\.0\.0\.1:19080 cannot be bound: Address already in use$"
    with pytest.raises(StartError, match=problem):
        await made().start(Address("127.0.0.1", 19080))


async def test_close_before_start_does_nothing() -> None:
    await made().close()
