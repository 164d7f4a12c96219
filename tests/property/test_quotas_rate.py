"""Sampled windows against a model without caches, and kip13 decisions against Kafka's rules."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.limiters.kip13 import SampledLimiter
from quotas.limiters.limiter import Flow
from quotas.limiters.rate import SampledRate
from quotas.options import EngineOptions
from tests.simulation.kafka_broker import KafkaSensor

# Gaps around sample and window lengths are where samples turn over.
GAPS_MS = st.one_of(st.integers(0, 50), st.integers(900, 1100), st.integers(0, 15_000))
EVENTS = st.lists(st.tuples(GAPS_MS, st.integers(0, 5_000_000)), max_size=60)
SETTINGS = settings(max_examples=100, deadline=None)


@given(events=EVENTS, samples=st.integers(2, 12), sample_ms=st.sampled_from([1, 7, 1000]))
@SETTINGS
def test_window_equals_the_model(events: list[tuple[int, int]], samples: int, sample_ms: int) -> None:
    ours = SampledRate(samples, sample_ms)
    model = KafkaSensor(limit=1000.0, number=samples, length_ms=sample_ms)
    now_ms = 0
    for gap_ms, value in events:
        now_ms += gap_ms
        ours.record(value, now_ms)
        model.record(value, now_ms)
        assert ours.window_ms(now_ms) == model.window_ms(now_ms)
        assert ours.total == sum(sample.total for sample in model.samples)
        assert ours.throttle_ms(1000.0, now_ms) == model.throttle_ms(now_ms)


@given(events=EVENTS, limit=st.sampled_from([1.0, 500.0, 1e6, 1e9]))
@SETTINGS
def test_produce_decisions_equal_kafkas(events: list[tuple[int, int]], limit: float) -> None:
    ours = SampledLimiter(limit, EngineOptions(mute_seconds_max=10**9), 0)
    theirs = KafkaSensor(limit)
    flow = Flow()
    now_ms = 0
    for gap_ms, size in events:
        now_ms += gap_ms
        assert ours.produce(flow, size, now_ms).throttle_ms == theirs.produce(size, now_ms)


@given(
    events=st.lists(st.tuples(GAPS_MS, st.booleans(), st.integers(1, 3_000_000)), max_size=60),
    limit=st.sampled_from([500.0, 1e5, 1e6]),
)
@SETTINGS
def test_fetches_of_one_size_are_decided_as_kafka_does(
    events: list[tuple[int, bool, int]], limit: float
) -> None:
    """One channel whose responses always have the same size: guess and truth agree, and so must the decisions.

    Two differences are meant: the first Fetch passes, and one larger than the whole window passes once it is empty.
    """
    size = events[0][2] if events else 1
    if size >= 9 * limit:
        size = int(9 * limit)
    ours = SampledLimiter(limit, EngineOptions(mute_seconds_max=10**9), 0)
    theirs = KafkaSensor(limit)
    flow = Flow()
    flow.expected = size
    now_ms = 0
    for gap_ms, _, _ in events:
        now_ms += gap_ms
        theirs_ms = theirs.fetch(size, now_ms)
        ours_ms = ours.fetch(flow, now_ms).throttle_ms
        assert (ours_ms > 0) == (theirs_ms > 0)
        if not ours_ms:
            assert ours.fetched(flow, size, now_ms).throttle_ms == 0


@given(events=EVENTS)
@SETTINGS
def test_observed_windows_never_owe_more_than_was_recorded_in_them(events: list[tuple[int, int]]) -> None:
    throttle = SampledLimiter(1000.0, EngineOptions(), 0)
    flow = Flow()
    now_ms = total = 0
    for gap_ms, size in events:
        now_ms += gap_ms
        total += size
        assert 0 <= throttle.observe(flow, size, now_ms, consumes=False) <= 20_000
        assert throttle.debt_bytes(now_ms) <= total
