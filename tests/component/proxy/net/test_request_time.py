"""What the pumps tell `proxy.channel.request_time`: when bytes were read and written, on real sockets.

Slow clients and brokers take SECONDS. What is charged is bounded from both sides by the
test's own clock, so that a slow machine cannot fail it.
"""

import asyncio
from time import monotonic

import pytest

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.component.proxy.net.rig import ASKED, RESPONDED, End, Rig, connecting, until
from tests.support.frames import LIST_OFFSETS, produce, produce_response, request, some_response

SECONDS = 0.1
LARGE = 200_000  # it is spliced


@pytest.fixture
def measured(rig: Rig) -> Rig:
    """A rig whose clients have a quota too large to throttle them."""
    entries = {Entity(client_id=DEFAULT): {"request_percentage": 1e6}}
    rig.engine = Engine(EngineOptions(), Definitions(entries))
    return rig


def spent(rig: Rig) -> float:
    return rig.engine.client("ANONYMOUS", "a", 1).requests.total / 1_000_000


async def asked(rig: Rig) -> tuple[End, End]:
    """A client whose first request got a response, and its broker."""
    client, broker = await rig.joined(ASKED)
    await broker.send(RESPONDED)
    await client.receive(len(RESPONDED))
    return client, broker


async def test_slow_broker_is_charged(measured: Rig) -> None:
    client, broker = await asked(measured)
    before, started = spent(measured), monotonic()
    await client.send(ASKED)
    await broker.receive(len(ASKED))
    received = monotonic()
    await asyncio.sleep(SECONDS)
    responding = monotonic()
    await broker.send(RESPONDED)
    await client.receive(len(RESPONDED))
    assert responding - received - 1e-5 <= spent(measured) - before <= monotonic() - started


@pytest.mark.parametrize("size", [2_000, LARGE])
async def test_slow_upload_is_the_clients_time(measured: Rig, size: int) -> None:
    client, broker = await asked(measured)
    before = spent(measured)
    whole = produce(9, size)
    first = size - 1_000
    await client.send(whole[:first])
    await until(lambda: measured.connection.requests.mid_frame, "it has begun")
    await asyncio.sleep(SECONDS)
    started = monotonic()
    await client.send(whole[first:])
    await broker.receive(len(whole))
    await broker.send(produce_response(9))
    await client.receive(len(produce_response(9)))
    assert 0 < spent(measured) - before <= monotonic() - started


async def test_time_until_the_broker_is_connected_is_not_charged(measured: Rig) -> None:
    # A broker with a full queue accepts no connection before one is taken from it.
    measured.back.listen(0)
    blocking = [connecting(measured.back.getsockname()) for _ in range(2)]
    client = measured.connect()
    await client.send(ASKED)
    await until(lambda: measured.connection.requests.blocked, "the request waits for the broker")
    await asyncio.sleep(SECONDS)
    started = monotonic()
    for sock in blocking:
        sock.close()
    await _respond_to_all(measured, client)
    assert spent(measured) <= monotonic() - started


async def test_slow_reader_is_not_charged_for_the_next_response(measured: Rig) -> None:
    both = ASKED + request(LIST_OFFSETS, 7, correlation_id=2, size=100)
    client, broker = await measured.joined(both, send_buffer=65_536)
    large, small = some_response(8_000_000), some_response(50, correlation_id=2)
    sending = asyncio.create_task(broker.send(large + small))
    await until(lambda: measured.connection.responses.blocked, "the client does not read")
    before, started = spent(measured), monotonic()
    await asyncio.sleep(SECONDS)
    await client.receive(len(large) + len(small))
    await sending
    assert spent(measured) - before < monotonic() - started - SECONDS


async def _respond_to_all(rig: Rig, client: End) -> None:
    """Accept connections until the client's request is there, and respond to it."""
    while True:
        broker = await rig.accept()
        if await broker.receive(len(ASKED)) == ASKED:
            await broker.send(RESPONDED)
            assert await client.receive(len(RESPONDED)) == RESPONDED
            return
