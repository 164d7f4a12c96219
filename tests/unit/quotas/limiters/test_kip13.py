"""quotas.limiters.kip13: Kafka's arithmetic request by request."""

from itertools import pairwise

from quotas.limiters.kip13 import FETCH_BYTES_MIN, SampledLimiter
from quotas.limiters.limiter import ADMITTED, Flow
from quotas.options import EngineOptions

MB = 1_000_000
LIMIT = 2.0 * MB


def sampled(limit: float = LIMIT) -> SampledLimiter:
    return SampledLimiter(limit, EngineOptions(), 0)


def test_produce_debt_is_seen_by_every_channel_of_the_identity() -> None:
    throttle, first, second = sampled(), Flow(), Flow()
    throttle.produce(second, 0, 0)
    throttle.produce(first, 22 * MB, 0)
    assert throttle.produce(second, MB, 0).throttle_ms == 1500


def test_first_produce_of_a_new_connection_waits_as_long_as_the_others_are_muted() -> None:
    throttle, first, new = sampled(), Flow(), Flow()
    throttle.produce(first, 22 * MB, 0)
    assert throttle.produce(new, MB, 0).hold_until_ms == 1000
    assert throttle.produce(new, MB, 500).hold_until_ms == 1000  # asking again changes nothing
    assert throttle.produce(new, MB, 1000).throttle_ms > 0  # it passes, and is paid for
    assert not throttle.produce(new, MB, 3000).hold_until_ms  # no new connection any more


def test_new_connections_wait_behind_each_other() -> None:
    throttle = sampled()
    throttle.produce(Flow(), 22 * MB, 0)
    held = [throttle.produce(Flow(), MB, 0).hold_until_ms for _ in range(3)]
    assert held == [1000, 1500, 2000]  # 1 MB makes half a second


def test_new_connection_that_would_wait_too_long_is_refused_in_the_end() -> None:
    throttle, new, member = sampled(), Flow(), Flow()
    throttle.produce(Flow(), 200 * MB, 0)  # 90 s
    member.hold_ms_max = 2000
    assert throttle.produce(new, MB, 0).hold_until_ms == 20_000
    assert throttle.produce(member, MB, 0).hold_until_ms == 2000
    assert throttle.produce(member, MB, 2000).refused
    assert throttle.produce(new, MB, 20_000) is ADMITTED  # the window has forgotten all of it by then
    assert throttle.debt_bytes(20_000) == 0


def test_new_connection_passes_as_kafka_has_it() -> None:
    throttle = SampledLimiter(LIMIT, EngineOptions(new_connections="as-kafka"), 0)
    throttle.produce(Flow(), 22 * MB, 0)
    assert throttle.produce(Flow(), MB, 0).throttle_ms == 1500


def test_new_connections_that_wait_for_each_other_alone_pass_one_at_a_time() -> None:
    throttle, flows = sampled(), [Flow() for _ in range(3)]
    throttle.produce(Flow(), 22 * MB, 0)
    for flow in flows:
        flow.hold_ms_max = 500
        assert throttle.produce(flow, 30 * MB, 0).hold_until_ms == 500
    # Nothing of the first 22 MB is in the window any more, and each alone is more than it allows.
    assert not throttle.produce(flows[0], 30 * MB, 20_000).refused
    assert throttle.produce(flows[1], 30 * MB, 20_000).refused
    assert [flow.passed for flow in flows] == [True, False, False]


def test_connection_that_may_pass_after_all_leaves_its_place() -> None:
    throttle, waits = sampled(), Flow()
    throttle.produce(Flow(), 22 * MB, 0)
    assert throttle.produce(waits, MB, 0).hold_until_ms == 1000
    throttle.configure(LIMIT, EngineOptions(new_connections="as-kafka"), 0)
    assert not throttle.produce(waits, MB, 0).hold_until_ms
    throttle.configure(LIMIT, EngineOptions(), 0)
    assert throttle.produce(Flow(), MB, 0).hold_until_ms == 1500  # 23 MB / 2 MB/s - 10 s: it counts once


