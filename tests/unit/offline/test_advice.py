"""The replication throttle, how sure one is, candidates, and words."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.advice.explain import (
    Line,
    Tried,
    confidence,
    direction_lines,
    not_in_quotas_file,
    replication_lines,
    sampled_line,
)
from offline.advice.limits import DEFAULT_MIN, Bound, Limits, Override
from offline.advice.mutations import replication_throttle
from offline.jobs.recommend import quotas_text
from offline.options import By, Goal
from offline.transforms.candidates import ladder, rounded
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.toml_file import parse


def test_a_network_that_is_too_slow_has_no_throttle_and_says_so() -> None:
    (line,) = replication_lines(replication_throttle(90e6, 100e6, 3.0), Goal(), "high")
    assert line.value == -1
    assert "no T lies between" in line.reason


@pytest.mark.parametrize(
    ("seconds", "clients", "grade"), [(600, 100, "low"), (7200, 100, "medium"), (10 * 86_400, 100, "high")]
)
def test_confidence_grows_with_the_recorded_time(seconds: int, clients: int, grade: str) -> None:
    assert confidence(seconds=seconds, clients=clients).startswith(grade)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["high: from packets"], "high: from packets"),
        (["medium: from packets", "low: from counters"], "low: from packets; from counters"),
        (["of no grade"], "low: of no grade"),
        (["brilliant: by far"], "low: brilliant: by far"),
    ],
)
def test_confidence_is_at_most_what_the_sources_of_the_captures_allow(
    sources: list[str], expected: str
) -> None:
    assert confidence(seconds=10 * 86_400, clients=100, sources=sources) == expected
    assert confidence(seconds=10, clients=100, sources=sources).startswith("low: 10 s recorded")


@given(peaks=st.lists(st.floats(0, 1e12), min_size=1, max_size=50), count=st.integers(2, 30))
def test_ladder_is_no_longer_than_asked_for(peaks: list[float], count: int) -> None:
    found = ladder(peaks, max(peaks), count)
    assert 1 <= len(found) <= count
    assert found == sorted(set(found))
    assert found[-1] >= max(peaks)


def test_ladder_reaches_the_highest_second_with_room() -> None:
    """Three steady clients, and one whose second is ten times its ten seconds."""
    found = ladder([1e6, 1e6, 1e6, 2e6], 20e6, 20)
    assert len(found) == 20
    assert found[-1] == 22e6  # 1.1 x 20
    assert {1.1e6, 2.2e6} <= set(found)  # 1.1 times what each asks for in ten seconds
    assert max(higher / lower for lower, higher in pairwise(found)) < 1.5


def test_ladder_leaves_the_headroom_above_everything() -> None:
    assert ladder([1e6], 2e6, 20, headroom=3.0)[-1] == 6.6e6  # 1.1 x 3 x 2
    assert {1.1e6, 1.3e6} <= set(ladder([1e6], 1e6, 20, headroom=1.1))  # 1.1 x 1.1 = 1.21, rounded up


def test_ladder_of_an_idle_cluster_reaches_one_large_request() -> None:
    assert ladder([20.0, 300.0], 600.0, 20, least=DEFAULT_MIN)[-1] == DEFAULT_MIN
    assert ladder([], 0.0, 20) == []


def test_a_short_ladder_has_both_ends() -> None:
    peaks = [float(10_000 * 1.3**step) for step in range(40)]
    low, high = ladder(peaks, 2 * peaks[-1], 2)
    assert low == rounded(1.1 * peaks[19])
    assert high == rounded(1.1 * 2 * peaks[-1])
    assert ladder(peaks, max(peaks), 20)[0] < peaks[10]


def test_rounded_never_rounds_down() -> None:
    assert [rounded(rate) for rate in (999.0, 1001.0, 123_456.0)] == [1000.0, 1100.0, 130_000.0]


HOG = ("", "hog")


def limited(bound: Bound = "need", **changes: Any) -> Limits:
    """A default of the first candidate for nine clients, and a hog."""
    found = Limits(
        default=0,
        least=0,
        overrides=(),
        bound=bound,
        counted=9,
        allowed=0,
        throttled=(),
        wanted=1,
        peak=9e6,
        fits=True,
    )
    return replace(found, **changes)


def said(limit: Limits, goal: Goal, *, gateway: bool = False) -> list[Line]:
    waits = {HOG: 20_000, ("", "b"): 0}
    return direction_lines(Tried("produce", [1e6, 4e6], goal, gateway), limit, waits, 12e6, 3600)


def test_lines_have_reason_effect_and_throttled_clients() -> None:
    hog = Override(HOG, 1, 1, 2, "capacity")
    default, override = said(limited(overrides=(hog,), throttled=(HOG,)), Goal(capacity_in=10e6))
    assert (default.kind, default.key, default.value) == ("default", "producer_byte_rate", 1e6)
    assert default.throttle_ms == 20_000  # the hog's at its override; b's none
    assert default.effect == (
        "1 client (hog) throttled; connections wait for 20.0 s together; "
        "busiest broker 12.0 MB/s before, 9.0 MB/s after"
    )
    assert (override.client_id, override.value, override.clients_throttled) == ("hog", 4e6, 1)
    assert override.effect == "its connections wait for 20.0 s together, in 1 h 0 min"


_NEED = (
    "bound by need: the smallest quota tried that throttles none of 9 clients is 1.0 MB/s, with headroom 1.1 MB/s; the "
    "next quota tried is 4.0 MB/s"
)
_REQUEST = (
    "bound by the size of a request: 9 clients would do with less, but a smaller default "
    "would throttle a client for one request of 1 MiB"
)
_GOAL = (
    "bound by the goal: at most 0 of 9 clients may be throttled (a share of 5%), and each "
    "smaller quota tried throttles more"
)


@pytest.mark.parametrize(("bound", "reason"), [("need", _NEED), ("request", _REQUEST), ("goal", _GOAL)])
def test_the_default_has_its_bound_as_reason(bound: Bound, reason: str) -> None:
    found = limited(bound, default=1)
    assert said(found, Goal())[0].reason == f"{reason}; no capacity was stated"
    assert said(found, Goal(capacity_in=20e6))[0].reason == reason


def test_a_default_says_how_many_have_an_override() -> None:
    hog = Override(HOG, 1, 1, 1, "need")
    assert (
        "none of 9 clients (1 with an override aside) is" in said(limited(overrides=(hog,)), Goal())[0].reason
    )


def test_next_quota_is_reported_only_if_it_differs() -> None:
    reason = said(limited(), Goal(headroom=1.0, capacity_in=20e6))[0].reason
    assert reason == "bound by need: the smallest quota tried that throttles none of 9 clients is 1.0 MB/s"


def test_clients_that_need_more_than_any_candidate_are_reported_with_the_default() -> None:
    reason = said(limited("request", default=1, beyond=1), Goal(capacity_in=20e6))[0].reason
    assert reason.endswith(
        "; 1 client needs more than any quota tried, with headroom; try larger ones with --produce-quotas"
    )


def test_a_default_at_the_end_of_the_ladder_has_advice() -> None:
    (default,) = said(limited("ladder", beyond=2), Goal())
    assert default.reason == (
        "bound by the ladder: the largest quota tried, and 2 clients need more, with headroom; try larger ones with "
        "--produce-quotas"
    )


def test_a_default_bound_by_capacity_has_its_value_without_it() -> None:
    (default,) = said(limited("capacity"), Goal(capacity_in=10e6))
    assert default.reason == (
        "bound by capacity: only this keeps every broker within 10.0 MB/s; by the clients' needs it would be 4.0 MB/s"
    )
    (none,) = said(limited("capacity", fits=False), Goal(capacity_in=5e6))
    assert none.reason == (
        "bound by capacity: the smallest quota tried, and not even this keeps every broker within 5.0 MB/s"
    )


_LADDER = (
    "the largest quota tried, and 1 client needs more, with headroom; try larger ones with --produce-quotas"
)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        (
            Override(HOG, 1, 0, 1, "need"),
            "need: it needs 1.0 MB/s, with headroom 1.1 MB/s; the next quota tried is 4.0 MB/s",
        ),
        (Override(HOG, 1, 1, 2, "ladder"), f"the ladder: {_LADDER}"),
        (Override(HOG, 0, 1, 1, "capacity"), "capacity: it needs 4.0 MB/s, and only this keeps"),
        (
            Override(HOG, 0, 1, 2, "capacity"),
            "capacity: it needs more than any quota tried, and only this keeps",
        ),
    ],
)
def test_an_override_has_its_bound_as_reason(override: Override, reason: str) -> None:
    line = said(limited(overrides=(override,)), Goal(capacity_in=10e6))[1]
    within = " every broker within 10.0 MB/s" if override.bound == "capacity" else ""
    assert line.reason == f"bound by {reason}{within}"


def test_one_budget_for_all_brokers_is_reported() -> None:
    (default,) = said(limited("capacity"), Goal(capacity_in=10e6), gateway=True)
    assert "only this keeps all brokers together within 10.0 MB/s" in default.reason
    assert default.effect.endswith("all brokers together 12.0 MB/s before, 9.0 MB/s after")


def test_clients_beyond_the_share_are_counted_without_clients_with_an_override() -> None:
    throttled = (HOG, ("", "b"), ("", "c"))
    limit = limited(overrides=(Override(HOG, 1, 1, 2, "capacity"),), throttled=throttled, allowed=1)
    assert said(limit, Goal(capacity_in=1e7))[0].effect.startswith(
        "3 clients (hog, b, c) throttled; 1 more than may be"
    )


def test_heavy_clients_without_an_override_are_named_with_the_reason() -> None:
    (default,) = said(limited(no_capacity=(HOG,), throttled=(HOG,)), Goal(capacity_in=1e7))
    assert default.reason.endswith(
        "; 1 client (hog) needs more, and the stated capacity allows no more than the default"
    )
    (default,) = said(limited(throttled=(("", ""),), unnameable=(("", ""),)), Goal(capacity_in=1e7))
    assert default.reason.endswith(
        "; 1 client ((no name)) needs more, and cannot have an override because no quota can name it"
    )
    (default,) = said(limited(unnameable=(("", ""),)), Goal(capacity_in=1e7))
    assert default.reason.endswith(
        "; the default must be sufficient for 1 client ((no name)), because no quota can name it"
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
    assert not_in_quotas_file(lines) == ["controller_mutation_rate = 5"]
    assert dict(parse(quotas_text(lines, by, "cluster")).entries()) == {
        default: {"producer_byte_rate": 1e6},
        Entity(user or None, client_id or None): {"producer_byte_rate": 2e6, "consumer_byte_rate": 3e6},
    }


def test_a_sample_gives_no_recommendation_for_limits() -> None:
    keys = {"default": "producer_byte_rate", "mutation": "partition_mutations_rate"}
    lines = [sampled_line(kind, key, Goal(sample=0.1), "low") for kind, key in keys.items()]
    assert not_in_quotas_file(lines) == []
    assert quotas_text(lines, "user", "cluster") == ""
