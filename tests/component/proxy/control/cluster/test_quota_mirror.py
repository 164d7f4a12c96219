"""The brokers' own quotas, asked for at a scripted broker."""

import socket
import struct
from collections.abc import Mapping

from kafka_client.quotas import QuotaEntities
from protocol.messages import client_quotas
from protocol.messages.client_quotas import Parts
from proxy.config import Address
from proxy.control.cluster import BrokerClient, BrokerMap, QuotaMirror
from proxy.system.stats import Stats
from tests.cluster import HOST
from tests.support.loop_broker import broker, listening

USER = (("user", "ann"),)


class Keeper:
    """Takes what the mirror brings."""

    def __init__(self) -> None:
        self.taken: list[dict[Parts, Mapping[str, float]]] = []

    async def take(self, response: QuotaEntities) -> bool:
        self.taken.append(dict(response))
        return True


def mirror(*bootstrap: Address) -> tuple[QuotaMirror, Keeper]:
    keeper = Keeper()
    return QuotaMirror(BrokerClient(BrokerMap(bootstrap, Stats())), keeper.take), keeper


def described() -> bytes:
    return bytes(client_quotas.describe_response(0, 1, [(USER, {"producer_byte_rate": 5.0})]))


async def test_everything_is_asked_for_and_taken() -> None:
    async with listening(lambda _: described()) as found:
        made, keeper = mirror(found.address)
        await made.poll()
    assert keeper.taken == [{USER: {"producer_byte_rate": 5.0}}]
    assert made.problem == ""
    assert [frame[4:] for frame in found.asked] == [struct.pack(">hhih", 48, 0, 1, 6) + b"sluice" + bytes(5)]


async def test_broker_that_refuses_changes_nothing_and_is_a_problem() -> None:
    refusal = bytes(client_quotas.describe_error(0, 1, 31, "Cluster authorization failed."))
    async with broker(refusal) as address:
        made, keeper = mirror(address)
        await made.poll()
    assert keeper.taken == []
    assert "error 31: Cluster authorization failed." in made.problem


async def test_next_broker_is_asked_where_one_is_not_there() -> None:
    with socket.create_server((HOST, 0)) as server:
        gone = Address(HOST, server.getsockname()[1])
    async with broker(described()) as address:
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
    async with broker(struct.pack(">ii", 4, 1)) as address:
        made, keeper = mirror(address)
        await made.poll()
    assert keeper.taken == []
    assert made.problem
