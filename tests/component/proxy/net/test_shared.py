"""Noticing that a peer has gone while nothing is read from it."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest

from proxy.net.shared import Hangups
from tests.component.proxy.net.rig import HOST, until


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of one connection."""
    with closing(socket.create_server((HOST, 0))) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with closing(near), closing(far):
        yield near, far


async def test_close_is_noticed(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    hangups, seen = Hangups(asyncio.get_running_loop()), list[bool]()
    hangups.watch(near.fileno(), seen.append)
    far.close()
    await until(lambda: seen == [False], "the close is noticed")
    hangups.close()


async def test_reset_is_told_from_a_close(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    hangups, seen = Hangups(asyncio.get_running_loop()), list[bool]()
    hangups.watch(near.fileno(), seen.append)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    await until(lambda: seen == [True], "the reset is noticed")
    hangups.close()


async def test_close_behind_unread_bytes_is_noticed(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    hangups, seen = Hangups(asyncio.get_running_loop()), list[bool]()
    hangups.watch(near.fileno(), seen.append)
    far.sendall(b"unread")
    far.close()
    await until(lambda: bool(seen), "the close is noticed")
    hangups.close()


async def test_unread_bytes_alone_are_not_a_close(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    hangups, seen = Hangups(asyncio.get_running_loop()), list[bool]()
    hangups.watch(near.fileno(), seen.append)
    far.sendall(b"unread")
    for _ in range(20):
        await asyncio.sleep(0)
    assert not seen
    hangups.close()


async def test_close_of_an_unwatched_peer_is_not_reported(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    hangups, seen = Hangups(asyncio.get_running_loop()), list[bool]()
    hangups.watch(near.fileno(), seen.append)
    hangups.unwatch(near.fileno())
    far.close()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not seen
    hangups.close()


async def test_unwatching_an_unwatched_socket_is_harmless() -> None:
    hangups = Hangups(asyncio.get_running_loop())
    hangups.unwatch(12345)
    hangups.close()
