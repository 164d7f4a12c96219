"""Shares of budgets between control and workers."""

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

import pytest

from proxy.process.shares import IDLE_STEP_SECONDS, STEP_SECONDS, ControlShares, Pace, lessee_of, terms_of
from quotas.definitions.definitions import Definitions
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import LIVE_MS, LeaseTerms, LesseeId, Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.member import Member

KEY = "producer_byte_rate@-1 -=:a"


class Rig:
    """Control and two workers, whose messages take no time."""

    def __init__(self, member: Member | None = None) -> None:
        self.terms = terms_of(2)
        self.control = ControlShares(self.terms, 1, Capacities(Definitions), 0, member)
        self.workers = {run: lessee_of(self.terms, run, run, 0) for run in (1, 2)}

    def run(
        self,
        until_ms: int,
        wishes: Mapping[int, Mapping[str, Wish]],
        between: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Step every 50 ms, as processes do; `between` is called after each step's reports."""
        for now_ms in range(0, until_ms, 50):
            for run, worker in self.workers.items():
                worker.expire(now_ms)
                worker.wish(wishes.get(run, {}))
                if worker.due(now_ms):
                    assert self.control.report(worker.report(now_ms), now_ms)
            between(now_ms)
            for lessee, grants in self.control.grants(now_ms):
                if lessee.run in self.workers and self.workers[lessee.run].take(grants, now_ms):
                    self.workers[lessee.run].confirm()


def share(worker: Lessee, now_ms: int) -> float:
    return worker.share(KEY, now_ms)


def test_budget_goes_to_the_worker_that_wants_it() -> None:
    rig = Rig()
    rig.run(2000, {1: {KEY: Wish(1.0, 1)}})
    assert share(rig.workers[1], 1990) > 0.95
    assert share(rig.workers[1], 1990) + share(rig.workers[2], 1990) <= 1


def test_budget_is_divided_by_the_connections_that_wait() -> None:
    rig = Rig()
    rig.run(2000, {1: {KEY: Wish(1.0, 3)}, 2: {KEY: Wish(1.0, 1)}})
    assert 2.9 < share(rig.workers[1], 1990) / share(rig.workers[2], 1990) < 3.1


def test_worker_without_control_has_the_least_share_again() -> None:
    rig = Rig()
    assert share(rig.workers[1], 0) == rig.terms.least
    rig.run(2000, {1: {KEY: Wish(1.0, 1)}})
    assert rig.workers[1].expire(2000 + rig.terms.lease_ms)
    assert share(rig.workers[1], 2000 + rig.terms.lease_ms) == rig.terms.least


def test_worker_has_its_share_for_a_moment_after_each_time_that_it_sees_control_run() -> None:
    rig = Rig()
    rig.run(2000, {1: {KEY: Wish(1.0, 1)}})
    worker = rig.workers[1]
    for now_ms in range(2000, 9000, 50):  # control is stopped, which costs nothing while the lease lasts
        assert not worker.live(now_ms)
        assert share(worker, now_ms) > 0.95
    assert share(worker, 8950 + LIVE_MS - 1) > 0.95
    assert share(worker, 8950 + LIVE_MS) == rig.terms.least, "control was killed, or this worker stopped"
    assert worker.live(8950 + LIVE_MS), "limiters have to take their shares again"
    assert share(worker, 8950 + LIVE_MS) > 0.95


def test_report_of_an_unknown_session_is_refused() -> None:
    rig = Rig()
    rig.run(200, {})
    restarted = ControlShares(rig.terms, 2, Capacities(Definitions), 200)
    assert not restarted.report(rig.workers[1].report(250), 250)


def test_shares_of_a_worker_that_ended_are_free() -> None:
    rig = Rig()
    rig.run(2000, {1: {KEY: Wish(1.0, 1)}})
    rig.control.ended(1, 1)
    del rig.workers[1]
    rig.workers[3] = lessee_of(rig.terms, 1, 3, 0)
    rig.run(1000, {3: {KEY: Wish(1.0, 1)}})
    assert share(rig.workers[3], 990) > 0.95


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


async def test_pause_is_long_where_nothing_moves_and_within_a_lease() -> None:
    timers = Timers()
    for busy in (True, False):
        _, task = await begun(timers, busy=busy)
        timers.fire()
        await task
    assert timers.seconds == pytest.approx([STEP_SECONDS, IDLE_STEP_SECONDS])
    assert timers.cancelled == 2
    # Two of three reports may be late before the lease ends.
    assert terms_of(2).lease_ms > 3 * IDLE_STEP_SECONDS * 1000


@pytest.mark.parametrize(("now", "seconds"), [(2.92, 0.08), (2.99, 0.16), (3.001, 0.149)])
async def test_steps_are_due_at_the_same_times_everywhere(
    now: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = Timers()
    monkeypatch.setattr("proxy.process.shares.monotonic", lambda: now)
    _, task = await begun(timers, busy=False)
    task.cancel()
    assert timers.seconds == pytest.approx([seconds])


async def test_something_that_begins_ends_a_long_pause() -> None:
    pace, task = await begun(Timers(), busy=False)
    pace.wake()
    await task


async def test_something_that_begins_does_not_make_short_pauses_shorter() -> None:
    timers = Timers()
    pace, task = await begun(timers, busy=True)
    pace.wake()
    for _ in range(2):
        await asyncio.sleep(0)
    assert not task.done()
    timers.fire()
    await task


async def test_waking_without_a_pause_does_not_end_the_next_one() -> None:
    pace = Pace(cast("asyncio.AbstractEventLoop", Timers()))
    pace.wake()
    task = asyncio.create_task(pace.pause(busy=False))
    for _ in range(2):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()


def test_workers_have_their_members_share_together() -> None:
    fleet_terms = LeaseTerms(15_000, 1000, 4)
    holder = Lessor(fleet_terms, 1, lambda _: 1.0, 0, 0)
    member = Member(Lessee(fleet_terms, LesseeId("gw-1", 1), 0), terms_of(2), 0)
    rig = Rig(member)

    def exchange(now_ms: int) -> None:
        report = member.report(now_ms)
        if report is not None:
            holder.report(report, now_ms)
        for _, grants in holder.grants(now_ms):
            member.take(grants, now_ms)

    rig.run(5000, {run: {KEY: Wish(1.0, 1)} for run in (1, 2)}, exchange)
    shares = [share(worker, 4990) for worker in rig.workers.values()]
    assert 0.95 < sum(shares) <= member.lessee.share(KEY, 4990) <= 1
    assert 0.45 < shares[0] < 0.55
