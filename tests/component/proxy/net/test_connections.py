"""Calls for every connection: one that has ended meanwhile is skipped, one that raises ends alone."""

import asyncio
from itertools import pairwise
from typing import cast

import pytest

from proxy.net.by_address import ByAddress
from proxy.net.connection import Connection
from proxy.net.connections import Connections, end_owner, make_room
from proxy.net.pump import Pump
from proxy.net.shared import Arriving
from proxy.system.clock import now_ms
from tests.component.proxy.net.rig import Rig, until


class Fake:
    """A connection that notes what is done with it, and raises where it is told to."""

    def __init__(self, connections: Connections, *, raises: bool = False, active_ms: int = 0) -> None:
        self._connections = connections
        self._raises = raises
        self.requests = None
        self.closed = False
        self.active_ms = active_ms
        self.swept = 0
        self.drained = 0
        self.causes: list[str] = []

    def sweep(self, _: int) -> None:
        """Raise on a closed one, as ioctl(-1) does."""
        assert not self.closed, "it is closed"
        self.swept += 1
        if self._raises:
            raise ValueError("file descriptor cannot be a negative integer (-1)")

    def drain(self, _: int) -> None:
        """Count it."""
        self.drained += 1

    def failed(self, _: object, error: Exception) -> None:
        """End."""
        self.close(type(error).__name__)

    def close(self, cause: str, detail: str = "") -> None:
        """End."""
        assert detail is not None
        self.closed = True
        self.causes.append(cause)
        self._connections.discard(cast("Connection", self))


def filled(count: int, raising: int = -1) -> tuple[Connections, list[Fake]]:
    connections = Connections()
    fakes = [Fake(connections, raises=index == raising) for index in range(count)]
    for fake in fakes:
        connections.add(cast("Connection", fake), "10.0.0.1")
    return connections, fakes


async def test_connection_that_ends_between_two_portions_is_passed_over() -> None:
    connections, fakes = filled(450)
    sweep = asyncio.create_task(connections.sweep())
    await asyncio.sleep(0)  # the first 200
    for fake in fakes[200:]:
        fake.close("client_closed")
    await sweep
    assert [fake.swept for fake in fakes] == [1] * 200 + [0] * 250


async def test_connection_that_raises_ends_alone() -> None:
    connections, fakes = filled(3, raising=1)
    await connections.sweep()
    assert [fake.causes for fake in fakes] == [[], ["ValueError"], []]
    assert [fake.swept for fake in fakes] == [1, 1, 1]


async def test_connection_that_can_not_even_end_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    connections, fakes = filled(3, raising=1)

    def fail(*_: object) -> None:
        raise OSError("bad file descriptor")

    monkeypatch.setattr(fakes[1], "failed", fail)
    await connections.sweep()
    assert (len(connections), fakes[2].swept) == (2, 1)


@pytest.mark.parametrize(("count", "gap_ms"), [(1, 500), (3, 500), (100, 50)])
def test_connections_of_an_address_begin_to_end_one_after_the_other(count: int, gap_ms: int) -> None:
    connections, fakes = filled(count)
    for index in range(20):  # of others
        connections.add(cast("Connection", Fake(connections)), f"10.0.1.{index}")
    times = connections.drain_times(1000, 5000)
    own = sorted(times[cast("Connection", fake)] for fake in fakes)
    assert 1000 <= own[0] <= 1000 + gap_ms
    assert all(later - earlier in (gap_ms - 1, gap_ms, gap_ms + 1) for earlier, later in pairwise(own))
    assert max(times.values()) <= 1000 + 5000


async def test_connection_continues_its_shutdown_when_its_time_has_come() -> None:
    connections, (first, second, third) = filled(3)
    now = now_ms()
    first_, second_ = cast("Connection", first), cast("Connection", second)
    await connections.drain({first_: now - 1, second_: now + 60_000})
    assert [fake.drained for fake in (first, second, third)] == [1, 0, 1]  # the last one has come since


