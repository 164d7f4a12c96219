"""Writes in a busy turn of the loop: deferred behind the reads of the other sockets, whole, in order, and once.

A turn is busy when one read follows soon after another (`Shared.read_ns`). `follow` makes the next read one that does,
however fast this machine is. What all sockets are sent before the loop has its turn is read in one.
"""

import asyncio
from collections.abc import Callable

import pytest

from proxy.net.pump import Pump
from proxy.system.clock import clock_ns, now_ms
from tests.component.proxy.net.rig import ASKED, RESPONDED, Clerk, End, Rig, until
from tests.support.frames import LIST_OFFSETS, frame, produce, request, some_response

SECOND_NS = 10**9
# The most pumps that wait for the end of a turn are 64: one less, as many, one more, more than twice as many.
COUNTS = (2, 63, 64, 65, 130)


def follow(rig: Rig) -> None:
    """Make the next read follow another one."""
    rig.shared.read_ns = clock_ns() + SECOND_NS


def put(end: End, data: bytes) -> None:
    """Send all of it without a turn of the loop, and without the wait for a late acknowledgement of `send_whole`."""
    assert end.sock.send(data) == len(data)


async def read(rig: Rig, source: End, data: bytes, pump: Pump) -> None:
    """Let the proxy read this in a busy turn, and return before the turn has ended."""
    before = pump.bytes_total
    put(source, data)
    while pump.bytes_total == before:
        follow(rig)
        await asyncio.sleep(0)


def has_nothing(end: End) -> bool:
    """Whether nothing has come."""
    try:
        end.sock.recv(1)
    except BlockingIOError:
        return True
    return False


def asked(number: int, size: int = 100) -> bytes:
    return request(LIST_OFFSETS, 7, correlation_id=number, size=size)


async def joined(rig: Rig, count: int) -> list[tuple[End, End]]:
    """So many connections; each broker has received one request."""
    return [await rig.joined(ASKED) for _ in range(count)]


