"""Moving bytes: through the buffer or through a kernel pipe, in whatever pieces the sockets take, they are the same."""

import asyncio
import errno
import os

import pytest

from proxy.channel import PASS, REPLACE, Verdict
from proxy.net.pump import SPLICE_BYTES_MIN
from proxy.net.shared import READ_BYTES_MAX
from proxy.system.stats import LATENCY_BOUNDS_US
from tests.component.proxy.net.rig import ASKED, End, Rig, until
from tests.support.directions import FakeDirection
from tests.support.frames import LIST_OFFSETS, produce, request, some_response

LARGE = 3_000_000
SIZES = (
    1,
    *(READ_BYTES_MAX + more for more in (-4, 0, 1)),
    100_000,
    *(READ_BYTES_MAX + SPLICE_BYTES_MIN + more for more in (-100, 0, 100)),
    1 << 20,
    LARGE,
)


async def through(source: End, destination: End, data: bytes) -> bytes:
    """Send at one end, receive at the other."""
    sending = asyncio.ensure_future(source.send(data))
    received = await destination.receive(len(data))
    await sending
    return received


@pytest.mark.parametrize("pipes_max", [0, 64], ids=["buffers", "splice"])
@pytest.mark.parametrize("size", SIZES)
async def test_requests_of_any_size_arrive_as_they_were_sent(rig: Rig, pipes_max: int, size: int) -> None:
    rig.limit(pipes_max=pipes_max)
    client, broker = await rig.joined(ASKED)
    asked = b"".join(produce(9, 60 + size, correlation_id=number) for number in (2, 3))
    assert await through(client, broker, asked) == asked


@pytest.mark.parametrize("pipes_max", [0, 64], ids=["buffers", "splice"])
@pytest.mark.parametrize("size", SIZES)
async def test_responses_of_any_size_arrive_as_they_were_sent(rig: Rig, pipes_max: int, size: int) -> None:
    rig.limit(pipes_max=pipes_max)
    client, broker = await rig.joined(ASKED)
    asked = request(LIST_OFFSETS, 7, correlation_id=2)
    await client.send(asked)
    await broker.receive(len(asked))
    response = some_response(60 + size, correlation_id=1) + some_response(60 + size, correlation_id=2)
    assert await through(broker, client, response) == response


@pytest.mark.parametrize("pipes_max", [0, 64], ids=["buffers", "splice"])
@pytest.mark.parametrize("sizes", [(LARGE,), (500_000, 50, 200_000)], ids=["one", "frames behind a slow one"])
async def test_destination_that_takes_little_at_a_time_gets_all(
    rig: Rig, pipes_max: int, sizes: tuple[int, ...]
) -> None:
    rig.limit(pipes_max=pipes_max)
    numbers = range(1, len(sizes) + 1)
    asked = b"".join(request(LIST_OFFSETS, 7, correlation_id=number) for number in numbers)
    client, broker = await rig.joined(asked, send_buffer=4096)
    response = b"".join(some_response(size, correlation_id=n) for n, size in enumerate(sizes, 1))
    assert await through(broker, client, response) == response


async def test_rest_of_a_request_that_has_arrived_whole_is_copied(rig: Rig) -> None:
    """A client has just written it: a copy costs less than a pipe. The next header is read with its payload again."""
    client, broker = await rig.joined(ASKED, receive_buffer=1 << 20)
    for number in (2, 3):
        asked = produce(9, READ_BYTES_MAX + SPLICE_BYTES_MIN + 1_000, correlation_id=number)
        client.send_whole(asked)
        assert await broker.receive(len(asked)) == asked
    assert rig.stats.spliced_bytes == 0


