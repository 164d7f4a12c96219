"""The link between two processes, with both ends in one."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from proxy.process import messages
from proxy.process.messages import QUEUED_MAX, Beat, Link, Message, Response


class End:
    """One end, and what it has received."""

    def __init__(self) -> None:
        self.received: list[Message] = []
        self.lost = asyncio.Event()
        self.refused: type | None = None
        self.link = Link(asyncio.get_running_loop(), self.take, self.lost.set)

    def take(self, message: Message) -> None:
        if self.refused is not None and isinstance(message, self.refused):
            raise RuntimeError("a bug")
        self.received.append(message)

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.received) < count:  # noqa: ASYNC110 - no event of the link's own
                await asyncio.sleep(0.001)


@pytest.fixture
async def ends() -> AsyncIterator[tuple[End, End]]:
    pair = End(), End()
    for end, sock in zip(pair, socket.socketpair(), strict=True):
        await end.link.open(sock)
    yield pair
    for end in pair:
        end.link.close()


async def test_messages_arrive_in_order_and_then_the_end(ends: tuple[End, End]) -> None:
    one, other = ends
    other.link.send(Beat(7))
    sent: list[Message] = [Beat(number) for number in range(10 * QUEUED_MAX)]
    for message in sent:
        assert one.link.send(message)
    await one.wait_for(1)
    one.link.close()
    async with asyncio.timeout(10):
        await other.lost.wait()
    assert (other.received, one.received) == (sent, [Beat(7)])
    assert not other.link.send(Beat(0))


async def test_message_whose_handling_fails_does_not_stop_the_others(
    ends: tuple[End, End], caplog: pytest.LogCaptureFixture
) -> None:
    one, other = ends
    other.refused = Response
    one.link.send(Response(1, b""))
    one.link.send(Beat(1))
    await other.wait_for(1)
    assert "cannot handle a Response" in caplog.text
    other.refused = None


async def test_too_much_is_refused_while_the_other_side_does_not_read(
    ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = ends
    monkeypatch.setattr(messages, "UNSENT_BYTES_MAX", 1024 * 1024)
    message = Response(1, bytes(256 * 1024))
    sent = 0
    while one.link.send(message):  # nothing is read before the loop has its turn
        sent += 1
        assert sent < 100
    await other.wait_for(sent)
    assert one.link.send(message)


async def test_send_all_waits_until_there_is_room(ends: tuple[End, End]) -> None:
    one, other = ends
    for _ in range(100):
        assert await one.link.send_all(Response(1, bytes(256 * 1024)))
    await other.wait_for(100)


async def test_bytes_that_are_no_message_end_the_link(caplog: pytest.LogCaptureFixture) -> None:
    end = End()
    ours, theirs = socket.socketpair()
    await end.link.open(ours)
    theirs.sendall(b"\x00\x00\x00\x03abc")
    async with asyncio.timeout(10):
        await end.lost.wait()
    assert "the link between processes ends" in caplog.text
    theirs.close()


async def test_an_end_sees_that_the_other_side_is_gone_before_it_has_read_what_came_before(
    ends: tuple[End, End],
) -> None:
    one, other = ends
    assert one.link.other_side_runs()
    other.link.send(Beat(1))
    other.link.close()
    await other.link.gone.wait()
    assert not one.link.other_side_runs()
