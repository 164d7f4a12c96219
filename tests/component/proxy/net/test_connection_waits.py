"""Mutes and holds on real sockets: what waits, for how long, and what ends a wait early."""

import asyncio
import socket
import struct

import pytest

from proxy.system.clock import now_ms
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.options import EngineOptions
from tests.component.proxy.net.rig import HOST, SECONDS_MAX, End, Rig, connecting, until
from tests.support.frames import LIST_OFFSETS, fetch, fetch_response, produce, produce_response, request

SECOND = request(LIST_OFFSETS, 7, correlation_id=2, size=100)
OVER = 12_000  # with 1,000 bytes/s and 10,000 free: 2 s


async def is_muted(rig: Rig) -> None:
    await until(lambda: rig.stats.muted == 1, "one channel is muted")


async def test_next_request_waits_for_the_end_of_the_mute(rig: Rig) -> None:
    rig.quota(producer=10_000)
    started_ms = now_ms()
    await rig.joined(produce(9, 103_000) + SECOND)  # 0.3 s
    assert now_ms() - started_ms >= 300


async def test_muted_channel_is_counted_until_the_mute_is_over(rig: Rig) -> None:
    rig.quota(producer=10_000)
    client = rig.connect()
    await client.send(produce(9, 101_000))
    await is_muted(rig)
    await until(lambda: rig.stats.muted == 0, "none is muted")


async def test_client_that_closes_while_muted_is_noticed(rig: Rig) -> None:
    rig.quota(producer=1000)
    client = rig.connect()
    await client.send(produce(9, 30_000))  # 20 s
    await is_muted(rig)
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")
    assert (rig.stats.client_closed_muted, rig.stats.muted) == (1, 0)


async def test_client_that_closes_while_muted_by_a_response_is_noticed(rig: Rig) -> None:
    rig.quota(consumer=1000)
    client, broker = await rig.joined(fetch(11, max_bytes=100))
    await broker.send(fetch_response(11, 30_000))
    await client.receive(30_004)
    await is_muted(rig)
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")


@pytest.mark.parametrize("second", [b"", produce(9, 500, correlation_id=2, acks=0)], ids=["one", "two"])
async def test_request_without_acks_outlives_its_client(rig: Rig, second: bytes) -> None:
    rig.quota(producer=10_000)
    client = rig.connect()
    asked = produce(9, 102_000, acks=0) + second  # 0.2 s
    await client.send(asked)
    if not second:
        await is_muted(rig)  # before the broker is there
    client.close()
    broker = await rig.accept()
    assert await broker.rest() == asked


async def test_responses_are_delivered_while_muted(rig: Rig) -> None:
    rig.quota(producer=1000)
    client, broker = await rig.joined(produce(9, OVER))
    await broker.send(produce_response(9))
    got = await client.receive(len(produce_response(9)))
    assert 0 < struct.unpack_from(">i", got, 10)[0] <= 2000


async def test_mute_that_ends_while_the_broker_is_slow_loses_no_request(rig: Rig) -> None:
    rig.quota(producer=100_000)
    client = rig.connect()
    # Larger than all socket buffers on the way: the broker reads nothing until the mute (0.2 s) is over.
    asked = produce(9, 20_000_000) + SECOND
    # As Kafka, or the rest of a first request is held when a busy machine brings it late, and refused after 0.2 s.
    options = EngineOptions(mute_seconds_max=0.2, new_connections="as-kafka")
    rig.engine.update(options, rig.engine.definitions, now_ms())
    sending = asyncio.ensure_future(client.send(asked))
    broker = await rig.accept()
    assert await broker.receive(len(asked)) == asked
    await sending


async def test_kept_request_passes_when_the_broker_connects_after_the_mute(rig: Rig) -> None:
    rig.quota(producer=10_000)
    rig.charge_produce(110_000)
    both = produce(9, 100) + SECOND
    with socket.create_server((HOST, 0), backlog=0) as late:
        late.setblocking(False)
        waiting = [connecting(late.getsockname()) for _ in range(4)]
        client = rig.connect(late.getsockname())
        await client.send(both)
        await is_muted(rig)
        await until(lambda: rig.stats.muted == 0, "the mute is over")
        assert rig.connection.requests.blocked
        own = {sock.getsockname() for sock in waiting}
        broker = End(await _accepted(late, own))
        assert await broker.receive(len(both)) == both
        for sock in (broker.sock, *waiting):
            sock.close()


async def _accepted(listener: socket.socket, others: set[object]) -> socket.socket:
    """The first connection that is none of these."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            sock, address = await asyncio.get_running_loop().sock_accept(listener)
            if address not in others:
                return sock
            sock.close()


async def test_raised_quota_frees_a_muted_channel(rig: Rig) -> None:
    rig.quota(producer=1000)
    client, broker = await rig.joined(produce(9, 30_000))  # 20 s
    await client.send(SECOND)
    await is_muted(rig)
    rig.engine.update(EngineOptions(), Definitions(static=StaticQuotas(producer_default=1e9)), now_ms())
    rig.connection.reconsider()
    assert await broker.receive(len(SECOND)) == SECOND


async def test_held_request_is_kept_out_of_the_broker_until_enforcement_ends(rig: Rig) -> None:
    rig.quota(producer=10_000, policy="schedule")
    rig.charge_produce(1_000_000)
    client = rig.connect()
    asked = produce(9, 5000)
    await client.send(asked)
    await until(lambda: rig.stats.held == 1, "one request is held")
    with pytest.raises(BlockingIOError):
        rig.back.accept()
    rig.engine.switch_enforcement(False)
    rig.connection.reconsider()
    broker = await rig.accept()
    assert (await broker.receive(len(asked)), rig.stats.held, rig.stats.held_bytes) == (asked, 0, 0)


async def test_held_request_without_acks_outlives_its_client(rig: Rig) -> None:
    rig.quota(producer=10_000, policy="schedule")
    rig.charge_produce(14_000)  # 0.4 s more than the burst
    client = rig.connect()
    asked = produce(9, 5000, acks=0)
    await client.send(asked)
    await until(lambda: rig.stats.held == 1, "one request is held")
    client.close()
    broker = await rig.accept()
    assert await broker.receive(len(asked)) == asked
