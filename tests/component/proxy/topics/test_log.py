"""proxy.topics.log and thread: portions go from a loop to a thread, in order, and no more than fit."""

import asyncio

import pytest

from proxy.topics.log import PORTIONS_MAX, Inbox
from proxy.topics.records import Portion
from proxy.topics.topic import LoopThread


def portion(offset: int) -> Portion:
    return Portion((), offset, False, True, bytes(16))


async def put_all(inbox: Inbox, count: int) -> None:
    for offset in range(count):
        await inbox.put(portion(offset))


def test_portions_come_in_order_and_the_loop_waits_for_room() -> None:
    thread, inbox = LoopThread("log"), Inbox()
    arrived: list[int] = []
    inbox.arrived = lambda: arrived.append(1)
    count = 5 * PORTIONS_MAX
    done = thread.submit(put_all(inbox, count))
    found: list[int] = []
    for _ in range(count):
        taken = inbox.take(10)
        assert taken is not None
        assert len(arrived) <= len(found) + PORTIONS_MAX + 1
        found.append(taken.next_offset)
    done.result(10)
    assert found == list(range(count))
    assert (inbox.take(0.01), inbox.empty) == (None, True)
    thread.close()


def test_thread_cancels_what_runs_when_it_is_closed() -> None:
    thread = LoopThread("log")
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    running = thread.submit(forever())
    with pytest.raises(TimeoutError):
        running.result(0.05)
    thread.close()
    thread.close()
    assert ended == ["cancelled"]
