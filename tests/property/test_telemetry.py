"""Metrics as OTLP has them, in any order, with any fields beside: what is read of them is what a naive model says."""

import math
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages.telemetry import THROTTLE_MS_MAX, ThrottleTimes, throttle_times
from tests.support.pushes import (
    FETCH_AVG,
    FETCH_MAX,
    PRODUCE_AVG,
    PRODUCE_MAX,
    SHARE_MAX,
    compressed,
    field,
    gauge,
    push_body,
    total,
    varint_field,
)

FEW = settings(max_examples=200, deadline=None)
READ = {
    PRODUCE_AVG: ("produce", 0),
    PRODUCE_MAX: ("produce", 1),
    FETCH_AVG: ("fetch", 0),
    FETCH_MAX: ("fetch", 1),
    SHARE_MAX: ("fetch", 1),
}
VALUES = (
    st.integers(0, THROTTLE_MS_MAX) | st.floats(0, THROTTLE_MS_MAX, allow_subnormal=False) | st.just(math.nan)
)
NAMES = st.sampled_from([*READ, PRODUCE_AVG[:-1], PRODUCE_AVG + "x", "org.apache.kafka.producer.x"])
# Field numbers that no message here has.
BESIDE = st.lists(
    st.builds(varint_field, st.integers(20, 1000), st.integers(0, 2**32 - 1))
    | st.builds(field, st.integers(20, 1000), st.binary(max_size=20) | st.floats() | st.integers(0, 9)),
    max_size=3,
).map(b"".join)


@st.composite
def metrics(draw: st.DrawFn) -> tuple[bytes, list[tuple[str, list[float]]]]:
    """MetricsData, and the gauges in it: names and values in their order."""
    gauges: list[tuple[str, list[float]]] = []

    def scope() -> bytes:
        found = b""
        for _ in range(draw(st.integers(0, 4))):
            name, values = draw(NAMES), draw(st.lists(VALUES, max_size=3))
            gauges.append((name, [float(value) for value in values]))
            found += draw(BESIDE) + gauge(name, *values)
            if draw(st.booleans()):
                found += total(name, 1.0)
        return field(2, found + draw(BESIDE))

    resources = [
        field(1, draw(BESIDE) + b"".join(scope() for _ in range(draw(st.integers(0, 2)))) + draw(BESIDE))
        for _ in range(draw(st.integers(0, 2)))
    ]
    return draw(BESIDE).join([b"", *resources, b""]), gauges


def expected(gauges: Iterable[tuple[str, list[float]]]) -> dict[str, ThrottleTimes]:
    found: dict[str, list[float | None]] = {}
    for name, values in gauges:
        numbers = [value for value in values if not math.isnan(value)]
        if name in READ and numbers:
            kind, place = READ[name]
            found.setdefault(kind, [None, None])[place] = max(numbers)
    return {kind: ThrottleTimes(*times) for kind, times in found.items()}


@FEW
@given(metrics(), st.sampled_from([0, 1, 4]))
def test_throttle_times_are_read_out_of_any_metrics(
    made: tuple[bytes, list[tuple[str, list[float]]]], compression: int
) -> None:
    data, gauges = made
    body = b"\0" + push_body(compressed(data, compression), compression)
    assert throttle_times(body, 0, len(body)) == expected(gauges)
