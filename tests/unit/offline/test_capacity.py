"""Rates, ceilings and weights from what clients need, and what is said of them."""

import pytest

from offline.advice.capacity import (
    Demand,
    Share,
    Whole,
    better,
    lines,
    rates,
    shortest,
    weight_lines,
    weights,
)
from offline.advice.explain import Line
from quotas.definitions.classes import Terms

A, B, C = ("", "a"), ("", "b"), ("", "c")
CEILING = "producer_byte_rate_ceiling"


def share(
    name: tuple[str, str] = A, *, wanted: float = 5e6, rate: float = 5e6, ceiling: float = 0.0
) -> Share:
    return Share(
        client=name,
        wanted=wanted,
        terms=Terms(rate, ceiling or rate),
        waited_ms=0,
        alone_ms=90_000,
        today_ms=2000,
        lent=0,
        confidence="low: 35 s",
        replaces=False,
    )


def said(*shares: Share, kept: float = 0.0) -> list[Line]:
    return lines(
        Whole(
            direction="produce",
            capacity=8e6,
            where="each broker",
            shares=shares,
            kept=kept,
            rest=share(("<default>", "<default>"), rate=110e3),
            rest_clients=1,
            throttled=2,
            together_ms=3000,
            left=1e6,
            left_always=5e5,
            seconds=3600,
            peak_before=9e6,
            peak_after=8e6,
        )
    )


def test_client_whose_highest_days_are_left_out_does_not_borrow_the_whole_capacity() -> None:
    peaks = [1.3e6, 1.4e6, 1.5e6]
    assert Demand(1e6, peaks, 1.3).ceilings(1e6, 5e6) == [1e6, *peaks, 5e6]
    # It has asked for 20 MB/s on one day, and 1 MB/s on all others.
    assert Demand(1e6, peaks, 1.3 / 20).ceilings(1e6, 5e6) == [1e6, *peaks, 1.5e6]


def test_a_batch_is_promised_one_large_request() -> None:
    assert Demand(0.0, [4e6, 5e6, 6e6]).rate == 110e3
    assert Demand(0.0, [1e3, 2e3, 6e3]).rate == 6e3  # it never sends more than that


def test_ceilings_to_try_are_between_the_rate_and_the_capacity() -> None:
    assert Demand(3e6, [2e6, 4e6, 9e6]).ceilings(3e6, 8e6) == [3e6, 3e6, 4e6, 8e6, 8e6]


def test_rates_that_exceed_the_room_are_cut_from_the_largest_down() -> None:
    demands = {A: Demand(6e6, [6e6]), B: Demand(1e6, [1e6]), C: Demand(3e6, [3e6])}
    assert rates(demands, 10e6) == {A: 6e6, B: 1e6, C: 3e6}
    assert rates(demands, 8e6) == {A: 4e6, B: 1e6, C: 3e6}
    assert rates(demands, 5e6) == {A: 2e6, B: 1e6, C: 2e6}
    assert rates(demands, -1.0) == {A: 0.0, B: 0.0, C: 0.0}  # kept entries promise all of it


def test_the_first_ceiling_that_is_as_good_as_the_last_is_taken() -> None:
    assert shortest([5000, 1200, 1000, 200, 150], 60.0) == 3


def test_weights_follow_what_clients_may_borrow() -> None:
    assert weights({A: 1e6, B: 4e6, C: 0.0}) == {A: 1.0, B: 4.0, C: 1.0}
    assert weights({A: 1.0, B: 4e6}) == {A: 1.0, B: 100.0}
    assert weights({}) == {}


@pytest.mark.parametrize(("with_ms", "without_ms", "found"), [(940, 1000, True), (960, 1000, False)])
def test_weights_are_advised_if_waits_are_clearly_shorter(with_ms: int, without_ms: int, found: bool) -> None:
    assert better(with_ms, without_ms, 10.0) is found
    assert not better(with_ms, without_ms, 100.0)


def test_rates_above_the_capacity_are_said() -> None:
    whole = said(share(A, wanted=6e6, rate=4e6), share(B, wanted=4e6, rate=4e6))[0]
    assert (whole.kind, whole.value) == ("capacity", 8e6)
    assert whole.reason == (
        "stated for each broker; the rates that clients need nearly always are 10.0 MB/s together, more than that, so "
        "the larger ones are cut: 8.0 MB/s are promised"
    )
    assert "3.0 MB/s of it are promised" in said(share(A, wanted=3e6, rate=3e6))[0].reason
    assert "13.0 MB/s of it are promised, more than that" in said(share(), kept=8e6)[0].reason


def test_a_ceiling_has_a_line_only_above_the_rate_or_in_place_of_another() -> None:
    assert [line.key for line in said(share())[2:]] == ["producer_byte_rate"]
    rate, ceiling = said(share(ceiling=7e6))[2:]
    assert (rate.value, ceiling.key, ceiling.value) == (5e6, CEILING, 7e6)
    assert rate.effect == "does not wait; with the quotas in force 2.0 s"
    assert ceiling.reason.startswith("without borrowing it would wait for 1 min 30 s; ")


def test_a_weight_has_a_line_with_its_clients_confidence() -> None:
    (line,) = weight_lines({A: 3.0}, {A: "high: known"})
    assert (line.client_id, line.key, line.value, line.confidence) == ("a", "weight", 3.0, "high: known")
