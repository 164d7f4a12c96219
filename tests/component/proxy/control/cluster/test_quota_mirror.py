"""The brokers' own quotas, asked for at a scripted broker."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from kafka_client.quotas import QuotaEntities
from protocol.messages import client_quotas
from protocol.messages.client_quotas import Parts
from proxy.config import Address
from proxy.control.cluster import BrokerClient, BrokerMap, QuotaMirror
from proxy.system.stats import Stats

HOST = "127.0.0.1"
USER = (("user", "ann"),)


class Keeper:
    """Takes what the mirror brings."""

    def __init__(self) -> None:
        self.taken: list[dict[Parts, Mapping[str, float]]] = []

    async def take(self, response: QuotaEntities) -> bool:
        self.taken.append(dict(response))
        return True


@asynccontextmanager
async def broker(response: bytes) -> AsyncIterator[tuple[Address, list[bytes]]]:
    """A broker that responds to every request with these bytes, and what it was asked."""
    asked: list[bytes] = []
    ended: list[asyncio.Future[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        done = asyncio.get_running_loop().create_future()
        ended.append(done)
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        asked.append(await reader.readexactly(length))
        writer.write(response)
        await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        done.set_result(None)

    async with await asyncio.start_server(serve, HOST, 0) as server:
        yield Address(HOST, server.sockets[0].getsockname()[1]), asked
        await asyncio.gather(*ended)


def mirror(*bootstrap: Address) -> tuple[QuotaMirror, Keeper]:
    keeper = Keeper()
    return QuotaMirror(BrokerClient(BrokerMap(bootstrap, Stats())), keeper.take), keeper


def described() -> bytes:
    return bytes(client_quotas.describe_response(0, 1, [(USER, {"producer_byte_rate": 5.0})]))


async def test_everything_is_asked_for_and_taken() -> None:
    async with broker(described()) as (address, asked):
        made, keeper = mirror(address)
        await made.poll()
    assert keeper.taken == [{USER: {"producer_byte_rate": 5.0}}]
    assert made.problem == ""
    assert asked == [struct.pack(">hhih", 48, 0, 1, 6) + b"sluice" + bytes(5)]


async def test_broker_that_refuses_changes_nothing_and_is_a_problem() -> None:
    refusal = bytes(client_quotas.describe_error(0, 1, 31, "Cluster authorization failed."))
    async with broker(refusal) as (address, _):
        made, keeper = mirror(address)
        await made.poll()
    assert keeper.taken == []
    assert "error 31: Cluster authorization failed." in made.problem


async def test_next_broker_is_asked_where_one_is_not_there() -> None:
    with socket.create_server((HOST, 0)) as server:
        gone = Address(HOST, server.getsockname()[1])
    async with broker(described()) as (address, _):
        made, keeper = mirror(gone, address)
        await made.poll()
    assert len(keeper.taken) == 1
    made, _ = mirror(gone)
    await made.poll()
    assert str(gone) in made.problem
    made, _ = mirror()
    await made.poll()
    assert made.problem == "no broker is known"


async def test_malformed_response_is_a_problem() -> None:
    async with broker(struct.pack(">ii", 4, 1)) as (address, _):
        made, keeper = mirror(address)
        await made.poll()
    assert keeper.taken == []
    assert made.problem
