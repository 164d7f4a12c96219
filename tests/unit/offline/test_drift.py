"""Quotas in force against a recommendation: one client for each class, and where the bounds of the classes are."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from offline.advice.drift import Advice, Advised, Comparison, Drift, Need, Recommended, compare
from offline.options import CompareOptions, Goal
from quotas.definitions.alterations import Quotas
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.toml_file import parse

KEY = "producer_byte_rate"
SURE = "high: 30.0 days of 500 clients"
DAY_S = 86_400
LADDER = (50e3, 110e3, 200e3, 220e3, 500e3, 550e3, 1e6, 1.1e6, 2e6, 2.2e6, 4e6, 4.4e6, 10e6)
NEEDS = {"small": 50e3, "medium": 200e3, "large": 500e3, "hog": 4e6}
EVERYONE = Entity(client_id=DEFAULT)
NOTHING = Advice(needs={}, overrides={})


def advice(needs: Mapping[str, float], default: float = 220e3, **overrides: float) -> Advice:
    """What is recommended where each client has this need, and these have an override."""
    return Advice(
        ladder=LADDER,
        needs={("", name): Need(need, overrides.get(name, default)) for name, need in needs.items()},
        default=Advised(default, SURE),
        overrides={("", name): Advised(value, SURE) for name, value in overrides.items()},
    )


RECOMMENDED = Recommended(
    by="client-id",
    goal=Goal(headroom=1.1),
    recorded_s=30 * DAY_S,
    confidence=SURE,
    advice={"produce": advice(NEEDS, large=550e3, hog=4.4e6), "fetch": NOTHING},
)


def limits(**produce: float) -> dict[Entity, dict[str, float]]:
    """Produce quotas by client id; `default` is the default's."""
    return {
        EVERYONE if name == "default" else Entity(client_id=name): {KEY: value}
        for name, value in produce.items()
    }


def judged(
    current: Quotas, found: Recommended = RECOMMENDED, options: CompareOptions | None = None
) -> dict[str, tuple[Drift, float | None]]:
    """By client id, the class and what is proposed."""
    return {
        "<default>" if one.entity == EVERYONE else str(one.entity.client_id): (
            one.drift,
            one.proposed if one.changes else one.in_force,
        )
        for one in compare(current, found, options or CompareOptions()).judged
    }


def test_each_class_and_what_is_proposed() -> None:
    current = limits(default=220e3, small=30e3, medium=1e6, hog=4.4e6, old=7e6)
    assert judged(current) == {
        "small": ("too tight", 110e3),  # 50 kB/s x 1.1 is less than one request of 1 MiB in ten seconds
        "medium": ("too wide", 220e3),  # 200 kB/s x 1.1; 1 MB/s is 4.5 times that
        "large": ("new", 550e3),  # it needs 500 kB/s, and the default has 220
        "old": ("unused", None),
        "hog": ("unchanged", 4.4e6),
        "<default>": ("unchanged", 220e3),
    }
    wanted = compare(current, RECOMMENDED, CompareOptions()).wanted(current)
    assert wanted == {**limits(small=110e3, medium=220e3, large=550e3), Entity(client_id="old"): {}}
    reasons = {
        one.entity.client_id: one.reason for one in compare(current, RECOMMENDED, CompareOptions()).judged
    }
    assert reasons == {
        "small": "its requests would have waited; it needs 50.0 kB/s",
        "medium": "4.5 times what it should have; it needs 200.0 kB/s",
        "large": "only the default of 220.0 kB/s covers it; it needs 500.0 kB/s",
        "old": "no produce request in 30.0 days",
        "hog": "",
        DEFAULT: "",
    }


@pytest.mark.parametrize(
    ("limit", "drift"),
    [
        (3.6e6, "too tight"),  # 4.4 is 22 % more
        (3.7e6, "unchanged"),  # 19 % more, although it needs 4 MB/s
        (4e6, "unchanged"),
        (8.8e6, "unchanged"),  # twice what it should have, and not more
        (8.9e6, "too wide"),
    ],
)
def test_a_small_change_is_not_proposed(limit: float, drift: Drift) -> None:
    found = compare(limits(default=550e3, hog=limit), RECOMMENDED, CompareOptions())
    (hog,) = (one for one in found.judged if one.entity == Entity(client_id="hog"))
    assert hog.drift == drift
    words = "it needs 4.0 MB/s"
    assert hog.reason.endswith(words) is (drift != "unchanged" or limit < 4e6)


