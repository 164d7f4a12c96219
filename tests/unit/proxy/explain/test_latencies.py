"""proxy.explain.latencies: a connection's waits that would have been, as a part of its time."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.channel import UNASKED, Condition
from proxy.explain.latencies import SPAN_MS, ConnectionWaits, PredictedWaits, Predictions, Waits
from proxy.explain.parts import MINUTE, TEN_SECONDS
from proxy.explain.rules import Rule
from proxy.explain.waiting import wait_views
from proxy.explain.watch import Watch
from quotas.definitions.definitions import StaticQuotas
from quotas.limiters.virtual_time import ConnectionTime
from quotas.throttles.figures import QuotaView
from tests.support.engines import engine_with


def test_waits_are_a_part_of_the_time_that_passes_for_them() -> None:
    waits, time = PredictedWaits(), ConnectionTime()
    time.hold(3000)
    assert waits.update(time, 1000, 5000) == 3000
    assert waits.part(TEN_SECONDS, 5000) == 0.75  # 3 of 1 + 3 s
    assert waits.update(time, 1000, 6000) == 0
    assert waits.part(TEN_SECONDS, 6000) == 0.6
    assert waits.part(TEN_SECONDS, 60_000) == 0.0


def test_waits_belong_to_the_rule_that_would_make_them() -> None:
    engine = engine_with(static=StaticQuotas(producer_default=1000), mode="observe")
    throttle = engine.client("", "a", 1).produce
    predictions, time = Predictions(), ConnectionTime()
    predictions.add(time, 5, 0)
    assert predictions.rules == {}
    time.count(throttle, 5)
    predictions.add(time, 5, 0)
    found = predictions.report([0.1, 0.4], MINUTE, 0)
    assert found.part == 0.4
    assert found.waits == ((Rule("produce", "producer_byte_rate"), 5.0),)


QUOTA = engine_with(static=StaticQuotas(producer_default=1000)).client("u", "a", broker=1)
TICK_MS = 100


def views(watch: Watch) -> dict[str, QuotaView]:
    return {view.type: view for view in wait_views(watch.clients.values())}


def test_client_has_a_view_of_each_kind_that_it_has_waited_for() -> None:
    """Two connections that wait together: their waits are summed, and the longer one is shown. Both stay."""
    watch, free = Watch(), Condition(QUOTA, 1, UNASKED, 0, 0, QUOTA.fetch)
    for name in ("one", "other"):
        watch.visit(name, free, "peer", TICK_MS, SPAN_MS)
    assert views(watch) == {}
    for name, held_ms, muted_ms in (("one", 0, 900), ("other", 300, 500)):
        waits = free._replace(held_ms=held_ms, muted_ms=muted_ms)
        watch.visit(name, waits, "peer", TICK_MS, SPAN_MS + 1000)
    watch.end("one")
    found = views(watch)
    fetch = found["Fetch"]
    assert (fetch.user, fetch.client_id) == ("u", "a")
    assert (fetch.bytes_total, fetch.longest_wait_ms_total) == (1400, 900)
    assert found["Produce"].bytes_total == 300


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
