"""Sockets over their address's rate: who is closed when."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from proxy.net.by_address import WAITING_MAX, WaitingRoom
from proxy.system.stats import Stats
from tests.component.proxy.net.rig import until

Pairs = list[tuple[socket.socket, socket.socket]]


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    """Ten connections: our end, which a room may close, and the client's."""
    made = [socket.socketpair() for _ in range(10)]
    for _, theirs in made:
        theirs.setblocking(False)
    yield made
    for ours, theirs in made:
        ours.close()
        theirs.close()


def closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False


async def test_connection_with_the_earliest_deadline_is_closed_first(pairs: Pairs) -> None:
    stats = Stats()
    room = WaitingRoom(asyncio.get_running_loop(), stats)
    (long, far), (short, near) = pairs[:2]
    room.add(long, 60_000, 1000)
    room.add(short, 20, 1000)
    assert (stats.connections_waiting, closed(near)) == (2, False)
    await until(lambda: closed(near), "the later one, whose time is shorter")
    assert (stats.connections_waiting, closed(far)) == (1, False)
    room.close()
    assert closed(far)


async def test_full_room_closes_the_first_to_make_room(pairs: Pairs) -> None:
    stats = Stats()
    room = WaitingRoom(asyncio.get_running_loop(), stats)
    for ours, _ in pairs:
        room.add(ours, 60_000, 1000)
    for _ in range(WAITING_MAX - 9):  # one more than there is room for
        room.add(socket.socket(), 60_000, 2000)
    assert stats.connections_waiting == WAITING_MAX
    assert closed(pairs[0][1])
    assert not closed(pairs[1][1])
    room.close()