def test_bounds_are_options() -> None:
    current = limits(default=220e3, large=550e3, hog=4.9e6)
    assert judged(current)["hog"] == ("unchanged", 4.9e6)
    assert judged(current, options=CompareOptions(wide=1.1))["hog"] == ("too wide", 4.4e6)
    current[Entity(client_id="hog")][KEY] = 3.9e6
    assert judged(current)["hog"] == ("unchanged", 3.9e6)
    assert judged(current, options=CompareOptions(change=0.1))["hog"] == ("too tight", 4.4e6)


@pytest.mark.parametrize(
    ("default", "drift", "hog"),
    [
        (150e3, ("too tight", 220e3), ("new", 4.4e6)),  # medium needs 200 kB/s
        (200e3, ("unchanged", 200e3), ("new", 4.4e6)),  # no client waits
        (440e3, ("unchanged", 440e3), ("new", 4.4e6)),
        (450e3, ("too wide", 220e3), ("new", 4.4e6)),
        (9e6, ("too wide", 220e3), ("new", 4.4e6)),  # the default was enough for it, and is no more
    ],
)
def test_the_default_is_judged_by_the_clients_that_it_covers(
    default: float, drift: tuple[Drift, float], hog: tuple[Drift, float]
) -> None:
    found = judged(limits(default=default, large=550e3))
    assert (found["<default>"], found["hog"]) == (drift, hog)


def test_without_a_default_one_is_proposed() -> None:
    assert judged({}) == {"<default>": ("new", 220e3), "large": ("new", 550e3), "hog": ("new", 4.4e6)}


def test_a_default_that_is_tight_for_the_share_of_the_goal_stays() -> None:
    """A share of the clients may be throttled: that is no drift."""
    needs = {"big": 500e3, **{f"c-{number}": 50e3 for number in range(19)}}
    found = replace(RECOMMENDED, advice={"produce": advice(needs, 220e3), "fetch": NOTHING})
    assert judged(limits(default=110e3), found) == {"<default>": ("unchanged", 110e3)}  # 1 of 20 is 5 %
    strict = replace(found, goal=Goal(throttled_share=0.04))
    assert judged(limits(default=110e3), strict) == {"<default>": ("too tight", 220e3)}
    found = replace(RECOMMENDED, advice={"produce": advice({"a": 50e3, "b": 500e3}, 110e3), "fetch": NOTHING})
    (default,) = compare(limits(default=110e3), found, CompareOptions()).judged
    assert (default.drift, default.reason) == ("unchanged", "1 of 2 clients that it covers would have waited")


def test_a_stated_capacity_limits_what_a_client_should_have() -> None:
    needs = {"hog": 4e6, "b": 500e3}
    found = replace(
        RECOMMENDED,
        goal=Goal(headroom=1.1, capacity_in=3e6),
        advice={"produce": advice(needs, 220e3, hog=2e6), "fetch": NOTHING},
    )
    current = limits(default=220e3, hog=2e6, b=220e3)
    assert set(judged(current, found).values()) == {("unchanged", 2e6), ("unchanged", 220e3)}
    # Not twice as much, but more than a fifth above what the capacity allows.
    assert judged(limits(default=220e3, hog=2.5e6, b=220e3), found)["hog"] == ("too wide", 2e6)
    assert judged(limits(default=220e3, hog=1e6, b=220e3), found)["hog"] == ("too tight", 2e6)
    (hog,) = (
        one
        for one in compare(limits(default=220e3, hog=1e6, b=220e3), found, CompareOptions()).judged
        if one.entity.client_id == "hog"
    )
    assert hog.reason == (
        "its requests would have waited; it needs 4.0 MB/s, and the stated capacity allows 2.0 MB/s"
    )
    assert judged(limits(default=300e3, hog=2e6), found)["<default>"] == ("too wide", 220e3)


