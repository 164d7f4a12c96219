"""How a connection is ended from within: limits that a client oversteps, and a process that drains."""

from collections.abc import Callable, Iterator

import pytest

from proxy.net.connection import free
from proxy.system.clock import now_ms
from tests.component.proxy.net.rig import ASKED, RESPONDED, Rig, until
from tests.support.frames import LIST_OFFSETS, produce, produce_response, request, some_response

OVER = 12_000  # with 1,000 bytes/s and 10,000 free: 2 s


@pytest.mark.parametrize(("later_ms", "ends"), [(599_000, False), (601_000, True)])
async def test_idle_connection_is_closed(rig: Rig, later_ms: int, ends: bool) -> None:
    rig.connect()
    rig.connection.sweep(now_ms() + later_ms)
    assert (not rig.connections, rig.stats.errors) == (ends, {})


async def test_muted_connection_is_closed_when_idle_for_too_long(rig: Rig) -> None:
    rig.quota(producer=1000)
    client = rig.connect()
    await client.send(produce(9, OVER))
    await until(lambda: rig.stats.muted == 1, "one channel is muted")
    now = now_ms()
    rig.connection.sweep(now)
    rig.connection.sweep(now + 601_000)
    assert (not rig.connections, rig.stats.muted) == (True, 0)


async def test_client_that_sends_a_byte_a_minute_is_closed(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED[:5])
    await until(lambda: rig.connection.requests.kept_bytes == 5, "a part is kept")
    now = now_ms()
    rig.connection.sweep(now)
    await client.send(ASKED[5:6])
    await until(lambda: rig.connection.requests.kept_bytes == 6, "a byte more is kept")
    rig.connection.sweep(now + 61_000)
    assert (await client.rest(), rig.stats.errors) == (b"", {"slow_client": 1})


async def test_large_frame_under_way_is_not_slow(rig: Rig) -> None:
    client = rig.connect()
    asked = produce(9, 10_000_000)
    await client.send(asked[:20])
    broker = await rig.accept()
    await broker.receive(20)
    now = now_ms()
    rig.connection.sweep(now)
    await client.send(asked[20:1_000_000])
    await broker.receive(1_000_000 - 20)
    rig.connection.sweep(now + 61_000)
    assert rig.connections


# Draining


async def test_idle_connection_is_drained(rig: Rig) -> None:
    client = rig.connect()
    rig.connection.drain(now_ms())
    assert await client.rest() == b""
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")


async def test_response_owed_is_delivered_before_a_drained_connection_closes(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    rig.connection.drain(now_ms())
    await broker.send(RESPONDED)
    assert await client.receive(len(RESPONDED)) == RESPONDED
    rig.connection.drain(now_ms())
    assert await client.rest() == b""


async def test_client_that_pipelines_without_a_pause_is_drained(rig: Rig) -> None:
    asked = [request(LIST_OFFSETS, 7, correlation_id=number, size=100) for number in range(3)]
    client, broker = await rig.joined(asked[0] + asked[1])
    rig.connection.drain(now_ms())
    await client.send(asked[2])
    await broker.send(some_response(50, correlation_id=0) + some_response(50, correlation_id=1))
    await client.receive(108)
    rig.connection.drain(now_ms())
    assert await client.rest() == b""


async def test_muted_request_is_passed_on_when_draining(rig: Rig) -> None:
    rig.quota(producer=1000)
    client = rig.connect()
    first, second = produce(9, 30_000), request(LIST_OFFSETS, 7, correlation_id=2, size=100)
    await client.send(first + second)
    broker = await rig.accept()
    await broker.receive(len(first))
    await until(lambda: rig.stats.muted == 1, "one channel is muted")
    rig.connection.drain(now_ms())
    assert await broker.receive(len(second)) == second


async def test_all_muted_requests_pass_in_one_step_of_draining(rig: Rig) -> None:
    """Each of them mutes the channel anew; one a step would take longer than a drain may."""
    rig.quota(producer=1000)
    client = rig.connect()
    first = produce(9, 30_000)
    kept = b"".join(produce(9, 300, correlation_id=number) for number in range(2, 42))
    await client.send(first + kept)
    broker = await rig.accept()
    await broker.receive(len(first))
    await until(lambda: rig.stats.muted == 1, "one channel is muted")
    await until(lambda: rig.connection.requests.kept_bytes == len(kept), "the others are kept")
    rig.connection.drain(now_ms())
    assert await broker.receive(len(kept)) == kept


async def test_held_request_is_forwarded_in_its_time_when_draining_and_is_the_last_one(rig: Rig) -> None:
    rig.quota(producer=10_000, policy="schedule")
    rig.charge_produce(14_000)  # 0.4 s more than the burst
    client = rig.connect()
    first, second = produce(9, 5000), produce(9, 5000, correlation_id=2)
    await client.send(first + second)
    await until(lambda: rig.stats.held == 1, "the first request is held")
    rig.connection.drain(now_ms())
    assert rig.stats.held == 1, "its quota holds while the process drains"
    broker = await rig.accept()
    assert await broker.receive(len(first)) == first
    await until(lambda: rig.stats.held == 0, "no other request waits")
    response = produce_response(9)
    await broker.send(response)
    assert len(await client.receive(len(response))) == len(response), "with a throttle time in it"
    rig.connection.drain(now_ms())
    assert await client.rest() == b""
    client.close()
    assert await broker.rest() == b"", "the second one is the client's to send again"


async def test_drained_client_that_does_not_close_is_closed(rig: Rig) -> None:
    rig.connect()
    now = now_ms()
    rig.connection.drain(now)
    rig.connection.drain(now + 1100)
    assert not rig.connections


async def test_drained_connection_is_no_error(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED[:10])
    await until(lambda: rig.connection.requests.kept_bytes == 10, "a part is kept")
    rig.connection.drain(now_ms())
    client.reset()
    await until(lambda: not rig.connections, "the connection has ended")
    assert not rig.stats.errors


def test_memory_of_a_closed_channel_is_freed_over_several_turns() -> None:
    waiting: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    class Loop:
        def call_soon(self, call: Callable[..., object], *arguments: object) -> None:
            waiting.append((call, arguments))

    freed: list[int] = []

    def rest() -> Iterator[None]:
        for portion in range(3):
            freed.append(portion)
            yield

    free(Loop(), rest())  # type: ignore[arg-type]
    turns = [len(freed)]
    while waiting:
        call, arguments = waiting.pop()
        call(*arguments)
        turns.append(len(freed))
    assert turns == [1, 2, 3, 3]
