"""Defaults and overrides, with numbers that can be followed by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from offline.advice.limits import DEFAULT_MIN, Client, Limits, limits, need_of
from offline.options import By, Goal

CANDIDATES = [1e6, 2e6, 4e6, 8e6, 16e6]


Load = dict[int, np.ndarray[tuple[int], np.dtype[np.float64]]]


@dataclass(frozen=True)
class InMemory:
    """Loads by candidate and broker, as numbers that a test can write down."""

    others: Sequence[Load]
    heavy: Mapping[Client, Sequence[Load]]

    def alone(self) -> list[float]:
        return [self._peak(default, {}) for default in range(len(self.others))]

    def peaks(self, default: int, levels: Sequence[Mapping[Client, int]]) -> list[float]:
        return [self._peak(default, given) for given in levels]

    def _peak(self, default: int, given: Mapping[Client, int]) -> float:
        found = dict(self.others[default])
        for name, ladder in self.heavy.items():
            for broker, load in ladder[given.get(name, default)].items():
                found[broker] = found.get(broker, np.zeros(len(load))) + load
        return max(float(load.max()) for load in found.values())


def flat(rate: float) -> Load:
    return {1: np.full(6, rate)}


def alike(count: int, need: int, name: str = "c") -> dict[Client, int]:
    """So many clients with one need, an index."""
    return {("", f"{name}-{number}"): need for number in range(count)}


def fleet(small: int, hog_need: int) -> tuple[dict[Client, int], InMemory]:
    """So many clients that need 2 MB/s, and one hog that sends 15 MB/s where it may."""
    needs = {**alike(small, 1, "small"), ("", "hog"): hog_need}
    others = [flat(min(2e6, candidate) * small) for candidate in CANDIDATES]
    hog = [flat(min(15e6, candidate)) for candidate in CANDIDATES]
    return needs, InMemory(others, {("", "hog"): hog})


def advised(small: int = 9, hog_need: int = 4, **goal: float) -> Limits:
    needs, loads = fleet(small, hog_need)
    wanted = Goal(headroom=1.0, throttled_share=0.1, **goal)  # type: ignore[arg-type]  # shares and rates are floats
    return limits(CANDIDATES, needs, loads, wanted, "produce")


def overrides(found: Limits) -> list[tuple[str, float, str]]:
    return [(one.client[1], CANDIDATES[one.index], one.bound) for one in found.overrides]


def test_a_client_with_an_override_does_not_count_against_the_default() -> None:
    found = advised()
    assert (found.counted, found.allowed) == (9, 0)  # the hog's override is not one of them; 9 x 0.1
    assert (CANDIDATES[found.default], found.bound) == (2e6, "need")


def test_the_outlier_gets_its_need_without_a_capacity() -> None:
    found = advised()
    assert overrides(found) == [("hog", 16e6, "need")]
    assert found.throttled == ()
    assert found.peak == 9 * 2e6 + 15e6


def test_capacity_limits_only_the_outlier() -> None:
    # 18 MB/s are the small ones'; 18 + 8 <= 27 < 18 + 15
    found = advised(capacity_in=27e6)
    assert CANDIDATES[found.default] == 2e6
    assert overrides(found) == [("hog", 8e6, "capacity")]
    assert found.bound == "need"
    assert found.throttled == (("", "hog"),)
    assert (found.peak, found.fits) == (26e6, True)


def test_no_override_that_is_no_more_than_the_default() -> None:
    found = advised(capacity_in=20e6)  # 18 + 2
    assert found.overrides == ()
    assert found.throttled == found.no_capacity == (("", "hog"),)


def test_capacity_below_the_demand_lowers_the_default_and_says_so() -> None:
    found = advised(capacity_in=12e6)  # ten clients at 1 MB/s
    assert CANDIDATES[found.wanted] == 2e6
    assert CANDIDATES[found.default] == 1e6
    assert len(found.throttled) == 10
    assert found.fits


def test_capacity_below_every_candidate_is_reported() -> None:
    found = advised(capacity_in=5e6)
    assert not found.fits
    assert found.default == 0


def test_at_most_the_stated_overrides() -> None:
    assert advised(overrides=0).overrides == ()


def test_a_client_that_needs_more_than_every_candidate_is_throttled() -> None:
    found = advised(hog_need=len(CANDIDATES))
    assert overrides(found) == [("hog", 16e6, "ladder")]
    assert found.throttled == (("", "hog"),)


def test_default_of_clients_that_need_more_than_any_candidate_is_bound_by_the_ladder() -> None:
    needs = alike(9, len(CANDIDATES))
    loads = InMemory([flat(9 * candidate) for candidate in CANDIDATES], {})
    found = limits(CANDIDATES, needs, loads, Goal(throttled_share=0.1), "produce")
    assert (found.bound, found.beyond, CANDIDATES[found.default]) == ("ladder", 9, 16e6)


def spread(count: int, **goal: float) -> Limits:
    """Clients that need between 1 and 16 MB/s, as many of each; there is no override for any."""
    needs = {("", f"c-{number}"): number % len(CANDIDATES) for number in range(count)}
    passed = [sum(min(CANDIDATES[index], rate) for index in needs.values()) for rate in CANDIDATES]
    loads = InMemory([flat(rate) for rate in passed], {})
    wanted = Goal(headroom=1.0, throttled_share=0.2, **goal)  # type: ignore[arg-type]  # rates are floats
    return limits(CANDIDATES, needs, loads, wanted, "produce")


def test_the_share_may_be_throttled_where_no_capacity_is_stated() -> None:
    found = spread(20)
    assert (CANDIDATES[found.default], found.bound, len(found.throttled)) == (8e6, "goal", 4)  # 20 x 0.2


def test_where_the_capacity_is_ample_no_client_is_cut_for_the_shares_sake() -> None:
    found = spread(20, capacity_in=124e6)  # 4 x (1 + 2 + 4 + 8 + 16)
    assert (CANDIDATES[found.default], found.bound, found.throttled) == (16e6, "need", ())


def test_capacity_cuts_no_more_clients_than_it_has_to() -> None:
    found = spread(20, capacity_in=92e6)  # 4 x (1 + 2 + 4 + 8 + 8), as many as the share allows
    assert (CANDIDATES[found.default], found.bound, found.excess) == (8e6, "capacity", 0)
    less = spread(20, capacity_in=91e6)
    assert (CANDIDATES[less.default], less.bound, less.excess) == (4e6, "capacity", 4)


def test_equal_clients_share_a_default_and_get_no_override() -> None:
    needs = alike(5, 2)
    loads = InMemory(
        [flat(0.0) for _ in CANDIDATES],
        {name: [flat(min(4e6, rate)) for rate in CANDIDATES] for name in needs},
    )
    found = limits(CANDIDATES, needs, loads, Goal(headroom=1.0, capacity_in=80e6), "produce")
    assert (CANDIDATES[found.default], found.overrides, found.throttled) == (4e6, (), ())


def test_equal_clients_that_capacity_cuts_are_cut_alike() -> None:
    needs = alike(5, 2)
    each = {name: [flat(min(4e6, rate)) for rate in CANDIDATES] for name in needs}
    loads = InMemory([flat(0.0) for _ in CANDIDATES], each)
    found = limits(CANDIDATES, needs, loads, Goal(headroom=1.0, capacity_in=16e6, overrides=3), "produce")
    assert (CANDIDATES[found.default], found.bound, found.overrides) == (2e6, "capacity", ())


def test_twice_the_median_is_no_outlier() -> None:
    needs = {**alike(5, 1), ("", "c-4"): 2}
    twice = {("", "c-4"): [flat(min(4e6, rate)) for rate in CANDIDATES]}
    loads = InMemory([flat(8e6) for _ in CANDIDATES], twice)
    found = limits(CANDIDATES, needs, loads, Goal(headroom=1.0, capacity_in=80e6), "produce")
    assert (CANDIDATES[found.default], found.overrides) == (4e6, ())


def test_the_default_lets_one_large_request_through() -> None:
    rates = [1000.0, 30_000.0, DEFAULT_MIN, 200_000.0]
    needs = alike(3, 0)
    loads = InMemory([flat(3000.0) for _ in rates], {})
    found = limits(rates, needs, loads, Goal(), "fetch")
    assert (rates[found.default], found.bound) == (DEFAULT_MIN, "request")
    tight = limits(
        rates, needs, InMemory([flat(3 * rate) for rate in rates], {}), Goal(capacity_out=1e5), "fetch"
    )
    assert (rates[tight.default], tight.bound) == (30_000.0, "capacity")


def test_headroom_takes_the_next_candidate() -> None:
    needs, loads = fleet(9, 4)
    found = limits(CANDIDATES, needs, loads, Goal(headroom=1.5, throttled_share=0.1), "produce")
    assert CANDIDATES[found.default] == 4e6
    # 1.5 times the hog's 16 MB/s were not tried.
    assert overrides(found) == [("hog", 16e6, "ladder")]
    assert found.throttled == ()


def test_need_is_above_every_candidate_that_throttles() -> None:
    assert [need_of(flags) for flags in ([True, False, True, False], [False, False], [True, True])] == [
        3,
        0,
        2,
    ]


def heaviest(names: list[tuple[str, str]], by: By, *, overrides: int = 10) -> Limits:
    """Nine small clients that need 2 MB/s, and these, which need 16 MB/s each."""
    small = {(f"u{number}", f"small-{number}"): 1 for number in range(9 + 9 * len(names))}
    needs = small | dict.fromkeys(names, 4)
    ladder = [flat(min(15e6, candidate)) for candidate in CANDIDATES]
    loads = InMemory([flat(1e6) for _ in CANDIDATES], dict.fromkeys(names, ladder))
    wanted = Goal(headroom=1.0, throttled_share=0.1, overrides=overrides)
    return limits(CANDIDATES, needs, loads, wanted, "produce", by)


@pytest.mark.parametrize(
    ("by", "nameless"),
    [
        ("user", [("", ""), ("<default>", "")]),
        ("client-id", [("", ""), ("", "<default>")]),
        (
            "user-client-id",
            [("", ""), ("alice", ""), ("", "hog"), ("alice", "<default>"), ("<default>", "a")],
        ),
    ],
)
def test_client_that_cannot_be_named_gets_no_override_and_takes_no_place(
    by: By, nameless: list[tuple[str, str]]
) -> None:
    named = {"user": ("zoe", ""), "client-id": ("", "zoe"), "user-client-id": ("zoe", "zoe")}[by]
    found = heaviest([*nameless, named], by, overrides=1)
    assert [one.client for one in found.overrides] == [named]
    assert sorted(found.unnameable) == sorted(nameless)
    assert sorted(found.throttled) == sorted(nameless)


def test_where_no_override_was_asked_for_names_do_not_matter() -> None:
    assert heaviest([("", "")], "client-id", overrides=0).unnameable == ()


def test_client_that_needs_more_than_any_candidate_is_not_bound_by_capacity() -> None:
    """The default is the largest candidate already, and so is all that an override could be."""
    needs, loads = fleet(9, len(CANDIDATES))
    found = limits(
        [2e6],
        {name: min(index - 1, 1) for name, index in needs.items()},
        loads,
        Goal(headroom=1.0),
        "produce",
    )
    assert (found.default, found.overrides, found.no_capacity) == (0, (), ())
    assert (found.counted, found.beyond) == (10, 1)


def test_an_outlier_that_the_default_is_enough_for_is_counted_with_the_others() -> None:
    rates = [1000.0, 30_000.0, DEFAULT_MIN, 200_000.0]
    needs = {**alike(3, 0), ("", "hog"): 1}
    loads = InMemory([flat(3000.0) for _ in rates], {("", "hog"): [flat(1.0) for _ in rates]})
    found = limits(rates, needs, loads, Goal(), "fetch")
    assert (found.bound, found.counted, found.overrides) == ("request", 4, ())


def test_the_size_of_a_request_is_the_bound_if_the_headroom_reaches_it() -> None:
    """1.1 x 95 kB/s = 104.5 kB/s."""
    rates = [1000.0, 95_000.0, 150_000.0]
    loads = InMemory([flat(3000.0) for _ in rates], {})
    found = limits(rates, {("", "a"): 1}, loads, Goal(), "fetch")
    assert (rates[found.default], found.bound) == (150_000.0, "request")