def test_a_need_beyond_every_candidate_is_raised_and_never_lowered() -> None:
    found = replace(
        RECOMMENDED, advice={"produce": advice({"hog": math.inf, "a": 50e3}, hog=10e6), "fetch": NOTHING}
    )
    assert judged(limits(default=220e3, hog=5e6), found)["hog"] == ("too tight", 10e6)
    assert judged(limits(default=220e3, hog=1e9), found)["hog"] == ("unchanged", 1e9)
    (hog, _) = compare(limits(default=220e3, hog=1e9), found, CompareOptions()).judged
    assert (hog.need, hog.reason) == (
        None,
        "it needs more than any quota that was tried, the largest 10.0 MB/s",
    )


@pytest.mark.parametrize(
    ("recorded_s", "confidence", "options", "held"),
    [
        (30 * DAY_S, SURE, CompareOptions(), set()),
        (7 * DAY_S, SURE, CompareOptions(), {"old"}),
        (7 * DAY_S, SURE, CompareOptions(unused_days=7), set()),
        (DAY_S - 1, "medium: 23 hours", CompareOptions(), {"medium", "old"}),
        (600, "low: 10 minutes", CompareOptions(), {"small", "medium", "large", "old"}),
        (600, "low: 10 minutes", CompareOptions(confidence="low"), {"old"}),
        (600, "low: 10 minutes", CompareOptions(confidence="low", unused_days=0), set()),
        (30 * DAY_S, "medium: few", CompareOptions(confidence="high"), {"small", "medium", "large", "old"}),
        (0, "", CompareOptions(), {"small", "medium", "large", "old"}),
    ],
)
def test_a_change_that_the_recording_does_not_bear_is_held_back(
    recorded_s: int, confidence: str, options: CompareOptions, held: set[str]
) -> None:
    produce = RECOMMENDED.advice["produce"]
    unsure = replace(
        produce,
        default=Advised(220e3, confidence),
        overrides={name: Advised(one.value, confidence) for name, one in produce.overrides.items()},
    )
    found = replace(
        RECOMMENDED,
        recorded_s=recorded_s,
        confidence=confidence,
        advice={"produce": unsure, "fetch": NOTHING},
    )
    current = limits(default=220e3, small=30e3, medium=1e6, hog=4.4e6, old=7e6)
    compared = compare(current, found, options)
    assert {one.entity.client_id for one in compared.judged if one.held_back} == held
    assert compared.wanted(current).keys() == {
        Entity(client_id=name) for name in {"small", "medium", "large", "old"} - held
    }


def test_the_confidence_of_an_override_is_its_own() -> None:
    produce = RECOMMENDED.advice["produce"]
    unsure = {**produce.overrides, ("", "large"): Advised(550e3, "low: seen for an hour")}
    found = replace(RECOMMENDED, advice={"produce": replace(produce, overrides=unsure), "fetch": NOTHING})
    compared = compare(limits(default=220e3), found, CompareOptions())
    assert {one.entity.client_id: one.held_back for one in compared.judged if one.drift == "new"} == {
        "large": "confidence low: seen for an hour",
        "hog": "",
    }


LEFT_ALONE = """\
[[quota]]
client_id = "<default>"
producer_byte_rate = "220k"

[[quota]]
client_id = "hog"
producer_byte_rate = "1M"
producer_byte_rate_ceiling = "8M"

[[quota]]
client_id = "small"
producer_byte_rate = "30k"
request_percentage = 50

[[quota]]
client_id = "small"
producer_byte_rate = "10k"
hours = "sat,sun"

[[quota]]
user = "ann"
producer_byte_rate = "1k"

[[quota]]
topic = "orders"
producer_byte_rate = "1k"

[[group]]
name = "team"
client_ids = ["large"]

[[quota]]
group = "team"
producer_byte_rate = "1k"

[[capacity]]
scope = "cluster"
in = "1k"
"""


