"""The replication throttle, how sure one is, candidates, and words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.advice.confidence import confidence
from offline.advice.limits import Limits, Override
from offline.advice.replication import replication_throttle
from offline.advice.words import Line, amount, direction_lines, replication_lines
from offline.jobs.recommend import quotas_text
from offline.options import By, Goal
from offline.transforms.candidates import ladder, rounded
from quotas.definitions_file import parse
from quotas.entities import DEFAULT, Entity


def test_replication_throttle_lies_between_the_bounds() -> None:
    found = replication_throttle(30e6, 120e6, 3.0, 1.1)
    assert (found.lower, found.upper) == (30e6, 110e6)  # 120 - 30 / 3
    assert found.rate == 70e6


def test_replication_throttle_without_a_network_is_above_what_is_written() -> None:
    assert replication_throttle(10e6, None, 3.0, 1.1).rate == 12_100_000  # 10 x 1.1 x 1.1


@pytest.mark.parametrize(("headroom", "rate"), [(1.0, 11_025_000), (0.5, 11_025_000), (1.2, 14_400_000)])
def test_without_headroom_the_throttle_is_still_above_what_is_written(headroom: float, rate: float) -> None:
    found = replication_throttle(10e6, None, 3.0, headroom)
    assert (found.rate, found.lower) == (rate, 10e6)
    few = replication_throttle(3.5, None, 3.0, headroom)
    assert few.rate is not None
    assert few.rate > few.lower


def test_a_network_that_is_too_slow_has_no_throttle_and_says_so() -> None:
    (line,) = replication_lines(replication_throttle(90e6, 100e6, 3.0, 1.1), Goal(), "high")
    assert line.value == -1
    assert "no T lies between" in line.reason


@pytest.mark.parametrize(
    ("seconds", "clients", "grade"), [(600, 100, "low"), (7200, 100, "medium"), (10 * 86_400, 100, "high")]
)
def test_confidence_grows_with_what_was_recorded(seconds: int, clients: int, grade: str) -> None:
    assert confidence(seconds=seconds, clients=clients).startswith(grade)


def test_confidence_names_clients_near_the_line() -> None:
    text = confidence(seconds=10 * 86_400, clients=100, quota=1e6, needs=[1.1e6] * 20 + [1e5] * 80)
    assert text == "medium: 20 clients need within 20 % of it"


def test_ladder_reaches_above_every_peak() -> None:
    peaks = [float(10_000 * 1.3**step) for step in range(40)]
    found = ladder(peaks, 20)
    assert len(found) <= 20
    assert found == sorted(set(found))
    assert found[-1] >= max(peaks)
    assert found[0] < sorted(peaks)[10]


@given(
    peaks=st.lists(st.floats(0, 1e12), min_size=1, max_size=50),
    count=st.integers(2, 30),
)
def test_ladder_is_no_longer_than_asked_for(peaks: list[float], count: int) -> None:
    found = ladder(peaks, count)
    assert 1 <= len(found) <= count
    assert found == sorted(set(found))
    assert found[-1] >= max(peaks)


def test_a_short_ladder_has_both_ends() -> None:
    peaks = [float(10_000 * 1.3**step) for step in range(40)]
    low, high = ladder(peaks, 2)
    assert low == rounded(1.1 * peaks[19])
    assert high == rounded(1.1 * peaks[-1])


def test_ladder_of_nobody_is_empty() -> None:
    assert ladder([], 20) == []


def test_rounded_never_rounds_down() -> None:
    assert [rounded(rate) for rate in (999.0, 1001.0, 123_456.0)] == [1000.0, 1100.0, 130_000.0]


def test_amount_speaks_in_powers_of_thousand() -> None:
    assert [amount(rate) for rate in (12.0, 34_500.0, 2e9)] == ["12 B/s", "34.5 kB/s", "2 GB/s"]


def test_lines_tell_reason_effect_and_who_is_held() -> None:
    limit = Limits(
        default=0,
        overrides=(Override("", "hog", 1, held=True),),
        allowed=1,
        throttled=(("", "hog"),),
        wanted=0,
        peak=9e6,
        fits=True,
    )
    waits = {("", "hog"): 20_000, ("", "b"): 0}
    default, override = direction_lines(
        "produce", [1e6, 4e6], limit, waits, 12e6, 3600, Goal(capacity_in=10e6, throttled_share=0.5)
    )
    assert (default.kind, default.key, default.value) == ("default", "producer_byte_rate", 1e6)
    assert default.throttle_ms == 20_000  # the hog's at its override; b's none
    assert "at most 1 (50%)" in default.reason
    assert "12 MB/s before, 9 MB/s after" in default.effect
    assert (override.client_id, override.value, override.clients_throttled) == ("hog", 4e6, 1)
    assert override.reason.startswith("held")
    assert override.effect == "its connections wait for 20.0 s together, in 3,600 s"


@pytest.mark.parametrize(
    ("wanted", "kept", "said"),
    [
        (0, True, "may be throttled, and the smallest candidate, 1 MB/s, keeps to that;"),
        (1, True, "may be throttled, and no smaller candidate than 2 MB/s keeps to that;"),
        (1, False, "may be throttled, but even the largest candidate, 2 MB/s, does not keep to that: "),
    ],
)
def test_the_reason_is_true_at_both_ends_of_the_ladder(wanted: int, said: str, *, kept: bool) -> None:
    limit = Limits(wanted, (), 0, (), wanted, 9e6, fits=True, kept=kept)
    (default,) = direction_lines("produce", [1e6, 2e6], limit, {("", "a"): 0}, 12e6, 3600, Goal())
    assert said in default.reason


def test_one_budget_for_all_brokers_is_said() -> None:
    limit = Limits(0, (), 0, (), 1, 9e6, fits=True)
    waits = {("", "a"): 0}
    (default,) = direction_lines(
        "produce", [1e6, 2e6], limit, waits, 12e6, 3600, Goal(capacity_in=10e6), gateway=True
    )
    assert "but only 1 MB/s keeps all brokers together within 10 MB/s" in default.reason
    assert default.effect.endswith("all brokers together 12 MB/s before, 9 MB/s after")


def test_who_cannot_be_named_is_said() -> None:
    limit = Limits(0, (), 0, (("", ""),), 0, 9e6, fits=True, nameless=(("", ""),))
    waits = {("", ""): 90_000}
    (default,) = direction_lines("produce", [1e6], limit, waits, 12e6, 3600, Goal())
    assert default.reason.endswith(
        "; 1 client needs more and cannot get an override, for no quota can name it: (no name)"
    )


@pytest.mark.parametrize(("by", "user", "client_id"), [("user", "ann", ""), ("client-id", "", "hog")])
def test_a_quotas_file_has_the_default_and_each_override_once(by: By, user: str, client_id: str) -> None:
    lines = [
        Line(kind=kind, user=one, client_id=two, key=key, value=value, reason="", effect="", confidence="")
        for kind, one, two, key, value in (
            ("default", "<default>", "<default>", "producer_byte_rate", 1e6),
            ("override", user, client_id, "producer_byte_rate", 2e6),
            ("override", user, client_id, "consumer_byte_rate", 3e6),
            ("mutation", "", "", "controller_mutation_rate", 5.0),
        )
    ]
    default = Entity(DEFAULT if user else None, DEFAULT if client_id else None)
    assert dict(parse(quotas_text(lines, by)).entries()) == {
        default: {"producer_byte_rate": 1e6},
        Entity(user or None, client_id or None): {"producer_byte_rate": 2e6, "consumer_byte_rate": 3e6},
    }