def test_announced_bytes_that_do_not_come_leave_the_window_where_they_were() -> None:
    throttle, liar, honest = sampled(), Flow(), Flow()
    throttle.produce(honest, 0, 0)
    throttle.produce(liar, 100 * MB, 0)
    throttle.announce(liar, 100 * MB, 0)
    assert throttle.debt_bytes(249) > 0
    # Beyond 16 KiB it is not trusted yet: no other channel is muted for it.
    assert throttle.produce(honest, MB, 249) is ADMITTED
    assert throttle.produce(honest, MB, 250) is ADMITTED
    assert throttle.debt_bytes(250) == 0
    # 2 MB are in the window: 20.5 MB more than 20 MB allow make 0.25 s, in a window of 10.25 s.
    assert throttle.produce(honest, 19 * MB, 250).throttle_ms == 250


def test_announced_bytes_are_given_back_though_samples_begin_anew_where_they_were_recorded() -> None:
    throttle, liar, honest = sampled(), Flow(), Flow()
    for second in range(12):  # ring of 11: those of 0 and 1 s begin anew at 12 s
        throttle.produce(honest, 0, second * 1050)
    throttle.produce(liar, 100 * MB, 12_100)
    throttle.announce(liar, 100 * MB, 12_100)
    throttle.leave(liar, 12_200)
    assert throttle.debt_bytes(12_200) == 0


def test_announcement_of_a_channel_that_kept_its_last_one_is_owed_by_all() -> None:
    throttle, known, honest = sampled(), Flow(), Flow()
    throttle.produce(honest, 0, 0)
    throttle.produce(known, 15 * MB, 0)
    throttle.announce(known, 15 * MB, 0)
    throttle.request_arrived(known)
    throttle.produce(known, 7 * MB, 0)
    throttle.announce(known, 7 * MB, 0)
    assert throttle.produce(honest, MB, 0).throttle_ms == 1500  # 23 MB / 2 MB/s - 10 s


def test_produce_mute_is_capped() -> None:
    assert sampled().produce(Flow(), 200 * MB, 0).throttle_ms == 20_000  # 90 s by Kafka's arithmetic


def test_fetch_that_would_go_over_gets_an_empty_response_and_is_not_recorded() -> None:
    throttle, flow = sampled(), Flow()
    assert throttle.fetch(flow, 0) is ADMITTED
    assert throttle.fetched(flow, 11 * MB, 0) is ADMITTED
    assert throttle.fetch(flow, 10).throttle_ms == 990  # "as if non-empty": 22 MB / 2 MB/s - 10.01 s
    assert throttle.fetch(flow, 990).throttle_ms == 10  # nothing was recorded in between
    # The window's sawtooth: from 1000 ms on W is 10 s again, for 11 + 11 MB it takes 1 s more.
    assert throttle.fetch(flow, 1000).throttle_ms == 1000


def test_fetch_with_the_broker_counts_as_recorded() -> None:
    throttle, first, second = sampled(), Flow(), Flow()
    for flow in (first, second):
        flow.expected = 11 * MB
    assert throttle.fetch(first, 0) is ADMITTED
    assert throttle.fetch(second, 0).throttle_ms == 1000  # 22 MB / 2 MB/s - 10 s
    throttle.fetched(first, 0, 1)
    assert throttle.fetch(second, 1) is ADMITTED


def test_fetch_of_a_closed_channel_counts_as_delivered() -> None:
    throttle, first, second = sampled(), Flow(), Flow()
    for flow in (first, second):
        flow.expected = 11 * MB
    throttle.fetch(first, 0)
    throttle.leave(first, 1)
    assert throttle.fetch(second, 1).throttle_ms == 999


def test_fetch_that_turns_out_larger_is_delivered_and_throttled() -> None:
    throttle, flow = sampled(), Flow()
    throttle.fetch(flow, 0)
    assert throttle.fetched(flow, 24 * MB, 0).throttle_ms == 2000


def test_batch_larger_than_the_window_arrives_once_the_window_is_empty() -> None:
    # Kafka refuses it for ever (kafka-quotas.md §1.5).
    throttle, flow = sampled(), Flow()
    now_ms = 0
    arrived: list[int] = []
    while len(arrived) < 3:
        decision = throttle.fetch(flow, now_ms)
        if decision is ADMITTED:
            arrived.append(now_ms)
            decision = throttle.fetched(flow, 50 * MB, now_ms)
        now_ms += max(1, decision.throttle_ms)
    assert arrived[0] == 0
    assert all(10_000 <= later - earlier <= 21_000 for earlier, later in pairwise(arrived))


