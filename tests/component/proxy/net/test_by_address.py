"""Sockets over their address's rate: who is closed when."""

import asyncio
import socket

from proxy.net.by_address import WAITING_MAX, WaitingRoom
from proxy.system.stats import Stats
from tests.component.proxy.net.rig import until


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    return ours, theirs


def closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False


async def test_socket_is_closed_when_its_time_is_over() -> None:
    stats = Stats()
    room = WaitingRoom(asyncio.get_running_loop(), stats)
    ours, theirs = pair()
    room.add(ours, 50, 1000)
    assert stats.connections_waiting == 1
    assert not closed(theirs)
    await until(lambda: closed(theirs), "closed")
    assert stats.connections_waiting == 0
    theirs.close()


async def test_connection_with_the_earliest_deadline_is_closed_first() -> None:
    room = WaitingRoom(asyncio.get_running_loop(), Stats())
    (long, far), (short, near) = pair(), pair()
    room.add(long, 60_000, 1000)
    room.add(short, 20, 1000)
    await until(lambda: closed(near), "the later one, whose time is shorter")
    assert not closed(far)
    room.close()
    assert closed(far)
    near.close()
    far.close()


async def test_full_room_closes_the_first_to_make_room() -> None:
    stats = Stats()
    room = WaitingRoom(asyncio.get_running_loop(), stats)
    pairs = [pair() for _ in range(10)]
    first = pairs[0][1]
    for ours, _ in pairs:
        room.add(ours, 60_000, 1000)
    others = [socket.socket() for _ in range(WAITING_MAX - 9)]  # one more than there is room for
    for sock in others:
        room.add(sock, 60_000, 2000)
    assert stats.connections_waiting == WAITING_MAX
    assert closed(first)
    assert not closed(pairs[1][1])
    room.close()
    for _, theirs in pairs:
        theirs.close()
