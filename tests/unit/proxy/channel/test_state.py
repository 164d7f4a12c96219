"""What bounds a mute and a hold: the configured longest mute, a group's session timeout, the SASL session's end."""

import pytest

from proxy.channel.direction import REPORT_EVERY_MS, REPORTED_ALWAYS_MS, MuteLimits, is_reported
from quotas.definitions.definitions import Definitions
from quotas.engine import Engine
from quotas.limiters.limiter import MS_UNBOUNDED
from quotas.options import EngineOptions
from tests.support.frames import fetch, fetch_response, produce, produce_response, with_throttle_time
from tests.support.playbook import Drop, Insert, Pass, Playbook, Wait, playbook


def limits() -> MuteLimits:
    return MuteLimits(Engine(EngineOptions(mute_seconds_max=20), Definitions()))


def test_throttle_time_is_told_up_to_the_longest_mute() -> None:
    assert [limits().bounded(throttle_ms, 0) for throttle_ms in (0, 5_000, 60_000)] == [0, 5_000, 20_000]
    assert limits().hold_ms_max == MS_UNBOUNDED


@pytest.mark.parametrize(
    ("named", "reported_ms"),
    [
        ((0,), 2_000),  # 10,000 / 5, the shortest default of the clients
        ((0, 30_000), 6_000),
        ((30_000, 0, 15_000), 3_000),
        ((1,), 1_200),  # 6,000 / 5: no broker takes less
    ],
)
def test_group_members_are_muted_for_a_fifth_of_the_shortest_session_timeout(
    named: tuple[int, ...], reported_ms: int
) -> None:
    bounds = limits()
    for session_timeout_ms in named:
        bounds.note_session_timeout(session_timeout_ms)
    assert (bounds.bounded(60_000, 0), bounds.hold_ms_max) == (reported_ms, reported_ms)


def test_no_mute_outlasts_a_session_but_for_its_last_tenth() -> None:
    bounds = limits()
    bounds.begin_session(10_000, 1_000)
    bounded = {now_ms: bounds.bounded(60_000, now_ms) for now_ms in (1_000, 8_000, 10_000, 11_000)}
    assert bounded == {1_000: 9_000, 8_000: 2_000, 10_000: 0, 11_000: 0}
    assert bounds.hold_ms_max == 500  # 10,000 / 20
    bounds.begin_session(0, 11_000)
    assert bounds.bounded(60_000, 11_000) == 20_000


SHORT, LONG = 500, REPORTED_ALWAYS_MS
RESPONDED = produce_response(9)
THROTTLE_AT = 8  # in a Fetch response of version 11


def dialogue(policy: str = "schedule") -> Playbook:
    options = EngineOptions(policy=policy, burst_seconds=0)  # type: ignore[arg-type]  # one of the two
    return playbook(options=options, gateway=False, producer_default=1000, consumer_default=1000)


def produced(talk: Playbook, now_ms: int, reported_ms: int, size: int = SHORT) -> None:
    """Let a request pass that mutes until its bytes are paid for, and its response 5 ms later."""
    asked = produce(9, size)
    talk.client(now_ms, asked, Pass(asked), Wait(now_ms + size))
    told = produce_response(9, throttle_ms=reported_ms)
    talk.broker(now_ms + 5, RESPONDED, *((Insert(told), Drop(len(told))) if reported_ms else (Pass(told),)))


def test_short_times_are_reported_once_in_a_while_and_waited_for_and_counted_always() -> None:
    talk = dialogue()
    times = range(1000, 1000 + REPORT_EVERY_MS, SHORT)
    for now_ms in times:
        produced(talk, now_ms, SHORT - 5 if now_ms == 1000 else 0)
    produced(talk, 1000 + REPORT_EVERY_MS, SHORT - 5)
    assert talk.stats.throttle_times_untold == len(times) - 1
    throttle = talk.quotas.produce
    assert (throttle.throttled_total, throttle.throttle_ms_total) == (
        len(times) + 1,
        (len(times) + 1) * SHORT,
    )


def test_what_was_not_reported_is_not_added_to_the_next() -> None:
    talk = dialogue()
    produced(talk, 1000, SHORT - 5)
    produced(talk, 1500, 0)
    produced(talk, 2000, LONG + 1000 - 5, LONG + 1000)


def test_fetched_bytes_are_reported_in_the_same_way() -> None:
    talk = dialogue()
    asked = fetch(11, max_bytes=SHORT)
    response = fetch_response(11, SHORT)
    talk.orders("client", 1000, asked)
    talk.broker(1000, response, Pass(with_throttle_time(response, THROTTLE_AT, SHORT)))
    talk.orders("client", 1500, asked)
    talk.responds(1500, fetch_response(11, SHORT, throttle_ms=70))  # the broker's own time stands
    assert talk.mute_left_ms(1500) == SHORT


def test_kip13_tells_each_time_as_kafka_does() -> None:
    talk = dialogue("kip13")
    talk.asks(1000, produce(9, 10_000))
    talk.responds(1005, RESPONDED)
    at_ms = 1001
    for _ in range(2):
        talk.orders("client", at_ms, produce(9, 100))
        left_ms = talk.mute_left_ms(at_ms)
        assert 0 < left_ms < REPORTED_ALWAYS_MS
        assert talk.inserted("broker", at_ms, RESPONDED) == produce_response(9, throttle_ms=left_ms)
        at_ms += left_ms


@pytest.mark.parametrize(
    ("throttle_ms", "reported_at_ms", "now_ms", "expected"),
    [
        (1, 0, 1000, True),  # the first one
        (REPORTED_ALWAYS_MS - 1, 1000, 1001, False),
        (REPORTED_ALWAYS_MS, 1000, 1001, True),
        (1, 1000, 1000 + REPORT_EVERY_MS - 1, False),
        (1, 1000, 1000 + REPORT_EVERY_MS, True),
        (1, 1000, 1000, True),  # the same response
    ],
)
def test_what_is_reported(throttle_ms: int, reported_at_ms: int, now_ms: int, expected: bool) -> None:
    assert is_reported(throttle_ms, reported_at_ms, now_ms) is expected