@pytest.mark.parametrize("act", ["sweep", "reconsider", "drain"])
async def test_visits_to_a_closed_connection_do_nothing(rig: Rig, act: str) -> None:
    rig.connect()
    connection = rig.connection
    connection.close("client_closed")
    getattr(connection, act)(*([] if act == "reconsider" else [10_000_000]))
    assert rig.stats.errors == {}


async def test_connection_whose_pump_raises_ends_and_spins_no_loop(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Connection, _pump: Pump) -> None:
        raise RuntimeError("a bug")

    client, other = rig.connect(), rig.connect()
    failing = next(iter(rig.connections))
    monkeypatch.setattr(Connection, "ended", fail)
    (client if failing.peer.endswith(str(client.sock.getsockname()[1])) else other).close()
    await until(lambda: len(rig.connections) == 1, "it has ended")
    assert rig.stats.errors == {"internal": 1}


async def test_connection_whose_callback_raises_ends(rig: Rig) -> None:
    raised: list[BaseException] = []

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context["exception"]
        assert isinstance(error, Exception)
        raised.append(error)
        end_owner(error)

    def fail(self: Connection) -> None:
        raise RuntimeError(f"a bug with {self.peer}")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(handle)
    rig.connect(), rig.connect()
    loop.call_soon(fail, next(iter(rig.connections)))
    await until(lambda: len(rig.connections) == 1, "it has ended")
    assert (rig.stats.errors, len(raised)) == ({"internal": 1}, 1)


async def test_exception_of_no_connection_ends_none(rig: Rig) -> None:
    rig.connect()
    end_owner(RuntimeError("never raised"))
    assert len(rig.connections) == 1
    assert rig.stats.errors == {}


class Coming:
    """A connection on its way in."""

    def __init__(self, arrivals: "ByAddress[Arriving]", host: str) -> None:
        self._arrivals = arrivals
        self.gave_way = False
        arrivals.add(self, host)

    def close(self) -> None:
        """Give up."""
        self._arrivals.discard(self)

    def displace(self) -> None:
        """Give up for another one."""
        self.gave_way = True
        self.close()


def test_longest_idle_one_of_the_address_with_most_gives_way() -> None:
    connections = Connections()
    times = [("10.0.0.1", 50), ("10.0.0.1", 20), ("10.0.0.1", 90), ("10.0.0.2", 10)]
    fakes = [Fake(connections, active_ms=active_ms) for _, active_ms in times]
    for fake, (host, _) in zip(fakes, times, strict=True):
        connections.add(cast("Connection", fake), host)
    assert make_room(connections, ByAddress(), "10.0.0.3", to_arrive=False)
    assert [fake.causes for fake in fakes] == [[], ["address_share"], [], []]


def test_address_with_most_is_refused_itself() -> None:
    connections, fakes = filled(3)
    assert not make_room(connections, ByAddress(), "10.0.0.1", to_arrive=False)
    assert not any(fake.closed for fake in fakes)


def test_first_that_came_of_the_arrivals_gives_way_to_another_address() -> None:
    arrivals: ByAddress[Arriving] = ByAddress()
    coming = [Coming(arrivals, "10.0.0.1") for _ in range(3)]
    assert make_room(Connections(), arrivals, "10.0.0.2", to_arrive=True)
    assert [one.gave_way for one in coming] == [True, False, False]
    assert not make_room(Connections(), arrivals, "10.0.0.1", to_arrive=True)


def test_room_is_made_where_most_is_held() -> None:
    arrivals: ByAddress[Arriving] = ByAddress()
    coming = [Coming(arrivals, "10.0.0.9") for _ in range(4)]
    connections, fakes = filled(3)
    assert make_room(connections, arrivals, "10.0.0.2", to_arrive=False)
    assert (coming[0].gave_way, any(fake.closed for fake in fakes)) == (True, False)


def test_addresses_with_one_connection_each_keep_theirs() -> None:
    connections = Connections()
    for number in range(1000):
        connections.add(cast("Connection", Fake(connections)), f"10.0.{number // 250}.{number % 250}")
    assert connections.largest == 1
    assert not make_room(connections, ByAddress(), "10.9.9.9", to_arrive=False)
