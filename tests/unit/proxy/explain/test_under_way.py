"""Requests that a broker has for longer than the time between visits count, timed or not."""

from proxy.channel import Probed
from proxy.channel.probe import ANY_WAIT
from proxy.explain.condition import ASKED, Condition
from proxy.explain.parts import MINUTE
from proxy.explain.report import brokers_of
from proxy.explain.watch import TIMED_PART, Watch
from quotas.definitions.definitions import Definitions
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.support.probes import finished

ENGINE = Engine(EngineOptions(), Definitions())
TICK_MS = 100
MS = 1_000_000
QUICK = finished(took_ns=MS, wait_ns=0)


def asked(asked_ms: int, **fields: object) -> Condition:
    found = Condition(ENGINE.client("", "a", broker=1), 1, ASKED, 0, 0, None, asked_ms, QUICK)
    return found._replace(**fields)  # type: ignore[arg-type]


def visit(watch: Watch, condition: Condition, now_ms: int, connection: str = "c") -> None:
    watch.visit(connection, condition, "peer", TICK_MS, now_ms)


def test_request_that_is_never_responded_to_counts_with_its_age() -> None:
    watch = Watch()
    visit(watch, asked(5000), 10_000)
    (broker,) = brokers_of(watch, MINUTE, 10_000)
    assert (broker.under_way, broker.oldest_ms, broker.requests) == (1, 5000, 0)
    assert broker.percentile_ms(0.99) > 5000


def test_request_that_is_younger_than_a_visit_is_left_to_the_timed_ones() -> None:
    watch = Watch()
    visit(watch, asked(TICK_MS - 1), 10_000)
    assert brokers_of(watch, MINUTE, 10_000) == []


def test_long_request_counts_once_when_it_is_over_though_it_was_not_timed() -> None:
    watch = Watch()
    for age_ms in (100, 200, 300):
        visit(watch, asked(age_ms), 10_000 + age_ms)
    visit(watch, asked(-1, activity="unasked"), 10_400)
    (broker,) = brokers_of(watch, MINUTE, 10_400)
    assert (broker.under_way, broker.requests, broker.ms) == (
        0,
        1,
        350,
    )  # it ended 300 to 400 ms after it began
    assert watch.clients["", "a"].brokers[1].sums(MINUTE, 10_400) == [1, 350]


def test_long_request_that_was_timed_counts_once_with_its_time() -> None:
    watch = Watch()
    visit(watch, asked(300), 10_300)
    probe = finished(took_ns=333 * MS, wait_ns=0)
    probe.sent_ns = 10_000 * MS
    visit(watch, asked(20, probed=Probed([probe])), 10_400)
    (broker,) = brokers_of(watch, MINUTE, 10_400)
    assert (broker.timed, broker.requests, broker.ms) == (1, 1, 333)


def test_next_long_request_ends_the_one_before() -> None:
    watch = Watch()
    visit(watch, asked(300), 10_300)
    visit(watch, asked(150), 10_600)
    (broker,) = brokers_of(watch, MINUTE, 10_600)
    assert (broker.under_way, broker.oldest_ms, broker.requests) == (1, 150, 1)


def test_wait_that_the_request_asks_for_is_not_its_brokers() -> None:
    watch = Watch()
    visit(watch, asked(700, probe=finished(took_ns=1, wait_ns=500 * MS)), 10_000, "polls")
    visit(watch, asked(5000, probe=finished(took_ns=1, wait_ns=ANY_WAIT)), 10_000, "joins")
    visit(watch, asked(5000, probe=None), 10_000, "unknown")
    (broker,) = brokers_of(watch, MINUTE, 10_000)
    assert (broker.under_way, broker.oldest_ms) == (1, 200)


def test_connection_that_ends_has_no_request_under_way() -> None:
    watch = Watch()
    visit(watch, asked(5000), 10_000)
    watch.end("c")
    assert brokers_of(watch, MINUTE, 10_000) == []


def test_timed_requests_stand_for_all_that_were_not() -> None:
    watch = Watch()
    probes = [finished(took_ns=2 * MS, wait_ns=0) for _ in range(4)]
    visit(watch, asked(0, probed=Probed(probes, missed=12)), 10_000)
    (broker,) = brokers_of(watch, MINUTE, 10_000)
    assert (broker.timed, broker.requests) == (4, 16 / TIMED_PART)


def test_broker_that_stands_still_most_of_the_time_is_slow_by_time() -> None:
    # Of each half second it responds at once for 100 ms, then stands still for 400: as a stopped process would.
    watch = Watch()
    for turn in range(100):
        began_ms = 10_000 + 500 * turn
        visit(watch, asked(0, probed=Probed([finished(took_ns=MS, wait_ns=0)] * 12)), began_ms + 100)
        for age_ms in (100, 200, 300, 399):
            visit(watch, asked(age_ms), began_ms + 100 + age_ms)
    (broker,) = brokers_of(watch, MINUTE, 60_000)
    assert broker.percentile_ms(0.5) < 2
    assert broker.time_percentile_ms(0.5) > 400
    assert broker.slowest_ms > 400
