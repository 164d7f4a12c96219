"""When a worker is started again."""

from proxy.process.workers import PAUSE_MS_MAX, PAUSE_MS_MIN, SILENT_TICKS_MAX, STEADY_MS, Restarts


def test_worker_that_was_steady_is_replaced_at_once() -> None:
    assert Restarts().ended(ran_ms=STEADY_MS, was_ready=True) == 0


def test_worker_that_cannot_start_is_tried_again_more_and_more_rarely() -> None:
    restarts = Restarts()
    pauses = [restarts.ended(ran_ms=10, was_ready=False) for _ in range(20)]
    assert pauses[:3] == [PAUSE_MS_MIN, 2 * PAUSE_MS_MIN, 4 * PAUSE_MS_MIN]
    assert pauses[-1] == PAUSE_MS_MAX


def test_steady_life_makes_the_next_pause_short_again() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.ended(ran_ms=10, was_ready=False)
    restarts.ended(ran_ms=STEADY_MS, was_ready=True)
    assert restarts.ended(ran_ms=10, was_ready=True) == PAUSE_MS_MIN


def test_worker_that_is_not_ready_for_long_is_not_steady() -> None:
    assert Restarts().ended(ran_ms=10 * STEADY_MS, was_ready=False) == PAUSE_MS_MIN


def test_silent_worker_is_killed_after_a_while_and_not_before() -> None:
    restarts = Restarts()
    assert [restarts.tick() for _ in range(SILENT_TICKS_MAX)] == [False] * (SILENT_TICKS_MAX - 1) + [True]


def test_worker_that_is_heard_is_not_killed() -> None:
    restarts = Restarts()
    for _ in range(3 * SILENT_TICKS_MAX):
        assert not restarts.tick()
        restarts.message_received()
