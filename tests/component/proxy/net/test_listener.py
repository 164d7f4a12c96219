"""Ports: who is let in, and what happens when the machine has no more to give."""

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from msgspec.structs import replace

from proxy.channel import ChannelSettings
from proxy.channel.settings import ANY_BROKER
from proxy.config import Address
from proxy.config.options import LimitOptions
from proxy.net import refuse_taken_ports
from proxy.system.errors import StartError
from tests.component.proxy.net.rig import HOST, End, Port, no_descriptor_left, until


def connect(port: Port, offset: int = 0, *, source: str = HOST) -> socket.socket:
    """Connect to the bootstrap port, or to one behind it."""
    address = (HOST, port.options.bootstrap_port + offset)
    return socket.create_connection(address, timeout=5, source_address=(source, 0))


@contextmanager
def opened(limits: LimitOptions | None = None) -> Iterator[Port]:
    """An open listener."""
    port = Port(limits)
    port.listener.open()
    try:
        yield port
    finally:
        port.close()


async def test_port_tells_which_broker_is_meant() -> None:
    with opened() as port:
        for offset in range(3):
            with closing(connect(port, offset)):
                await until(lambda wanted=offset: len(port.asked) == wanted + 1, "accepted")  # type: ignore[misc]  # bound early
        assert port.asked == [ANY_BROKER, 0, 1]


async def test_connections_are_counted_by_listener() -> None:
    with opened() as port:
        with closing(connect(port)), closing(connect(port)):
            await until(lambda: port.stats.connections["clients"] == 2, "two are open")
        await until(lambda: port.stats.connections["clients"] == 0, "ended")
        assert port.stats.connections_total["clients"] == 2


async def test_connection_over_the_limit_is_closed_at_once_and_let_in_below_it() -> None:
    with opened(LimitOptions(connections_max=1)) as port:
        with closing(connect(port)):
            await until(lambda: len(port.connections) == 1, "the first one is let in")
            with closing(connect(port)) as second:
                await until(lambda: port.stats.refused["connections_max"] == 1, "the second one is refused")
                assert second.recv(1) == b""
        await until(lambda: not port.connections, "the first one is gone")
        with closing(connect(port)):
            await until(lambda: len(port.connections) == 1, "the next one is let in")


async def test_address_that_has_most_gives_way_to_another_one() -> None:
    with opened(LimitOptions(connections_max=2)) as port, closing(connect(port)), closing(connect(port)):
        await until(lambda: len(port.connections) == 2, "one address has them all")
        with closing(connect(port, source="127.0.0.2")):
            await until(lambda: port.connections.count_of("127.0.0.2") == 1, "another one is let in")
        assert (port.stats.errors, port.stats.refused) == ({"address_share": 1}, {})


async def test_addresses_have_a_limit_of_their_own_where_one_is_set() -> None:
    limits = LimitOptions(connections_per_address_max=1)
    with opened(limits) as port, closing(connect(port)), closing(connect(port, source="127.0.0.2")):
        await until(lambda: len(port.connections) == 2, "each address has one")
        with closing(connect(port)) as second:
            await until(lambda: port.stats.refused["connections_per_address_max"] == 1, "it is refused")
            assert second.recv(1) == b""


async def test_connection_that_can_not_be_let_in_harms_no_other() -> None:
    with opened() as port:
        asked, whole = iter([True, False]), port.settings

        def failing_once(broker: int) -> ChannelSettings:
            if next(asked):
                raise RuntimeError("a bug")
            return whole(broker)

        port.settings = failing_once
        with closing(connect(port)) as first, closing(connect(port)):
            await until(lambda: len(port.connections) == 1, "the second one is let in")
            assert first.recv(1) == b""
        assert port.stats.refused == {"internal": 1}


async def test_port_in_use_can_not_be_bound() -> None:
    port = Port()
    taken = port.options.first_broker_port
    with closing(socket.create_server((HOST, taken))), pytest.raises(StartError, match=f"{taken} cannot be"):
        port.listener.open()
    port.close()


async def test_two_processes_may_share_ports_if_both_say_so() -> None:
    port = Port(reuse_port=True)
    port.listener.open()
    other = port.another()
    other.open()
    other.close()
    port.close()


async def test_closed_listener_refuses() -> None:
    with opened() as port:
        port.listener.close()
        with pytest.raises(ConnectionRefusedError):
            connect(port)


async def test_connection_that_waits_for_its_accept_is_served_when_the_listener_closes() -> None:
    with opened() as port, closing(connect(port)):
        port.listener.close()
        assert len(port.connections) == 1


@contextmanager
def starved(port: Port, client: socket.socket) -> Iterator[None]:
    """Let a client connect to a process without a descriptor for it."""
    client.setblocking(False)
    with no_descriptor_left():
        client.connect_ex((HOST, port.options.bootstrap_port))
        yield


async def test_out_of_descriptors_is_counted_and_does_not_spin(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with opened() as port, closing(socket.socket()) as client:
        with starved(port, client):
            await until(lambda: port.stats.refused["descriptors"] >= 1, "the accept has failed")
            turns = 0
            ended = asyncio.get_running_loop().time() + 0.6  # longer than the pause
            while asyncio.get_running_loop().time() < ended:
                await asyncio.sleep(0.01)
                turns += 1
            # A spin would have failed once a turn.
            assert 2 <= port.stats.refused["descriptors"] <= 2 + turns // 10
        await until(lambda: len(port.connections) == 1, "the client is let in")
    assert [record.getMessage() for record in caplog.records] == ["accept failed, pausing", "accepting again"]


async def test_listener_says_that_it_accepts_nothing_until_it_could_again_though_no_client_waits() -> None:
    with opened() as port, closing(socket.socket()) as client:
        assert port.listener.not_accepting() == ""
        with starved(port, client):
            await until(lambda: bool(port.listener.not_accepting()), "the accept has failed")
            assert port.listener.not_accepting() == (
                f"listener {port.options.name!r} accepts no connection: Too many open files"
            )
            End(client).reset()  # it leaves the queue
            stands_for_it = os.open(os.devnull, os.O_RDONLY)
            refused = port.stats.refused["descriptors"]
            await until(lambda: port.stats.refused["descriptors"] > refused, "it has tried again")
            assert port.listener.not_accepting() != ""
        await until(lambda: port.listener.not_accepting() == "", "it could accept")
        os.close(stands_for_it)


async def test_listener_may_close_while_it_waits_for_descriptors() -> None:
    with opened() as port, closing(socket.socket()) as client:
        with starved(port, client):
            await until(lambda: port.stats.refused["descriptors"] >= 1, "the accept has failed")
            port.listener.close()
        await asyncio.sleep(0.6)  # the pause is half a second: nothing may listen again behind it
        assert not port.connections


async def test_sidecar_binds_the_ports_of_its_brokers_alone() -> None:
    port = Port()
    port.options = replace(port.options, upstreams={1: Address(HOST, 1)})
    listener = port.another()
    listener.open()
    connect(port, 2).close()
    with pytest.raises(ConnectionRefusedError):
        connect(port, 1)
    listener.close()
    port.close()


async def test_port_that_another_process_shares_is_refused_to_one_that_wants_it_alone() -> None:
    with closing(socket.socket()) as other:
        port = Port()
        refuse_taken_ports(port.options)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind((HOST, port.options.broker_port(1)))
        other.listen()
        with pytest.raises(StartError, match="cannot be bound: Address already in use"):
            refuse_taken_ports(port.options)
        refuse_taken_ports(replace(port.options, reuse_port=True))
