"""One connection through real sockets: what is relayed, how it ends, and under which cause."""

import asyncio
import logging
import socket
import struct

import pytest

from proxy.channel import Side
from proxy.net import now_ms
from quotas.definitions import Definitions, StaticQuotas
from quotas.engine import EngineOptions
from tests.support.frames import LIST_OFFSETS, answer, fetch, fetch_answer, produce, produce_answer, request
from tests.unit.proxy.net.rig import HOST, SECONDS_MAX, End, Rig, listening, until

ASKED = request(LIST_OFFSETS, 7, size=100)
ANSWERED = answer(50)
OVER = 12_000  # with 1,000 bytes/s and 10,000 free: 2 s


async def test_request_and_answer_are_relayed(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED)
    broker = await rig.accept()
    assert await broker.receive(len(ASKED)) == ASKED
    await broker.send(ANSWERED)
    assert await client.receive(len(ANSWERED)) == ANSWERED


async def test_broker_is_not_connected_before_the_first_request(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED[:10])
    await until(lambda: rig.connection.requests.kept_bytes == 10, "the cut header is kept")
    with pytest.raises(BlockingIOError):
        rig.back.accept()


async def test_port_scan_costs_no_error(rig: Rig) -> None:
    client = rig.connect()
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")
    assert not rig.stats.errors


async def test_client_that_closes_takes_the_brokers_connection_with_it(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED)
    broker = await rig.accept()
    client.close()
    assert await broker.rest() == ASKED


async def test_client_that_closes_with_answers_owed_is_no_error(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED)
    broker = await rig.accept()
    client.close()
    await broker.rest()
    broker.close()  # as a broker does that reads the end
    await until(lambda: not rig.connections, "the connection has ended")
    assert not rig.stats.errors


async def test_broker_that_closes_takes_the_clients_connection_with_it(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED)
    broker = await rig.accept()
    await broker.receive(len(ASKED))
    await broker.send(ANSWERED)
    broker.close()
    assert await client.rest() == ANSWERED


async def test_broker_that_closes_in_peace_is_no_error(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED)
    broker = await rig.accept()
    await broker.receive(len(ASKED))
    await broker.send(ANSWERED)
    broker.close()
    await client.rest()
    assert not rig.stats.errors


async def test_broker_that_closes_with_an_answer_owed_is_counted(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED)
    broker = await rig.accept()
    await broker.receive(len(ASKED))
    broker.close()
    await client.rest()
    assert rig.stats.errors == {"broker_closed_early": 1}


async def test_broker_that_closes_mid_frame_is_counted(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED)
    broker = await rig.accept()
    await broker.receive(len(ASKED))
    await broker.send(ANSWERED[:20])
    broker.close()
    assert (await client.rest(), rig.stats.errors) == (ANSWERED[:20], {"broker_closed_early": 1})


async def test_broker_that_resets_is_counted(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED)
    broker = await rig.accept()
    await broker.receive(len(ASKED))
    broker.reset()
    await client.rest()
    assert rig.stats.errors == {"broker_reset": 1}


async def test_client_that_resets_is_counted(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED)
    broker = await rig.accept()
    await broker.receive(len(ASKED))
    client.reset()
    await broker.rest()
    await until(lambda: not rig.connections, "the connection has ended")
    assert rig.stats.errors == {"client_reset": 1}


@pytest.mark.parametrize("sent", [200, 300_000])
async def test_client_that_closes_mid_frame_is_counted(rig: Rig, sent: int) -> None:
    client = rig.connect()
    asked = produce(9, 1_000_000)
    await client.send(asked[:sent])
    broker = await rig.accept()
    client.close()
    assert await broker.rest() == asked[:sent]
    await until(lambda: not rig.connections, "the connection has ended")
    assert rig.stats.errors == {"client_closed_mid_frame": 1}


async def test_wrong_bytes_end_the_connection_under_their_cause(rig: Rig) -> None:
    client = rig.connect()
    await client.send(b"GET / HTTP/1.1\r\n\r\n")
    assert (await client.rest(), rig.stats.errors) == (b"", {"http_request": 1})


async def test_wrong_bytes_of_a_broker_end_the_connection_under_their_cause(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED)
    broker = await rig.accept()
    await broker.send(answer(50, correlation_id=77))
    assert (await client.rest(), rig.stats.errors) == (b"", {"broker_out_of_order": 1})


