"""Noticing that a peer has gone while nothing is read from it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import closing

import pytest

from proxy.net.shared import Hangups
from tests.component.proxy.net.rig import End, listening, until


class Watched:
    """One watched end of a connection, the peer's end, and what was noticed: whether it was a reset."""

    def __init__(self) -> None:
        with listening() as server:
            self.near = socket.create_connection(server.getsockname())
            self.far = End(server.accept()[0])
        self.seen: list[bool] = []
        self.hangups = Hangups(asyncio.get_running_loop())
        self.hangups.watch(self.near.fileno(), self.seen.append)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    with closing(made.near), closing(made.far), closing(made.hangups):
        yield made


@pytest.mark.parametrize(
    ("unread", "end", "reset"),
    [(b"", End.close, False), (b"", End.reset, True), (b"unread", End.close, False)],
    ids=["close", "reset", "close behind unread bytes"],
)
async def test_end_is_noticed(
    watched: Watched, unread: bytes, end: Callable[[End], None], reset: bool
) -> None:
    watched.far.sock.send(unread)
    end(watched.far)
    await until(lambda: watched.seen == [reset], "the end is noticed")


@pytest.mark.parametrize("is_watched", [True, False])
async def test_neither_unread_bytes_nor_an_unwatched_peer_are_noticed(
    watched: Watched, is_watched: bool
) -> None:
    watched.far.sock.send(b"unread")
    if not is_watched:
        for _ in range(2):  # the second time harmless
            watched.hangups.unwatch(watched.near.fileno())
        watched.far.close()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not watched.seen
