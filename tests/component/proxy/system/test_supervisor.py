"""Background work that fails: counted, said once for each cause, run again; time is the loop's and stands still."""

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest

from proxy.system.logs import FIELDS
from proxy.system.stats import Stats
from proxy.system.supervisor import CAUSES_MAX, Supervisor


class Loop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to whatever is due next: nothing is ever waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0

    def time(self) -> float:
        """Give the time that was jumped to."""
        return self._now

    def _run_once(self) -> None:
        scheduled = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        if not self._ready and scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, min(scheduled))
        super()._run_once()  # type: ignore[misc]


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop of this test's own."""
    made = Loop()
    yield made
    made.close()


class Fails:
    """Fails as often as it is told to, notes when it was run, and then waits for ever."""

    def __init__(self, loop: Loop, *errors: BaseException) -> None:
        self._loop = loop
        self._errors = list(errors)
        self.at: list[float] = []
        self.waits = asyncio.Event()

    async def run(self) -> None:
        """Fail, or wait."""
        self.at.append(round(self._loop.time() - 1000, 3))
        if self._errors:
            raise self._errors.pop(0)
        self.waits.set()
        await asyncio.Event().wait()


def supervised(loop: Loop, work: Callable[[Supervisor], object], seconds: float) -> Stats:
    """Let a supervisor do something, for so long."""
    stats = Stats()

    async def main() -> None:
        supervisor = Supervisor(loop, stats)
        work(supervisor)
        await asyncio.sleep(seconds)
        await supervisor.end()

    loop.run_until_complete(main())
    return stats


def forever(loop: Loop, task: Fails, seconds: float) -> Stats:
    """Let a supervisor run a task again and again, for so long."""
    return supervised(loop, lambda supervisor: supervisor.run_forever("poller", task.run), seconds)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_task_that_fails_is_run_again_after_pauses_that_double_and_one_cause_is_logged_once(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    task = Fails(loop, *[RuntimeError(f"number {n}") for n in range(5)])
    with caplog.at_level(logging.INFO):
        stats = forever(loop, task, 100)
    # 0.1, 0.2, 0.4, 0.8 and 1.6 s after each other.
    assert task.at == [0.0, 0.1, 0.3, 0.7, 1.5, 3.1]
    assert stats.task_failures == {"poller": 5}
    assert said(caplog) == ["a background task failed", "a background task recovered"]


def test_pauses_have_a_bound(loop: Loop) -> None:
    task = Fails(loop, *[RuntimeError("a bug") for _ in range(100)])
    forever(loop, task, 300)
    # 0.1 x 2^8 is 25.6 s, and 0.1 x 2^9 would be 51.2 s.
    gaps = [round(after - before, 1) for before, after in zip(task.at, task.at[1:], strict=False)]
    assert gaps[7:] == [12.8, 25.6, *[30.0] * (len(gaps) - 9)]


def test_task_that_has_run_for_a_minute_begins_with_a_short_pause_again(loop: Loop) -> None:
    began: list[float] = []

    async def fails_each_minute() -> None:
        began.append(round(loop.time() - 1000, 3))
        await asyncio.sleep(60)
        raise RuntimeError("a bug")

    supervised(loop, lambda supervisor: supervisor.run_forever("poller", fails_each_minute), 200)
    assert began == [0.0, 60.1, 120.2, 180.3]


def test_another_cause_is_said_as_well(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    forever(loop, Fails(loop, RuntimeError("one"), ValueError("two"), RuntimeError("one again")), 10)
    assert said(caplog) == ["a background task failed"] * 2


def test_causes_that_are_said_are_bounded(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    kinds = [type(f"Error{n}", (Exception,), {}) for n in range(CAUSES_MAX + 5)]
    forever(loop, Fails(loop, *[kind("new") for kind in kinds]), 1000)
    assert len(said(caplog)) == CAUSES_MAX


def test_task_that_returns_is_not_run_again(loop: Loop) -> None:
    runs = []

    async def work() -> None:
        runs.append(1)

    supervised(loop, lambda supervisor: supervisor.run_forever("leases", work), 10)
    assert runs == [1]


def test_task_whose_own_future_was_cancelled_is_run_again(loop: Loop) -> None:
    task = Fails(loop, asyncio.CancelledError())
    stats = forever(loop, task, 1)
    assert (len(task.at), stats.task_failures) == (2, {"poller": 1})


def test_ended_supervisor_leaves_nothing_running(loop: Loop) -> None:
    assert forever(loop, Fails(loop), 1).task_failures == {}
    assert not asyncio.all_tasks(loop)


def test_single_work_that_fails_is_counted_and_not_run_again_and_a_success_is_said(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    async def succeed() -> None: ...

    tasks = [Fails(loop, RuntimeError("a bug")) for _ in range(2)]

    def work(supervisor: Supervisor) -> None:
        for run in (*(task.run for task in tasks), succeed):
            supervisor.run_once("reconsider", run())

    with caplog.at_level(logging.INFO):
        stats = supervised(loop, work, 100)
    assert ([task.at for task in tasks], stats.task_failures) == ([[0.0]] * 2, {"reconsider": 2})
    assert said(caplog) == ["a background task failed", "a background task recovered"]


def test_attempt_is_given_up_in_time_and_a_failure_is_counted(loop: Loop) -> None:
    stats = Stats()
    began = loop.time()
    for task, seconds in ((Fails(loop, RuntimeError("a bug")), 0.0), (Fails(loop), 1.0)):
        loop.run_until_complete(Supervisor(loop, stats).attempt("poller", task.run(), 1.0))
        assert loop.time() - began == pytest.approx(seconds)
    assert stats.task_failures == {"poller": 1}


def test_callbacks_of_the_loop_that_raise_are_counted_and_said_once(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    handed_on: list[BaseException] = []

    def callback() -> None:
        raise RuntimeError("a bug")

    def work(supervisor: Supervisor) -> None:
        supervisor.watch_callbacks(handed_on.append)
        for _ in range(3):
            loop.call_soon(callback)

    stats = supervised(loop, work, 1)
    assert (stats.task_failures, len(handed_on)) == ({"callback": 3}, 3)
    assert said(caplog) == ["a background task failed"]


def test_call_that_fails_says_so_and_raises_nothing(loop: Loop) -> None:
    stats = Stats()
    supervisor = Supervisor(loop, stats)
    assert not supervisor.call("expire", lambda: 1 // 0)
    assert supervisor.call("expire", lambda: None)
    assert stats.task_failures == {"expire": 1}


def test_cause_of_an_exception_group_is_its_first_exception(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ExceptionGroup("several", [ValueError("one"), RuntimeError("two")])

    Supervisor(loop, Stats()).call("expire", fail)
    assert getattr(caplog.records[0], FIELDS) == {"task": "expire", "cause": "ValueError"}
