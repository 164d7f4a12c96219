"""Sluice's own connections say which broker they mean (KIP-1242)."""

import pytest

from kafka_client import metadata
from protocol.api import API_VERSIONS, METADATA
from proxy.config import Address
from proxy.control.cluster import BrokerClient, BrokerMap
from proxy.system.stats import Stats
from tests.component.proxy.control.cluster.test_poller import metadata as brokers_response
from tests.support.frames import frame
from tests.support.loop_broker import LoopBroker, listening


def client_of(broker: LoopBroker, cluster_id: str = "ours") -> BrokerClient:
    """A client that knows the broker as broker 1."""
    brokers = BrokerMap((Address("10.0.0.9", 9092),), Stats())
    brokers.learn(1, *broker.address)
    brokers.set_cluster(cluster_id)
    return BrokerClient(brokers)


def responding(code: int, body: bytes = b"\1\0\0\0\0\0") -> LoopBroker:
    def respond(asked: bytes) -> bytes | None:
        if int.from_bytes(asked[4:6]) == API_VERSIONS:
            return frame(b"\0\0\0\1" + code.to_bytes(2) + body)
        return brokers_response((1, "10.0.0.1", 9092), cluster_id="ours")

    return LoopBroker(respond, Address("", 0))


@pytest.mark.parametrize("code", [0, 35])  # of 4.4, of an older one
async def test_broker_that_is_meant_is_asked(code: int) -> None:
    async with listening(responding(code).respond) as broker:
        client = client_of(broker)
        found = await client.ask(broker.address, metadata.cluster_brokers())
    assert (found.cluster_id, broker.keys()) == ("ours", [API_VERSIONS, METADATA])


async def test_other_broker_at_its_address_is_asked_nothing() -> None:
    async with listening(responding(129).respond) as broker:
        client = client_of(broker)
        with pytest.raises(OSError, match="is not broker 1 of cluster ours any more"):
            await client.connect(broker.address)
        assert (await client.ask(broker.address, metadata.cluster_brokers(), anyone=True)).brokers
    assert broker.keys() == [API_VERSIONS, METADATA]


async def test_broker_of_an_unknown_cluster_is_asked_at_once() -> None:
    async with listening(responding(129).respond) as broker:
        await client_of(broker, cluster_id="").ask(broker.address, metadata.cluster_brokers())
    assert broker.keys() == [METADATA]
