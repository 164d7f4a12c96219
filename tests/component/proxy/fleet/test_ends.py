"""The ends of members, by their connections and ports, on loopback."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from proxy.fleet.ends import Ends, Place, Sign, place_of, refuses
from quotas.sharing.lease_values import LesseeId
from tests.component.proxy.fleet.rig import until

A, B = LesseeId("a", 1), LesseeId("b", 2)


class Seen:
    """Which members have ended."""

    def __init__(self) -> None:
        self.signs: list[tuple[LesseeId, Sign]] = []
        self.ends = Ends(lambda lessee, sign: self.signs.append((lessee, sign)))

    async def reach(self, lessee: LesseeId, place: Place) -> None:
        """Connect a member, and let its port be looked at."""
        self.ends.connected(lessee, place)
        await asyncio.sleep(0.1)


@pytest.fixture
def port() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(5)
        yield sock


def place(sock: socket.socket) -> Place:
    host, number = sock.getsockname()
    return host, number


async def test_a_port_refuses_when_nothing_listens(port: socket.socket) -> None:
    where = place(port)
    assert await refuses(where) is False  # as that of a process that is stopped: the kernel accepts
    port.close()
    assert await refuses(where) is True
    assert await refuses(("no address", 1)) is None


async def test_a_member_has_ended_when_its_connection_is_closed_and_its_port_too(port: socket.socket) -> None:
    seen, where = Seen(), place(port)
    await seen.reach(A, where)
    seen.ends.closed(A)
    await asyncio.sleep(0.3)
    assert seen.signs == []  # it listens
    port.close()
    await until(lambda: seen.signs == [(A, "refused")])


async def test_a_member_that_connects_again_has_not_ended(port: socket.socket) -> None:
    seen, where = Seen(), place(port)
    await seen.reach(A, where)
    seen.ends.closed(A)
    await seen.reach(A, where)
    port.close()
    await asyncio.sleep(0.5)
    assert seen.signs == []


async def test_a_port_that_was_never_reached_says_nothing(port: socket.socket) -> None:
    seen, where = Seen(), place(port)
    port.close()
    await seen.reach(A, where)
    seen.ends.closed(A)
    await asyncio.sleep(0.5)
    assert seen.signs == []


async def test_a_member_has_ended_when_another_one_has_its_port(port: socket.socket) -> None:
    seen, where = Seen(), place(port)
    await seen.reach(A, where)
    seen.ends.closed(A)
    seen.ends.connected(B, where)
    assert seen.signs == [(A, "replaced")]
    seen.ends.keep(set())


async def test_members_behind_one_address_are_never_told_apart(port: socket.socket) -> None:
    seen, where = Seen(), place(port)
    await seen.reach(A, where)
    await seen.reach(B, where)  # both are connected
    await seen.reach(A, where)
    seen.ends.closed(A)
    seen.ends.connected(B, where)
    port.close()
    await asyncio.sleep(0.5)
    assert seen.signs == []


@pytest.mark.parametrize("text", [None, "", "0", "65536", "-1", "x", "1" * 300])
async def test_only_a_port_is_a_port(text: str | None) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with theirs:
        _, writer = await asyncio.open_connection(sock=ours)
        assert place_of(writer, text) is None
        writer.close()
