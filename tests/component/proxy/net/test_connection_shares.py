"""A muted connection that shares, on real sockets: it is read for acknowledgements, and for nothing else."""

from uuid import UUID

from protocol.api import SHARE_ACKNOWLEDGE
from proxy.system.clock import now_ms
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.options import EngineOptions
from tests.component.proxy.net.rig import End, Rig, until
from tests.support.frames import LIST_OFFSETS, produce, request
from tests.support.playbook import mute_left_ms
from tests.support.share_frames import share_acknowledge

ACKNOWLEDGED = share_acknowledge(UUID(int=7), {0: [(0, 9)]})


def acknowledge(correlation_id: int) -> bytes:
    return request(SHARE_ACKNOWLEDGE, 2, ACKNOWLEDGED, correlation_id=correlation_id)


async def muted(rig: Rig) -> tuple[End, End]:
    """A client that shares and is muted for 20 s, and its broker."""
    rig.quota(producer=10_000)
    return await rig.joined(acknowledge(1) + produce(9, 300_000, correlation_id=2))


def raise_quota(rig: Rig) -> None:
    rig.engine.update(EngineOptions(), Definitions(static=StaticQuotas(producer_default=1e9)), now_ms())
    rig.connection.reconsider()


async def test_acknowledgement_that_comes_within_a_mute_passes_at_once(rig: Rig) -> None:
    client, broker = await muted(rig)
    assert mute_left_ms(rig.connection.channel, now_ms()) > 10_000
    await client.send(acknowledge(3)[:20])
    await client.send(acknowledge(3)[20:])
    assert await broker.receive(len(acknowledge(3))) == acknowledge(3)
    assert rig.stats.muted == 0
    await client.send(request(LIST_OFFSETS, 7, correlation_id=4, size=60))
    await until(lambda: rig.stats.muted == 1, "what is no acknowledgement waits")
    raise_quota(rig)
    await broker.receive(64)


async def test_raised_quota_ends_a_mute_that_nothing_waits_for(rig: Rig) -> None:
    client, broker = await muted(rig)
    raise_quota(rig)
    await client.send(request(LIST_OFFSETS, 7, correlation_id=4, size=60))
    await broker.receive(64)


async def test_client_that_closes_while_it_is_read_muted_is_noticed(rig: Rig) -> None:
    client, broker = await muted(rig)
    client.close()
    assert await broker.rest() == b""
    broker.close()
    await until(lambda: not rig.connections, "the connection has ended")