async def test_rest_of_a_request_that_comes_later_is_spliced(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED, receive_buffer=1 << 20)
    asked = produce(9, READ_BYTES_MAX + SPLICE_BYTES_MIN + 1_000, correlation_id=2)
    client.send_whole(asked[:READ_BYTES_MAX])
    assert await broker.receive(READ_BYTES_MAX) == asked[:READ_BYTES_MAX]
    client.send_whole(asked[READ_BYTES_MAX:])
    assert await broker.receive(len(asked) - READ_BYTES_MAX) == asked[READ_BYTES_MAX:]
    late = rig.stats.spliced_bytes
    assert late == len(asked) - READ_BYTES_MAX
    client.send_whole(asked := produce(9, 100_000 + READ_BYTES_MAX // 2, correlation_id=3))
    assert await broker.receive(len(asked)) == asked
    assert rig.stats.spliced_bytes == late, "one late request does not change how the next ones pass"


async def test_rest_beyond_the_buffer_is_spliced(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED, receive_buffer=1 << 20)
    asked = produce(9, 2 * READ_BYTES_MAX + 5_000, correlation_id=2)
    client.send_whole(asked)
    assert await broker.receive(len(asked)) == asked
    assert rig.stats.spliced_bytes == len(asked) - READ_BYTES_MAX


async def test_records_of_a_consumer_are_spliced(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    response = some_response(READ_BYTES_MAX + SPLICE_BYTES_MIN + 1_000)
    assert await through(broker, client, response) == response
    assert rig.stats.spliced_bytes > SPLICE_BYTES_MIN


@pytest.mark.parametrize("size", [100_000, 500_000])
@pytest.mark.parametrize("piece_bytes", [5_000, SPLICE_BYTES_MIN + 1, READ_BYTES_MAX])
async def test_frames_that_arrive_in_pieces_pass(rig: Rig, size: int, piece_bytes: int) -> None:
    client, broker = await rig.joined(ASKED)
    asked = b"".join(produce(9, size, correlation_id=number) for number in range(2, 5))
    receiving = asyncio.ensure_future(broker.receive(len(asked)))
    for at in range(0, len(asked), piece_bytes):
        await client.send(asked[at : at + piece_bytes])
        await asyncio.sleep(0)  # the proxy may take its turn
    assert await receiving == asked


async def test_pipe_is_given_back_behind_a_frame(rig: Rig) -> None:
    rig.limit(pipes_max=1)
    client, broker = await rig.joined(ASKED)
    await through(client, broker, produce(9, LARGE, correlation_id=2) + produce(9, 100, correlation_id=3))
    assert rig.shared.pipes.take() is not None


async def test_refused_splice_falls_back_to_buffers_and_is_not_tried_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def refuse(*_args: object, **_kwargs: object) -> int:
        tried.append(1)
        raise OSError(errno.EINVAL, "not these sockets")

    monkeypatch.setattr(os, "splice", refuse)
    client, broker = await rig.joined(ASKED)
    asked = produce(9, LARGE, correlation_id=2)
    assert await through(client, broker, asked) == asked
    assert len(tried) == 1


async def test_splice_that_fails_ends_the_connection(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_kwargs: object) -> int:
        raise ConnectionResetError(errno.ECONNRESET, "gone")

    monkeypatch.setattr(os, "splice", fail)
    client, broker = await rig.joined(ASKED)
    asked = produce(9, LARGE, correlation_id=2)
    sending = asyncio.ensure_future(client.send(asked))
    await broker.rest()
    assert rig.stats.errors == {"client_reset": 1}
    sending.cancel()


async def filling(rig: Rig) -> tuple[End, "asyncio.Future[None]"]:
    """A client that does not read, whose response fills the only pipe; and the sending of the response."""
    rig.limit(pipes_max=1)
    client, broker = await rig.joined(ASKED, send_buffer=4096)
    sending = asyncio.ensure_future(broker.send(some_response(LARGE)))
    await until(lambda: rig.connection.responses.blocked and rig.stats.spliced_bytes > 0, "the pipe is lent")
    return client, sending


async def test_connection_beyond_the_last_pipe_uses_buffers(rig: Rig) -> None:
    _, sending = await filling(rig)
    client, broker = await rig.joined(ASKED)
    asked = produce(9, LARGE, correlation_id=2)
    assert await through(client, broker, asked) == asked
    assert rig.stats.pipe_fallbacks > 0
    sending.cancel()


async def test_pipe_of_a_connection_that_ends_with_bytes_in_it_is_not_lent_again(rig: Rig) -> None:
    client, sending = await filling(rig)
    client.reset()
    await until(lambda: not rig.connections, "the connection has ended")
    pipe = rig.shared.pipes.take()
    assert pipe is not None
    with pytest.raises(BlockingIOError):
        os.read(pipe.read_fd, 1)
    sending.cancel()


async def test_broker_that_closes_within_a_spliced_frame_is_counted(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    half = some_response(LARGE)[: LARGE // 2]
    receiving = asyncio.ensure_future(client.rest())
    await broker.send(half)
    broker.close()
    assert await receiving == half
    assert rig.stats.errors == {"broker_closed_early": 1}


async def test_frame_that_has_to_be_whole_is_kept_beyond_the_read_buffer(rig: Rig) -> None:
    # FindCoordinator: its response is rewritten whole.
    client, broker = await rig.joined(request(10, 0, size=60), gateway=True)
    # Error, node, host of 30,000 bytes, port; and 400,000 bytes more than any broker sends.
    body = (
        b"\0\0\0\1" + b"\0\0" + b"\0\0\0\2" + b"\x75\x30" + b"h" * 30_000 + b"\0\0\x23\x84" + bytes(400_000)
    )
    sending = asyncio.ensure_future(broker.send(len(body).to_bytes(4, "big") + body))
    head = await client.receive(4)
    assert int.from_bytes(head, "big") == len(body) - 30_000 + len("sluice.example")
    await sending


async def test_latency_is_sampled(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    for number in range(2, 4000):  # one in sixteen is timed, by chance: so many without one do not happen
        await through(client, broker, request(LIST_OFFSETS, 7, correlation_id=number, size=100))
        if rig.stats.latency_count:
            break
    assert rig.stats.latency_count >= 1
    assert len(rig.stats.latency_buckets) == len(LATENCY_BOUNDS_US) + 1


async def test_bytes_are_counted_when_the_connection_ends(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    await through(broker, client, some_response(96))
    client.close()
    broker.close()
    await until(lambda: not rig.connections, "the connection has ended")
    assert (rig.stats.bytes_from_clients, rig.stats.bytes_from_brokers) == (104, 100)


class _EachReplaced(FakeDirection):
    """Puts a capital in place of the head of each frame, or more of them, and passes the rest of it through."""

    frame = head = 1
    times = 1
    calls = 0

    def receive(self, buf: bytearray, start: int, end: int, now_ns: int) -> Verdict:
        self.calls += 1
        verdict = self.verdict
        passing = verdict.passing = min(verdict.passthrough, end - start)
        verdict.passthrough -= passing
        verdict.order = PASS
        pos = start + passing
        if pos < end:
            verdict.insert = bytes(buf[pos : pos + 1]).upper() * self.times
            verdict.drop, verdict.passthrough = self.head, self.frame - self.head
            verdict.order = REPLACE
        return verdict


async def calls_by_turn(direction: _EachReplaced, receiving: asyncio.Future[bytes]) -> list[int]:
    """How often the direction was called in each turn of the loop in which it was."""
    turns, before = [], direction.calls
    while not receiving.done():
        await asyncio.sleep(0)
        if direction.calls > before:
            turns.append(direction.calls - before)
            before = direction.calls
    return turns


@pytest.mark.interpreted
@pytest.mark.parametrize("times", [1, 1000], ids=["client reads", "client reads slowly"])
@pytest.mark.parametrize("rest", [0, 3], ids=["whole frames", "heads"])
async def test_replaced_frames_take_turns_with_the_rest_of_the_loop(rig: Rig, rest: int, times: int) -> None:
    client, broker = await rig.joined(ASKED, send_buffer=4096)
    direction = _EachReplaced()
    direction.frame, direction.times = 1 + rest, times
    rig.connection.responses.direction = direction
    expected = (b"A" * times + b"a" * rest) * 1000
    receiving = asyncio.ensure_future(client.receive(len(expected)))
    broker.sock.send(b"a" * (1 + rest) * 1000)  # one read
    turns = await calls_by_turn(direction, receiving)
    assert await receiving == expected
    assert (turns[:5], max(turns)) == ([200] * 5, 200)


@pytest.mark.interpreted
async def test_large_frames_that_are_replaced_have_a_turn_each(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    direction = _EachReplaced()
    rig.connection.responses.direction = direction
    direction.frame = direction.head = 199 * 64
    receiving = asyncio.ensure_future(client.receive(3))
    broker.sock.send(b"a" * direction.frame * 3)  # one read
    turns = await calls_by_turn(direction, receiving)
    assert await receiving == b"AAA"
    assert (turns[:3], max(turns)) == ([1, 1, 1], 1)


@pytest.mark.interpreted
async def test_turn_ends_within_a_frame_whose_rest_is_still_to_come(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    direction = _EachReplaced()
    rig.connection.responses.direction = direction
    direction.frame = 4
    receiving = asyncio.ensure_future(client.receive(4 * 200))
    broker.sock.send(b"a" * (4 * 200 - 1))  # one read
    await until(lambda: direction.calls == 201, "the turn after this one has begun")
    assert (direction.verdict.passthrough, rig.connection.requests.paused) == (1, False)
    await broker.send(b"a")
    assert await receiving == b"Aaaa" * 200