def test_what_is_not_judged_is_left_alone_and_named() -> None:
    current = dict(parse(LEFT_ALONE).entries())
    compared = compare(current, RECOMMENDED, CompareOptions())
    assert {one.entity for one in compared.judged} == {EVERYONE, Entity(client_id="small")}
    # The whole entity, since a file for `sluice quotas apply` names all that it keeps.
    assert compared.wanted(current) == {Entity(client_id="small"): {KEY: 110e3, "request_percentage": 50.0}}
    left = {(one.entity, one.key): one.why for one in compared.not_judged}
    assert left == {
        (Entity(client_id="hog"), KEY): (
            "a quota with a ceiling or an exemption, whose clients use more than its rate"
        ),
        (Entity(client_id="hog"), f"{KEY}_ceiling"): "no quota of bytes: the recording recommends byte rates",
        (Entity(client_id="small"), "request_percentage"): (
            "no quota of bytes: the recording recommends byte rates"
        ),
        (Entity(client_id="small", when="hours=sat, sun"), KEY): "an entry that holds at certain times",
        (Entity("ann"), KEY): "an entity that is no client of a recording by client-id",
        (Entity(topic="orders"), KEY): "a quota of a topic or an address: the recording has clients",
        (Entity(client_id="large", group="team"), "member"): (
            "a group: the recording has clients, and no groups"
        ),
        (Entity(group="team"), KEY): "a group: the recording has clients, and no groups",
        (Entity(capacity="cluster"), KEY): "a capacity is stated, not measured",
    }


def test_an_entity_with_a_key_of_later_brokers_is_left_alone() -> None:
    """A file of changes names all limits that an entity keeps, and cannot name this one."""
    current: Quotas = {**limits(default=220e3), Entity(client_id="small"): {KEY: 1e3, "later_rate": 5.0}}
    compared = compare(current, RECOMMENDED, CompareOptions())
    assert Entity(client_id="small") not in compared.wanted(current)
    assert {one.key: one.why for one in compared.not_judged} == dict.fromkeys(
        (KEY, "later_rate"), "an entity with a key that is not known here"
    )


def test_a_default_with_a_ceiling_is_left_alone() -> None:
    current: Quotas = {EVERYONE: {KEY: 110e3, f"{KEY}_ceiling": 1e6}}
    assert judged(current) == {"large": ("new", 550e3), "hog": ("new", 4.4e6)}


def test_users_and_pairs_are_judged_where_they_are_the_clients() -> None:
    produce = Advice(
        ladder=LADDER,
        needs={("ann", ""): Need(4e6, 220e3), ("", ""): Need(500e3, 220e3)},
        default=Advised(220e3, SURE),
        overrides={},
    )
    found = replace(RECOMMENDED, by="user", advice={"produce": produce, "fetch": NOTHING})
    current = {
        Entity("ann"): {KEY: 1e6},
        Entity(DEFAULT): {KEY: 220e3},
        Entity("ann", "a"): {KEY: 1.0},
        Entity(client_id="a"): {KEY: 1.0},
    }
    compared = compare(current, found, CompareOptions())
    assert {one.entity: (one.drift, one.proposed) for one in compared.judged} == {
        Entity("ann"): ("too tight", 4.4e6),
        Entity(DEFAULT): ("unchanged", None),
    }
    assert {one.entity for one in compared.not_judged} == {Entity("ann", "a"), Entity(client_id="a")}


def test_a_quota_that_another_entity_goes_before_is_not_judged() -> None:
    produce = Advice(
        ladder=LADDER, needs={("ann", ""): Need(4e6, 220e3)}, default=Advised(220e3, SURE), overrides={}
    )
    found = replace(RECOMMENDED, by="user", advice={"produce": produce, "fetch": NOTHING})
    current = {Entity("ann"): {KEY: 1e6}, Entity("ann", DEFAULT): {KEY: 2e6}, Entity(DEFAULT): {KEY: 220e3}}
    compared: Comparison = compare(current, found, CompareOptions())
    assert [one.entity for one in compared.judged] == [Entity(DEFAULT)]
    assert [one.why for one in compared.not_judged] == [
        "an entity that is no client of a recording by user",
        "user 'ann', client-id <default> goes before it",
    ]


def test_a_direction_without_clients_has_unused_quotas_and_keeps_its_default() -> None:
    current = {
        EVERYONE: {"consumer_byte_rate": 1e6},
        Entity(client_id="r"): {"consumer_byte_rate": 2e6, KEY: 1.0},
    }
    found = compare(current, RECOMMENDED, CompareOptions())
    fetch = {one.entity: one.drift for one in found.judged if one.key == "consumer_byte_rate"}
    assert fetch == {EVERYONE: "unchanged", Entity(client_id="r"): "unused"}
