"""proxy.explain.latencies: a connection's waits that would have been, as a part of its time."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.channel import UNASKED, Condition
from proxy.explain.latencies import SPAN_MS, ConnectionWaits, PredictedWaits, Predictions, Waits
from proxy.explain.parts import MINUTE, TEN_SECONDS
from proxy.explain.rules import Rule
from proxy.explain.waiting import wait_views
from proxy.explain.watch import Watch
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.engine import Engine
from quotas.limiters.virtual_time import ConnectionTime
from quotas.options import EngineOptions
from quotas.throttles.figures import QuotaView


def test_waits_are_a_part_of_the_time_that_passes_for_them() -> None:
    waits, time = PredictedWaits(), ConnectionTime()
    time.hold(3000)
    assert waits.update(time, 1000, 5000) == 3000
    assert waits.part(TEN_SECONDS, 5000) == 0.75  # 3 of 1 + 3 s
    assert waits.update(time, 1000, 6000) == 0
    assert waits.part(TEN_SECONDS, 6000) == 0.6
    assert waits.part(TEN_SECONDS, 60_000) == 0.0


def test_waits_belong_to_the_rule_that_would_make_them() -> None:
    static = StaticQuotas(producer_default=1000)
    throttle = Engine(EngineOptions(mode="observe"), Definitions(static=static)).client("", "a", 1).produce
    predictions, time = Predictions(), ConnectionTime()
    predictions.add(time, 5, 0)
    assert predictions.rules == []
    time.count(throttle, 5)
    predictions.add(time, 5, 0)
    found = predictions.report([0.1, 0.4], MINUTE, 0)
    assert found.part == 0.4
    assert found.waits == ((Rule("produce", "producer_byte_rate"), 5.0),)


ENGINE = Engine(EngineOptions(), Definitions(static=StaticQuotas(producer_default=1000)))
QUOTA = ENGINE.client("u", "a", broker=1)
TICK_MS = 100


def muted(watch: Watch, connection: str, muted_ms: int, now_ms: int) -> None:
    found = Condition(QUOTA, 1, UNASKED, 0, muted_ms, QUOTA.fetch)
    watch.visit(connection, found, "peer", TICK_MS, now_ms)


def views(watch: Watch) -> dict[str, QuotaView]:
    return {view.type: view for view in wait_views(watch.clients.values())}


def test_two_connections_that_wait_together_are_summed_and_the_longer_is_shown() -> None:
    watch = Watch()
    for name in ("one", "other"):
        muted(watch, name, 0, SPAN_MS)
    muted(watch, "one", 900, SPAN_MS + 1000)
    muted(watch, "other", 500, SPAN_MS + 1000)
    found = views(watch)["Fetch"]
    assert (found.user, found.client_id) == ("u", "a")
    assert (found.bytes_total, found.longest_wait_ms_total) == (1400, 900)


def test_waits_of_a_connection_that_has_ended_stay() -> None:
    watch = Watch()
    muted(watch, "one", 0, SPAN_MS)
    muted(watch, "one", 700, SPAN_MS + 1000)
    watch.end("one")
    found = views(watch)["Fetch"]
    assert (found.bytes_total, found.longest_wait_ms_total) == (700, 700)


def test_a_hold_is_a_wait_for_produce() -> None:
    watch = Watch()
    watch.visit("one", Condition(QUOTA, 1, UNASKED, 0, 0, None), "peer", TICK_MS, 1000)
    watch.visit("one", Condition(QUOTA, 1, UNASKED, 300, 0, None), "peer", TICK_MS, 2000)
    assert views(watch)["Produce"].bytes_total == 300


def test_client_that_has_not_waited_has_no_view() -> None:
    watch = Watch()
    muted(watch, "one", 0, 1000)
    assert views(watch) == {}


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 30_000), st.floats(0, 1)), max_size=60))
def test_the_longest_grows_by_a_second_per_second_at_most(visits: list[tuple[int, int, float]]) -> None:
    waits, connections = Waits(), [ConnectionWaits() for _ in range(5)]
    seen_ms = [0] * 5
    now_ms, last_ms = 0, 0.0
    for number, pause_ms, part in visits:
        now_ms += pause_ms
        waits.add("fetch", connections[number], part * (now_ms - seen_ms[number]), now_ms)
        seen_ms[number] = now_ms
        (found,) = waits
        assert last_ms <= found.longest_ms <= found.all_ms + 1e-6
        last_ms = found.longest_ms
        # A wait that began in one minute and is seen in the next counts in the next.
        assert found.longest_ms <= (now_ms // SPAN_MS + 1) * SPAN_MS