async def test_malformed_answer_ends_the_connection_under_its_cause(rig: Rig) -> None:
    client = rig.connect(gateway=True)
    await client.send(request(10, 0, size=60))
    broker = await rig.accept()
    await broker.send(answer(4))
    assert (await client.rest(), rig.stats.errors) == (b"", {"malformed": 1})


async def test_end_under_a_cause_is_logged_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client = rig.connect()
    await client.send(b"\xff\xff\xff\xff")
    await client.rest()
    assert [record.getMessage() for record in caplog.records] == ["connection ended"]


async def test_quiet_end_is_not_logged(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client = rig.connect()
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")
    assert not caplog.records


async def test_bug_of_ours_ends_one_connection(rig: Rig) -> None:
    client = rig.connect()
    rig.connection.requests.side = _Broken(rig.connection.channel.state)
    rig.connect()
    await client.send(ASKED)
    assert (await client.rest(), rig.stats.errors, len(rig.connections)) == (b"", {"internal": 1}, 1)


class _Broken(Side):
    def receive(self, buf: bytearray | memoryview, start: int, end: int, now_ms: int) -> int:
        raise RuntimeError("a bug")


# The broker's connection


async def test_unknown_broker_ends_the_connection(rig: Rig) -> None:
    client = rig.connect(None)
    await client.send(ASKED)
    assert (await client.rest(), rig.stats.errors) == (b"", {"broker_unknown": 1})


async def test_broker_that_is_down_ends_the_connection(rig: Rig) -> None:
    gone = listening()
    address = gone.getsockname()
    gone.close()
    client = rig.connect(address)
    await client.send(ASKED)
    await client.rest()
    assert rig.stats.errors == {"broker_unreachable": 1}


async def test_broker_that_does_not_answer_the_connect_ends_the_connection(rig: Rig) -> None:
    with socket.create_server((HOST, 0), backlog=0) as full:
        waiting = [_connecting(full.getsockname()) for _ in range(4)]
        client = rig.connect(full.getsockname())
        await client.send(ASKED)
        await until(lambda: rig.connection.requests.blocked, "the request waits for the broker")
        rig.connection.sweep(now_ms() + 11_000)
        assert (await client.rest(), rig.stats.errors) == (b"", {"broker_unreachable": 1})
        for sock in waiting:
            sock.close()


def _connecting(address: tuple[str, int]) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(address)
    return sock


async def test_throttled_request_to_an_unknown_broker_leaves_no_gauge_behind(rig: Rig) -> None:
    rig.quota(producer=1000)
    client = rig.connect(None)
    await client.send(produce(9, OVER))
    await client.rest()
    assert (rig.stats.muted, rig.stats.errors) == (0, {"broker_unknown": 1})


async def test_answer_made_here_needs_no_broker(rig: Rig) -> None:
    rig.quota(consumer=1000)
    spent = rig.engine.client("ANONYMOUS", "a", 1).fetch
    spent.fetched(spent.turn(), 50_000, now_ms())
    client = rig.connect(None)
    asked = fetch(11)
    await client.send(asked)
    (length,) = struct.unpack(">i", await client.receive(4))
    assert (length, rig.stats.errors) == (18, {})


# Mutes


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


async def test_client_that_closes_while_muted_by_an_answer_is_noticed(rig: Rig) -> None:
    rig.quota(consumer=1000)
    client = rig.connect()
    await client.send(fetch(11, max_bytes=100))
    broker = await rig.accept()
    await broker.send(fetch_answer(11, 30_000))
    await client.receive(30_004)
    await until(lambda: rig.stats.muted == 1, "one channel is muted")
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")


async def test_answer_without_acks_is_delivered_after_the_client_has_closed(rig: Rig) -> None:
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


async def test_answers_are_delivered_while_muted(rig: Rig) -> None:
    rig.quota(producer=1000)
    client = rig.connect()
    asked = produce(9, OVER)
    await client.send(asked)
    broker = await rig.accept()
    await broker.receive(len(asked))
    await broker.send(produce_answer(9))
    got = await client.receive(len(produce_answer(9)))
    assert 0 < struct.unpack_from(">i", got, 10)[0] <= 2000


async def test_mute_that_ends_while_the_broker_is_slow_loses_no_request(rig: Rig) -> None:
    rig.quota(producer=100_000)
    client = rig.connect()
    # Larger than all socket buffers on the way: the broker reads nothing until the mute (0.2 s) is over.
    first = produce(9, 20_000_000)
    second = request(LIST_OFFSETS, 7, correlation_id=2, size=100)
    rig.engine.update(EngineOptions(mute_seconds_max=0.2), rig.engine.definitions, now_ms())
    sending = asyncio.ensure_future(client.send(first + second))
    broker = await rig.accept()
    assert await broker.receive(len(first) + len(second)) == first + second
    await sending


async def test_kept_request_passes_when_the_broker_connects_after_the_mute(rig: Rig) -> None:
    rig.quota(producer=10_000)
    spent = rig.engine.client("ANONYMOUS", "a", 1).produce
    spent.produce(spent.turn(), 102_000, now_ms())
    both = produce(9, 100) + request(LIST_OFFSETS, 7, correlation_id=2, size=100)
    with socket.create_server((HOST, 0), backlog=0) as late:
        late.setblocking(False)
        waiting = [_connecting(late.getsockname()) for _ in range(4)]
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
    rig.connection.reconsider(now_ms())
    assert await broker.receive(len(second)) == second


async def test_held_request_is_kept_out_of_the_broker(rig: Rig) -> None:
    rig.quota(producer=10_000, policy="schedule")
    spent = rig.engine.client("ANONYMOUS", "a", 1).produce
    spent.produce(spent.turn(), 1_000_000, now_ms())
    client = rig.connect()
    await client.send(produce(9, 5000))
    await until(lambda: rig.stats.held == 1, "one request is held")
    with pytest.raises(BlockingIOError):
        rig.back.accept()


async def test_held_request_passes_when_enforcement_ends(rig: Rig) -> None:
    rig.quota(producer=10_000, policy="schedule")
    spent = rig.engine.client("ANONYMOUS", "a", 1).produce
    spent.produce(spent.turn(), 1_000_000, now_ms())
    client = rig.connect()
    asked = produce(9, 5000)
    await client.send(asked)
    await until(lambda: rig.stats.held == 1, "one request is held")
    rig.engine.switch(False)
    rig.connection.reconsider(now_ms())
    broker = await rig.accept()
    assert (await broker.receive(len(asked)), rig.stats.held, rig.stats.held_bytes) == (asked, 0, 0)


async def test_held_request_without_acks_outlives_its_client(rig: Rig) -> None:
    rig.quota(producer=10_000, policy="schedule", hold_seconds_max=0.3)
    spent = rig.engine.client("ANONYMOUS", "a", 1).produce
    spent.produce(spent.turn(), 1_000_000, now_ms())
    client = rig.connect()
    asked = produce(9, 5000, acks=0)
    await client.send(asked)
    await until(lambda: rig.stats.held == 1, "one request is held")
    client.close()
    broker = await rig.accept()
    assert await broker.receive(len(asked)) == asked


# Limits


async def test_idle_connection_is_closed(rig: Rig) -> None:
    client = rig.connect()
    rig.connection.sweep(now_ms() + 601_000)
    assert (await client.rest(), rig.stats.errors) == (b"", {})


async def test_busy_connection_is_not_idle(rig: Rig) -> None:
    rig.connect()
    rig.connection.sweep(now_ms() + 599_000)
    assert rig.connections


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


async def test_client_that_does_not_read_stops_the_broker(rig: Rig) -> None:
    client = rig.connect(send_buffer=4096)
    await client.send(ASKED)
    broker = await rig.accept()
    await broker.receive(len(ASKED))
    sending = asyncio.ensure_future(broker.send(answer(20_000_000)))
    await until(lambda: rig.connection.responses.blocked, "the answer waits for the client")
    assert not sending.done()
    sending.cancel()


# Draining


async def test_idle_connection_is_drained(rig: Rig) -> None:
    client = rig.connect()
    rig.connection.drain(now_ms())
    assert await client.rest() == b""
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")


async def test_answer_owed_is_delivered_before_a_drained_connection_closes(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED)
    broker = await rig.accept()
    await broker.receive(len(ASKED))
    rig.connection.drain(now_ms())
    await broker.send(ANSWERED)
    assert await client.receive(len(ANSWERED)) == ANSWERED
    rig.connection.drain(now_ms())
    assert await client.rest() == b""


async def test_client_that_pipelines_without_a_pause_is_drained(rig: Rig) -> None:
    client = rig.connect()
    asked = [request(LIST_OFFSETS, 7, correlation_id=number, size=100) for number in range(3)]
    await client.send(asked[0] + asked[1])
    broker = await rig.accept()
    await broker.receive(208)
    rig.connection.drain(now_ms())
    await client.send(asked[2])
    await broker.send(answer(50, correlation_id=0) + answer(50, correlation_id=1))
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
    rig.engine.switch(False)
    rig.connection.drain(now_ms())
    assert await broker.receive(len(second)) == second


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
