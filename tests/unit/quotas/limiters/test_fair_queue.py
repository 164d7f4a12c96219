"""quotas.limiters.fair_queue: whose turn it is, in bytes."""

import time

from quotas.limiters.fair_queue import NEWCOMER_SHARE, FairQueue
from quotas.limiters.limiter import GRACE_MS, Flow


def waiting(queue: FairQueue, tag: int, size: int, due_ms: int = 0) -> Flow:
    """A channel that has a place with this tag."""
    flow = Flow()
    flow.passed = flow.waited = True
    flow.tag = tag
    flow.due_ms = due_ms
    queue.put(flow, size)
    return flow


def test_returning_channel_begins_at_the_virtual_time_but_not_before_its_own_end() -> None:
    queue = FairQueue()
    queue.virtual = 500
    idle, busy = Flow(), Flow()
    idle.passed = busy.passed = True
    busy.tag = 900
    queue.enter(idle)
    queue.enter(busy)
    assert (idle.tag, busy.tag) == (500, 900)


def test_virtual_time_is_not_ahead_of_a_place_that_waits() -> None:
    queue = FairQueue()
    queue.virtual = 500
    waiting(queue, 200, 10)
    idle = Flow()
    idle.passed = True
    queue.enter(idle)
    assert idle.tag == 200


def test_request_that_passed_ends_where_its_bytes_end() -> None:
    queue = FairQueue()
    flow = Flow()
    flow.waited = True
    queue.record_passed(flow, 100, 40, 0)
    assert (flow.tag, queue.virtual, flow.passed) == (140, 100, True)


def test_channel_that_never_waits_keeps_no_more_than_the_lag() -> None:
    queue = FairQueue()
    queue.lag_bytes = 30
    queue.virtual = 500
    slow = Flow()
    queue.record_passed(slow, 100, 10, 0)
    assert slow.tag == 470
    backlogged = Flow()
    backlogged.waited = True
    queue.record_passed(backlogged, 100, 10, 0)
    assert backlogged.tag == 110


def test_new_channel_begins_where_the_virtual_time_was_a_while_ago() -> None:
    queue = FairQueue()
    queue.sweep(0, 1000)
    early = Flow()
    for start in (0, 100, 200):  # other channels came a moment earlier and took the burst
        queue.record_passed(early, start, 100, 0)
    late = Flow()
    queue.enter(late)
    assert late.tag == 0
    queue.sweep(1000, 1000)
    queue.sweep(2000, 1000)
    later = Flow()
    queue.enter(later)
    assert later.tag == 200


def test_channels_that_come_anew_for_every_request_do_not_hold_the_time_back() -> None:
    queue = FairQueue()
    old = waiting(queue, 1000, 1000)
    now_ms = 0
    for _ in range(200):
        newcomer = Flow()
        queue.enter(newcomer)
        if newcomer.tag >= old.tag:
            break
        queue.record_passed(newcomer, newcomer.tag, 1000, 0)
        queue.sweep(now_ms, 1000)
        now_ms += 500
    assert now_ms <= 500 * (NEWCOMER_SHARE + 8)


def test_sweep_of_20_000_channels_that_have_gone_quiet_takes_one_turn_of_the_loop() -> None:
    queue = FairQueue()
    for _ in range(20_000):
        waiting(queue, 0, 60)
    before = time.thread_time()
    queue.sweep(1 + GRACE_MS, 1000)
    assert time.thread_time() - before < 0.025  # 2 ms; one by one it was 63
    assert queue.flows == []
