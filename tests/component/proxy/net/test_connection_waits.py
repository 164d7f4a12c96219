"""Mutes and holds on real sockets: what waits, for how long, and what ends a wait early."""

import asyncio
import socket
import struct

import pytest

from proxy.system.clock import now_ms
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.options import EngineOptions
from tests.component.proxy.net.rig import HOST, SECONDS_MAX, End, Rig, connecting, until
from tests.support.frames import (
    LIST_OFFSETS,
    fetch,
    fetch_response,
    produce,
    produce_response,
    request,
    some_response,
)

ASKED = request(LIST_OFFSETS, 7, size=100)
RESPONDED = some_response(50)
OVER = 12_000  # with 1,000 bytes/s and 10,000 free: 2 s


async def test_next_request_waits_for_the_end_of_the_mute(rig: Rig) -> None:
    rig.quota(producer=10_000)
    client = rig.connect()
    first, second = produce(9, 103_000), request(LIST_OFFSETS, 7, correlation_id=2, size=100)  # 0.3 s
    started_ms = now_ms()
    await client.send(first + second)
    broker = await rig.accept()
    await broker.receive(len(first) + len(second))
    assert now_ms() - started_ms >= 300


async def test_muted_channel_is_counted(rig: Rig) -> None:
    rig.quota(producer=1000)
    client = rig.connect()
    await client.send(produce(9, OVER))
    await until(lambda: rig.stats.muted == 1, "one channel is muted")


async def test_gauge_falls_when_the_mute_is_over(rig: Rig) -> None:
    rig.quota(producer=10_000)
    client = rig.connect()
    await client.send(produce(9, 101_000))
    await until(lambda: rig.stats.muted == 1, "one channel is muted")
    await until(lambda: rig.stats.muted == 0, "none is muted")


async def test_client_that_closes_while_muted_is_noticed(rig: Rig) -> None:
    rig.quota(producer=1000)
    client = rig.connect()
    await client.send(produce(9, 30_000))  # 20 s
    await until(lambda: rig.stats.muted == 1, "one channel is muted")
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")
    assert (rig.stats.client_closed_muted, rig.stats.muted) == (1, 0)


async def test_client_that_closes_while_muted_by_a_response_is_noticed(rig: Rig) -> None:
    rig.quota(consumer=1000)
    client = rig.connect()
    await client.send(fetch(11, max_bytes=100))
    broker = await rig.accept()
    await broker.send(fetch_response(11, 30_000))
    await client.receive(30_004)
    await until(lambda: rig.stats.muted == 1, "one channel is muted")
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")


async def test_response_without_acks_is_delivered_after_the_client_has_closed(rig: Rig) -> None:
    rig.quota(producer=10_000)
    client = rig.connect()
    first, second = produce(9, 102_000, acks=0), produce(9, 500, correlation_id=2, acks=0)  # 0.2 s
    await client.send(first + second)
    client.close()
    broker = await rig.accept()
    assert await broker.rest() == first + second


async def test_request_without_acks_that_waits_for_the_broker_outlives_its_client(rig: Rig) -> None:
    rig.quota(producer=10_000)
    client = rig.connect()
    first = produce(9, 102_000, acks=0)
    await client.send(first)
    await until(lambda: rig.stats.muted == 1, "the client is muted before the broker is there")
    client.close()
    broker = await rig.accept()
    assert await broker.rest() == first


async def test_responses_are_delivered_while_muted(rig: Rig) -> None:
    rig.quota(producer=1000)
    client = rig.connect()
    asked = produce(9, OVER)
    await client.send(asked)
    broker = await rig.accept()
    await broker.receive(len(asked))
    await broker.send(produce_response(9))
    got = await client.receive(len(produce_response(9)))
    assert 0 < struct.unpack_from(">i", got, 10)[0] <= 2000


async def test_mute_that_ends_while_the_broker_is_slow_loses_no_request(rig: Rig) -> None:
    rig.quota(producer=100_000)
    client = rig.connect()
    # Larger than all socket buffers on the way: the broker reads nothing until the mute (0.2 s) is over.
    first = produce(9, 20_000_000)
    second = request(LIST_OFFSETS, 7, correlation_id=2, size=100)
    # As Kafka, or the rest of a first request is held when a busy machine brings it late, and refused after 0.2 s.
    options = EngineOptions(mute_seconds_max=0.2, new_connections="as-kafka")
    rig.engine.update(options, rig.engine.definitions, now_ms())
    sending = asyncio.ensure_future(client.send(first + second))
    broker = await rig.accept()
    assert await broker.receive(len(first) + len(second)) == first + second
    await sending


async def test_kept_request_passes_when_the_broker_connects_after_the_mute(rig: Rig) -> None:
    rig.quota(producer=10_000)
    spent = rig.engine.client("ANONYMOUS", "a", 1).produce
    spent.produce(spent.flow(), 110_000, now_ms())
    both = produce(9, 100) + request(LIST_OFFSETS, 7, correlation_id=2, size=100)
    with socket.create_server((HOST, 0), backlog=0) as late:
        late.setblocking(False)
        waiting = [connecting(late.getsockname()) for _ in range(4)]
        client = rig.connect(late.getsockname())
        await client.send(both)
        await until(lambda: rig.stats.muted == 1, "the second request waits")
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
    client = rig.connect()
    first, second = produce(9, 30_000), request(LIST_OFFSETS, 7, correlation_id=2, size=100)  # 20 s
    await client.send(first + second)
    broker = await rig.accept()
    await broker.receive(len(first))
    await until(lambda: rig.stats.muted == 1, "one channel is muted")
    rig.engine.update(EngineOptions(), Definitions(static=StaticQuotas(producer_default=1e9)), now_ms())
    rig.connection.reconsider()
    assert await broker.receive(len(second)) == second


async def test_held_request_is_kept_out_of_the_broker(rig: Rig) -> None:
    rig.quota(producer=10_000, policy="schedule")
    spent = rig.engine.client("ANONYMOUS", "a", 1).produce
    spent.produce(spent.flow(), 1_000_000, now_ms())
    client = rig.connect()
    await client.send(produce(9, 5000))
    await until(lambda: rig.stats.held == 1, "one request is held")
    with pytest.raises(BlockingIOError):
        rig.back.accept()


async def test_held_request_passes_when_enforcement_ends(rig: Rig) -> None:
    rig.quota(producer=10_000, policy="schedule")
    spent = rig.engine.client("ANONYMOUS", "a", 1).produce
    spent.produce(spent.flow(), 1_000_000, now_ms())
    client = rig.connect()
    asked = produce(9, 5000)
    await client.send(asked)
    await until(lambda: rig.stats.held == 1, "one request is held")
    rig.engine.switch_enforcement(False)
    rig.connection.reconsider()
    broker = await rig.accept()
    assert (await broker.receive(len(asked)), rig.stats.held, rig.stats.held_bytes) == (asked, 0, 0)


async def test_held_request_without_acks_outlives_its_client(rig: Rig) -> None:
    rig.quota(producer=10_000, policy="schedule")
    spent = rig.engine.client("ANONYMOUS", "a", 1).produce
    spent.produce(spent.flow(), 14_000, now_ms())  # 0.4 s more than the burst
    client = rig.connect()
    asked = produce(9, 5000, acks=0)
    await client.send(asked)
    await until(lambda: rig.stats.held == 1, "one request is held")
    client.close()
    broker = await rig.accept()
    assert await broker.receive(len(asked)) == asked