async def test_small_write_in_a_busy_turn_waits_for_its_end(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    await read(rig, client, asked(2), rig.connection.requests)
    assert has_nothing(broker)
    assert await broker.receive(len(asked(2))) == asked(2)


async def test_write_in_a_turn_that_is_not_busy_waits_for_nothing(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    pump = rig.connection.requests
    put(client, asked(2))
    while pump.bytes_total == len(ASKED):
        rig.shared.read_ns = 0
        await asyncio.sleep(0)
    assert broker.sock.recv(1000) == asked(2)


async def test_large_write_in_a_busy_turn_waits_for_nothing(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    await read(rig, client, asked(2, 3000), rig.connection.requests)
    assert broker.sock.recv(10_000) == asked(2, 3000)


@pytest.mark.parametrize("count", COUNTS)
async def test_requests_that_are_read_in_one_turn_all_arrive_once(rig: Rig, count: int) -> None:
    pairs = await joined(rig, count)
    for turn in (2, 3):
        sent = [asked(turn, 100 + number) for number in range(count)]
        for (client, _), data in zip(pairs, sent, strict=True):
            put(client, data)
        follow(rig)
        assert [
            await broker.receive(len(data)) for (_, broker), data in zip(pairs, sent, strict=True)
        ] == sent
    for client, _ in pairs:
        client.close()
    assert [await broker.rest() for _, broker in pairs] == [b""] * count


@pytest.mark.parametrize("count", COUNTS)
async def test_responses_that_are_read_in_one_turn_all_arrive_once(rig: Rig, count: int) -> None:
    pairs = await joined(rig, count)
    sent = [some_response(100 + number) for number in range(count)]
    for (_, broker), data in zip(pairs, sent, strict=True):
        put(broker, data)
    follow(rig)
    received = [await client.receive(len(data)) for (client, _), data in zip(pairs, sent, strict=True)]
    assert received == sent
    for _, broker in pairs:
        broker.close()
    assert [await client.rest() for client, _ in pairs] == [b""] * count


async def test_requests_and_responses_of_the_same_connections_are_read_in_one_turn(rig: Rig) -> None:
    pairs = await joined(rig, 40)
    for number in range(2, 12):
        request_, response = asked(number), some_response(50, correlation_id=number - 1)
        for client, broker in pairs:
            put(client, request_)
            put(broker, response)
        follow(rig)
        for client, broker in pairs:
            assert await broker.receive(len(request_)) == request_
            assert await client.receive(len(response)) == response


async def test_writes_of_many_sizes_behind_one_another_keep_their_order(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    sizes = (100, 3000, 100, 2044, 2045, 200_000, 100)  # with the prefix 2 KiB, and a byte more
    sent = [produce(9, size, correlation_id=number) for number, size in enumerate(sizes, 2)]
    receiving = asyncio.ensure_future(broker.receive(sum(map(len, sent))))
    for data in sent:
        sending = asyncio.ensure_future(client.send(data))
        while not sending.done():
            follow(rig)
            await asyncio.sleep(0)
        follow(rig)
        await asyncio.sleep(0)
    assert await receiving == b"".join(sent)


@pytest.mark.parametrize("turns", [0, 4], ids=["asked before the turn has ended", "asked later"])
async def test_destination_that_does_not_read_gets_all_later(rig: Rig, turns: int) -> None:
    numbers = range(1, 1001)
    client, broker = await rig.joined(b"".join(map(asked, numbers)), send_buffer=4096)
    pump = rig.connection.responses
    sent = [some_response(2000, correlation_id=number) for number in numbers]
    waiting = iter(sent)
    while not pump.blocked:  # to be asked writes what is deferred
        await read(rig, broker, next(waiting), pump)
        for _ in range(turns):
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rig.shared.kept.bytes > 0
    sending = asyncio.ensure_future(broker.send(b"".join(waiting)))
    expected = b"".join(sent)
    assert await client.receive(len(expected)) == expected
    await sending
    assert rig.shared.kept.bytes == 0


async def test_no_more_than_64_wait_for_the_end_of_a_turn(rig: Rig) -> None:
    pairs = await joined(rig, 100)
    for client, _ in pairs:
        put(client, asked(2))
    while any(connection.requests.bytes_total == len(ASKED) for connection in rig.connections):
        follow(rig)
        await asyncio.sleep(0)
    assert sum(has_nothing(broker) for _, broker in pairs) < 64


async def test_first_request_in_a_busy_turn_opens_the_connection_to_the_broker(rig: Rig) -> None:
    client = rig.connect()
    await read(rig, client, ASKED, rig.connection.requests)
    broker = await rig.accept()
    assert await broker.receive(len(ASKED)) == ASKED
    client.close()
    assert await broker.rest() == b""


async def test_connection_that_is_closed_before_its_first_write_opens_none_to_the_broker(rig: Rig) -> None:
    client = rig.connect()
    connection = rig.connection
    await read(rig, client, ASKED, connection.requests)
    connection.close("idle")
    assert await client.rest() == b""
    assert connection.dial is None
    with pytest.raises(BlockingIOError):
        rig.back.accept()


async def test_client_that_closes_behind_its_request_has_it_delivered(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    await read(rig, client, asked(2), rig.connection.requests)
    client.close()
    assert await broker.rest() == asked(2)


async def test_broker_that_closes_behind_its_response_has_it_delivered(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    await read(rig, broker, RESPONDED, rig.connection.responses)
    broker.close()
    assert await client.rest() == RESPONDED
    assert rig.stats.errors == {}


async def test_close_and_response_that_come_together_are_told_in_this_order(rig: Rig) -> None:
    pairs = await joined(rig, 70)
    for _, broker in pairs:
        put(broker, RESPONDED)
        broker.close()
    follow(rig)
    assert [await client.rest() for client, _ in pairs] == [RESPONDED] * 70
    assert rig.stats.errors == {}


@pytest.mark.parametrize("cause", ["idle", "drained"])
async def test_connection_that_is_closed_before_the_turn_has_ended_writes_first(rig: Rig, cause: str) -> None:
    client, broker = await rig.joined(ASKED)
    connection = rig.connection
    await read(rig, broker, RESPONDED, connection.responses)
    await read(rig, client, asked(2), connection.requests)
    connection.close(cause)
    assert (await client.rest(), await broker.rest()) == (RESPONDED, asked(2))


@pytest.mark.parametrize("end", [End.close, End.reset])
async def test_response_to_a_client_that_has_gone_ends_only_its_connection(
    rig: Rig, end: Callable[[End], None]
) -> None:
    client, broker = await rig.joined(ASKED)
    connection = rig.connection
    other_client, other_broker = await rig.joined(ASKED)
    await read(rig, broker, RESPONDED, connection.responses)
    put(other_broker, RESPONDED)
    end(client)
    await until(lambda: connection.closed or connection.requests.at_end, "its end is noticed")
    assert await other_client.receive(len(RESPONDED)) == RESPONDED
    broker.close()
    await until(lambda: connection.closed, "it has ended")
    assert len(rig.connections) == 1
    assert rig.stats.errors == ({"client_reset": 1} if end is End.reset else {})


async def test_replaced_response_behind_a_deferred_one_keeps_the_order(rig: Rig) -> None:
    """Both come in one read: the first passes, FindCoordinator's is replaced."""
    find = request(10, 0, size=60, correlation_id=2)
    client, broker = await rig.joined(asked(1) + find, gateway=True)
    # Error, node, host of three bytes, port.
    found = frame(b"\0\0\0\2" + b"\0\0" + b"\0\0\0\1" + b"\0\3abc" + b"\0\0\x23\x84")
    await read(rig, broker, RESPONDED + found, rig.connection.responses)
    length = len(RESPONDED) + len(found) - len("abc") + len("sluice.example")
    received = await client.receive(length)
    assert (received[: len(RESPONDED)], b"sluice.example" in received) == (RESPONDED, True)


async def test_shutdown_of_a_drain_comes_behind_a_deferred_response(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    connection = rig.connection
    await read(rig, broker, RESPONDED, connection.responses)
    connection.drain(now_ms())
    assert await client.rest() == RESPONDED


async def test_local_response_behind_a_deferred_one_keeps_the_order(rig: Rig) -> None:
    clerk = Clerk()
    rig.shared.ask = clerk.ask
    question = request(48, 1, b"fields", correlation_id=2)
    client = rig.connect(serves_quota_api=True)
    await client.send(asked(1) + question)
    broker = await rig.accept()
    assert await broker.receive(len(asked(1))) == asked(1)
    await clerk.asked()
    await read(rig, broker, RESPONDED, rig.connection.responses)
    assert has_nothing(client)
    local = frame(b"\0\0\0\2local")
    clerk.give[0](local)
    assert client.sock.recv(1000) == RESPONDED + local
    await asyncio.sleep(0)
    assert has_nothing(client)