def test_fetch_may_ask_for_the_rest_of_the_window() -> None:
    throttle, flow = sampled(), Flow()
    throttle.fetch(flow, 0)
    assert throttle.fetch_max_bytes(flow, 55 * MB, 0) == 20 * MB  # KAFKA-9677: 10 · T
    assert throttle.fetch_max_bytes(flow, 1000, 0) == 1000
    throttle.fetched(flow, 15 * MB, 0)
    throttle.fetch(flow, 0)
    assert throttle.fetch_max_bytes(flow, 55 * MB, 0) == 5 * MB


def test_fetch_may_ask_for_twice_its_last_response() -> None:
    throttle, flow = sampled(), Flow()
    flow.expected = MB
    throttle.fetch(flow, 0)
    assert throttle.fetch_max_bytes(flow, 55 * MB, 0) == 2 * MB
    flow.expected = 10
    assert throttle.fetch_max_bytes(flow, 55 * MB, 0) == FETCH_BYTES_MIN


def test_fetch_may_always_ask_for_one_byte() -> None:
    throttle, flow = sampled(), Flow()
    throttle.produce(flow, 30 * MB, 0)
    assert throttle.fetch_max_bytes(flow, 55 * MB, 0) == 1


def test_first_fetches_of_many_channels_share_the_window() -> None:
    throttle = sampled()
    flows = [Flow() for _ in range(20)]
    granted = 0
    for flow in flows:
        if throttle.fetch(flow, 0) is ADMITTED:
            granted += throttle.fetch_max_bytes(flow, 50 * MB, 0)
    assert granted <= 20 * MB + len(flows)


def test_lowered_quota_applies_to_recorded_bytes() -> None:
    throttle, flow = sampled(), Flow()
    throttle.produce(flow, 20 * MB, 0)
    throttle.configure(LIMIT / 4, EngineOptions(mute_seconds_max=60), 0)
    assert throttle.produce(flow, 0, 0).throttle_ms == 30_000  # 20 MB / 0.5 MB/s - 10 s


def test_changed_windows_keep_the_recorded_bytes() -> None:
    throttle, flow = sampled(), Flow()
    throttle.produce(flow, 20 * MB, 0)
    throttle.configure(LIMIT, EngineOptions(window_samples=6), 0)
    assert throttle.produce(flow, 0, 0).throttle_ms == 5000  # 20 MB / 2 MB/s - 5 s


def test_bytes_that_cannot_be_withheld_are_recorded_and_compared() -> None:
    throttle, flow = sampled(), Flow()
    assert throttle.observe(flow, 22 * MB, 0, consumes=True) == 1000
    assert throttle.debt_bytes(0) == 2 * MB


def test_fetch_has_room_when_it_and_the_window_are_within_the_quota() -> None:
    throttle, flow = sampled(), Flow()
    throttle.observe(flow, 20 * MB, 0, consumes=True)
    assert throttle.room_in_ms(MB, 0, consumes=True, alone=False) == 500  # 21 / 2 - 10 s
    assert throttle.debt_bytes(0) == 0  # a look records nothing
    throttle.elapse(500)
    assert throttle.room_in_ms(MB, 0, consumes=True, alone=False) == 0


def test_produce_has_room_when_what_others_have_sent_is_paid_for() -> None:
    throttle, flow = sampled(), Flow()
    throttle.observe(flow, 22 * MB, 0, consumes=False)
    assert throttle.room_in_ms(MB, 0, consumes=False, alone=False) == 1000  # 22 / 2 - 10 s
    assert throttle.room_in_ms(MB, 0, consumes=False, alone=True) == 0  # its mute was for that


def test_enforcement_begins_with_full_windows_and_no_debt() -> None:
    throttle, flow = sampled(), Flow()
    throttle.observe(flow, 60 * MB, 0, consumes=False)
    throttle.settle(0)
    assert throttle.debt_bytes(0) == 0
    assert throttle.room(0) == 0
