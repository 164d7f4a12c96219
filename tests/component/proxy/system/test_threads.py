"""The thread beside the loop: order, fairness between addresses, and its bounds."""

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from threading import Event, get_ident

import pytest

from proxy.system.threads import (
    AT_ONCE_BYTES_MAX,
    BYTES_MAX,
    JOBS_MAX,
    TURN_SECONDS,
    OverloadError,
    Worker,
    parse_response,
    without_collections,
)
from tests.support.waiting import until


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


class Rig:
    """A worker whose first job holds it until `go`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.worker = Worker(loop)
        self.ran: list[str] = []
        self.told: list[tuple[str, bool]] = []
        self.to_tell = 0
        self.go = Event()
        self.begun = Event()
        self.worker.submit("first", 1, self._hold, lambda _done: None)
        assert self.begun.wait(10)

    def _hold(self) -> None:
        self.begun.set()
        assert self.go.wait(10)

    def submit(self, whose: str, name: str, size: int = 1) -> Callable[[], None]:
        self.to_tell += 1
        return self.worker.submit(
            whose, size, lambda: self.ran.append(name), lambda done: self.tell(name, done)
        )

    def tell(self, name: str, done: bool) -> None:
        self.told.append((name, done))
        if len(self.told) == self.to_tell:
            self.loop.stop()

    def finish(self) -> None:
        self.submit("zz", "last")
        self.go.set()
        self.loop.call_later(10, self.loop.stop)
        self.loop.run_forever()
        self.worker.close()


def test_addresses_take_turns(loop: asyncio.AbstractEventLoop) -> None:
    rig = Rig(loop)
    for name in ("a1", "a2", "a3"):
        rig.submit("a", name)
    rig.submit("b", "b1")
    rig.finish()
    assert rig.ran == ["a1", "b1", "last", "a2", "a3"]
    assert rig.told == [(name, True) for name in rig.ran]


def test_job_that_is_taken_back_is_not_done(loop: asyncio.AbstractEventLoop) -> None:
    rig = Rig(loop)
    taken_back = [rig.submit("a", f"a{index}") for index in range(3)]
    rig.submit("b", "b1")
    for withdraw in taken_back:
        withdraw()
        withdraw()
    rig.to_tell -= 3
    rig.finish()
    taken_back[0]()
    assert rig.ran == ["b1", "last"]
    assert rig.told == [("b1", True), ("last", True)]


def test_over_the_bound_the_last_job_of_the_address_with_most_goes(loop: asyncio.AbstractEventLoop) -> None:
    rig = Rig(loop)
    rig.submit("b", "b1")
    for index in range(JOBS_MAX - 1):
        rig.submit("a", f"a{index}")
    rig.submit("c", "c1")
    assert rig.told == []
    rig.finish()  # one more, and another one goes
    assert [name for name, done in rig.told if not done] == [f"a{JOBS_MAX - 2}", f"a{JOBS_MAX - 3}"]
    assert ("b1", True) in rig.told
    assert ("c1", True) in rig.told


def test_over_the_bound_of_bytes_the_last_of_the_address_with_most_go(
    loop: asyncio.AbstractEventLoop,
) -> None:
    rig = Rig(loop)
    half = BYTES_MAX // 2
    rig.submit("a", "a1", half - 10)
    rig.submit("b", "b1", 5)
    rig.submit("a", "a2", half)
    rig.submit("c", "c1", 10)
    rig.finish()
    assert sorted(rig.told) == [("a1", True), ("a2", False), ("b1", True), ("c1", True), ("last", True)]


def test_turns_are_short_and_no_garbage_is_collected_only_while_a_job_runs(
    loop: asyncio.AbstractEventLoop,
) -> None:
    until(gc.isenabled, "no job of an earlier test runs")
    before = sys.getswitchinterval()
    assert before > TURN_SECONDS
    rig = Rig(loop)
    assert (sys.getswitchinterval() < 1.05 * TURN_SECONDS, gc.isenabled()) == (True, False)
    # Beside it a response to a question of Sluice's own, which ends first.
    assert loop.run_until_complete(parse_response(_collects, bytes(AT_ONCE_BYTES_MAX + 1))) is False
    assert (sys.getswitchinterval() < 1.05 * TURN_SECONDS, gc.isenabled()) == (True, False)
    rig.finish()
    until(gc.isenabled, "the last job is over")
    assert sys.getswitchinterval() == pytest.approx(before)


def _collects(_frame: bytes) -> bool:
    return gc.isenabled()


def test_nothing_is_told_after_the_end(loop: asyncio.AbstractEventLoop) -> None:
    rig = Rig(loop)
    rig.submit("a", "a1")
    rig.worker.close()
    rig.go.set()
    loop.run_until_complete(asyncio.sleep(0))
    assert rig.ran == []


def test_call_returns_the_functions_result(loop: asyncio.AbstractEventLoop) -> None:
    worker = Worker(loop)
    size, thread = loop.run_until_complete(worker.call("a", 1, _where, bytes(3)))
    assert (size, thread != get_ident()) == (3, True)
    with pytest.raises(ZeroDivisionError):
        loop.run_until_complete(worker.call("a", 1, divmod, 1, 0))
    worker.close()


def test_call_that_finds_no_room_is_told_so(loop: asyncio.AbstractEventLoop) -> None:
    rig = Rig(loop)
    with pytest.raises(OverloadError):
        loop.run_until_complete(rig.worker.call("a", BYTES_MAX + 1, _where, b""))
    rig.finish()


def test_call_that_is_cancelled_is_not_done(loop: asyncio.AbstractEventLoop) -> None:
    rig = Rig(loop)

    async def given_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await rig.worker.call("a", 1, rig.ran.append, "a1")

    loop.run_until_complete(given_up())
    rig.finish()
    assert rig.ran == ["last"]


def _where(frame: bytes) -> tuple[int, int]:
    return len(frame), get_ident()


def test_only_large_responses_are_read_beside_the_loop(loop: asyncio.AbstractEventLoop) -> None:
    small = loop.run_until_complete(parse_response(_where, bytes(AT_ONCE_BYTES_MAX)))
    large = loop.run_until_complete(parse_response(_where, bytes(AT_ONCE_BYTES_MAX + 1)))
    assert small == (AT_ONCE_BYTES_MAX, get_ident())
    assert large[0] == AT_ONCE_BYTES_MAX + 1
    assert large[1] != get_ident()


def test_job_that_fails_is_told_and_the_next_one_is_done(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(loop)
    rig.to_tell += 1
    rig.worker.submit("a", 1, lambda: rig.ran.append(str(1 // 0)), lambda done: rig.tell("a1", done))
    rig.finish()
    assert (rig.ran, rig.told) == (["last"], [("a1", False), ("last", True)])
    assert [record.getMessage() for record in caplog.records] == ["internal error: a job failed"]


def test_garbage_is_collected_again_after_the_last_of_two_pauses(loop: asyncio.AbstractEventLoop) -> None:
    until(gc.isenabled, "no job of an earlier test runs")
    rig = Rig(loop)
    with without_collections():
        ...
    assert not gc.isenabled(), "the job still runs"
    rig.finish()
    until(gc.isenabled, "the job is over")
