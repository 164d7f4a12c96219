"""The pauses between a worker's steps; the timers are ours."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from proxy.process.shares import IDLE_STEP_SECONDS, STEP_SECONDS, Pace, terms_of


class Timers:
    """A loop's timers, of which the last one can be fired."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cancelled = 0
        self.fire: Callable[[], object] = lambda: None

    def call_later(self, seconds: float, callback: Callable[[], object]) -> "Timers":
        self.seconds.append(seconds)
        self.fire = callback
        return self

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be when a step of each length is due."""
    monkeypatch.setattr("proxy.process.shares.monotonic", lambda: 3.0)


async def begun(timers: Timers, *, busy: bool) -> tuple[Pace, "asyncio.Task[None]"]:
    """A pause that has begun."""
    pace = Pace(cast("asyncio.AbstractEventLoop", timers))
    task = asyncio.create_task(pace.pause(busy=busy))
    await asyncio.sleep(0)
    return pace, task


def test_pause_is_long_where_nothing_moves_and_within_a_lease() -> None:
    async def run() -> None:
        timers = Timers()
        for busy in (True, False):
            _, task = await begun(timers, busy=busy)
            timers.fire()
            await task
        assert timers.seconds == pytest.approx([STEP_SECONDS, IDLE_STEP_SECONDS])
        assert timers.cancelled == 2

    asyncio.run(run())
    # Two of three reports may be late before the lease ends.
    assert terms_of(2).lease_ms > 3 * IDLE_STEP_SECONDS * 1000


@pytest.mark.parametrize(("now", "seconds"), [(2.92, 0.08), (2.99, 0.16), (3.001, 0.149)])
def test_steps_are_due_at_the_same_times_everywhere(
    now: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> float:
        timers = Timers()
        monkeypatch.setattr("proxy.process.shares.monotonic", lambda: now)
        _, task = await begun(timers, busy=False)
        task.cancel()
        return timers.seconds[0]

    assert asyncio.run(run()) == pytest.approx(seconds)


def test_something_that_begins_ends_a_long_pause() -> None:
    async def run() -> None:
        pace, task = await begun(Timers(), busy=False)
        pace.wake()
        await task

    asyncio.run(run())


def test_something_that_begins_does_not_make_short_pauses_shorter() -> None:
    async def run() -> None:
        timers = Timers()
        pace, task = await begun(timers, busy=True)
        pace.wake()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()
        timers.fire()
        await task

    asyncio.run(run())


def test_waking_without_a_pause_does_not_end_the_next_one() -> None:
    async def run() -> None:
        pace = Pace(cast("asyncio.AbstractEventLoop", Timers()))
        pace.wake()
        task = asyncio.create_task(pace.pause(busy=False))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()

    asyncio.run(run())
