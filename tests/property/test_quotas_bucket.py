"""The token bucket against a model that replays everything from the beginning in exact fractions."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.limiters.bucket import TokenBucket

# What is done: refuse-or-take, take whatever there is, give back.
EVENTS = st.lists(
    st.tuples(st.integers(0, 20_000), st.sampled_from(["take", "record", "back"]), st.integers(0, 500)),
    max_size=50,
)
RATES = st.sampled_from([0.125, 1.0, 2.0, 10.0, 1000.0])


def replayed(rate: float, burst: int, done: list[tuple[int, int]], now_ms: int) -> Fraction:
    """The tokens now, given when how many were taken."""
    tokens, at_ms = Fraction(burst), 0
    for then_ms, count in done:
        tokens = min(Fraction(burst), tokens + Fraction(rate) * (then_ms - at_ms) / 1000)
        tokens, at_ms = min(Fraction(burst), tokens - count), then_ms
    return min(Fraction(burst), tokens + Fraction(rate) * (now_ms - at_ms) / 1000)


@given(rate=RATES, burst=st.integers(0, 1000), events=EVENTS)
@settings(max_examples=100, deadline=None)
def test_bucket_equals_the_model(rate: float, burst: int, events: list[tuple[int, str, int]]) -> None:
    ours = TokenBucket(rate, burst, 0)
    done: list[tuple[int, int]] = []
    now_ms = 0
    for gap_ms, what, count in events:
        now_ms += gap_ms
        there = replayed(rate, burst, done, now_ms)
        assert abs(Fraction(ours.tokens(now_ms)) - there) < Fraction(1, 10**6)
        if what == "take":
            # Where floats leave a doubt over the sign, either answer is right.
            taken = ours.take(count, now_ms)
            assert abs(there) < Fraction(1, 10**6) or taken == (there >= 0)
            if taken:
                done.append((now_ms, count))
        else:
            signed = count if what == "record" else -count
            ours.record(signed, now_ms)
            done.append((now_ms, signed))
        left = replayed(rate, burst, done, now_ms)
        exact_ms = max(Fraction(0), -left / Fraction(rate) * 1000)
        assert abs(ours.throttle_ms(now_ms) - exact_ms) <= Fraction(51, 100)


@given(rate=RATES, burst=st.integers(0, 1000), events=EVENTS)
@settings(max_examples=50, deadline=None)
def test_strict_bucket_grants_are_bounded(
    rate: float, burst: int, events: list[tuple[int, str, int]]
) -> None:
    """Over any time t no more passes than burst + rate · t, and the one that overdraws it."""
    bucket = TokenBucket(rate, burst, 0)
    now_ms = taken = largest = 0
    for gap_ms, _, count in events:
        now_ms += gap_ms
        if bucket.take(count, now_ms):
            taken += count
            largest = max(largest, count)
        assert taken <= burst + rate * now_ms / 1000 + largest + 1e-6
