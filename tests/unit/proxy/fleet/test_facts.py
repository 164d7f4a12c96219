"""proxy.fleet.facts."""

from typing import Any

import pytest
from msgspec import structs

from proxy.config import QuotaSettings, ReassignmentSettings
from proxy.fleet.facts import LASTS_MS, TWICE_SECONDS, Disagreements, differences, facts_of, state_of
from proxy.fleet.messages import FACTS_MAX, Facts, MemberView, View
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.options import EngineOptions
from quotas.sharing.lease_values import LeaseTerms, LesseeId
from quotas.sharing.lessee import Lessee

SETTINGS = QuotaSettings()
REASSIGNMENT = ReassignmentSettings()
TOPIC = ReassignmentSettings(mode="batch", journal="topic")


def facts(
    settings: QuotaSettings = SETTINGS,
    rate: float = 5,
    members_max: int = 8,
    reassignment: ReassignmentSettings = REASSIGNMENT,
    **options: Any,
) -> Facts:
    definitions = Definitions({Entity("ann"): {"producer_byte_rate": rate}})
    definitions.keep_digest()
    return facts_of(settings, reassignment, members_max, EngineOptions(**options), definitions)


def test_all_facts_can_be_sent() -> None:
    assert len(facts()) <= FACTS_MAX
    assert facts()["quotas"] == "1"
    assert all(facts().values())


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (facts(), ""),
        (facts(reassignment=TOPIC), "the reassignment journal differs"),
        (facts(rate=6), "the quotas differ"),
        (facts(members_max=9), "members_max differs: 8 at a; 9 at b"),
        (
            facts(structs.replace(SETTINGS, store="topic")),
            "the store of quotas differs: file at a; topic __sluice-quotas at b",
        ),
        (facts(scope="cluster"), "the scope of quotas differs: broker at a; cluster at b"),
        (facts(policy="schedule"), "the policy differs"),
        (facts(mode="observe"), "the mode differs"),
        (facts(window_samples=5), "the windows differ: 11 of 1 s at a; 5 of 1 s at b"),
        (facts(burst_seconds=0.5), "the seconds of burst differ"),
        (facts(partition_mutations_rate=5), "the partition mutations of all clients differ"),
        (facts(client_ids_max=5), ""),
    ],
)
def test_what_must_be_alike_is_compared(other: Facts, said: str) -> None:
    found = list(differences([("a", facts()), ("b", other)]).values())
    assert [text[: len(said)] for text in found] == ([said] if said else [])


STEP_MS = 2000


def member(name: str, run: int = 1, seconds: int = 5, **facts: str) -> MemberView:
    return MemberView(LesseeId(name, run), 100, seconds, facts)


def view(*members: MemberView) -> View:
    return View(False, members, ())


def quotas(name: str, digest: str, count: str = "3") -> MemberView:
    return member(name, quotas=count, quotas_digest=digest)


def test_members_that_differ_are_named_with_their_values_the_fewest_first() -> None:
    members = [
        ("a", {"members_max": "8", "version": "1.0", "quotas": "3", "quotas_digest": "aa"}),
        ("b", {"members_max": "4", "version": "1.0", "quotas": "3", "quotas_digest": "bb"}),
        ("c", {"members_max": "8"}),
    ]
    assert differences(members) == {
        "members_max": "members_max differs: 4 at b; 8 at a, c",
        "quotas_digest": "the quotas differ: 3 with digest aa at a; 3 with digest bb at b",
    }


def test_names_of_many_members_are_cut() -> None:
    members = [(f"m{number:02}", {"mode": "enforce"}) for number in range(20)]
    assert differences([*members, ("x", {"mode": "observe"})]) == {
        "mode": "the mode differs: observe at x; enforce at m00, m01, m02, m03, m04, m05, m06, m07 and 12 more"
    }


def test_difference_counts_when_it_lasts_and_is_told_once() -> None:
    found = Disagreements()
    differing = view(member("a", mode="enforce"), member("b", mode="observe"))
    assert found.observe(view(member("a", mode="enforce"), member("b", mode="enforce")), 0) == ({}, {})
    assert found.observe(differing, 1000) == ({}, {})
    assert found.observe(differing, 1000 + LASTS_MS - 1) == ({}, {})
    assert found.lasting == {}
    sentence = {"mode": "the mode differs: enforce at a; observe at b"}
    assert found.observe(differing, 1000 + LASTS_MS) == (sentence, {})
    assert found.observe(differing, 1000 + 2 * LASTS_MS) == ({}, {})
    assert found.lasting == sentence
    assert found.observe(view(member("a", mode="enforce")), 20_000) == ({}, sentence)
    assert found.lasting == {}


def test_quotas_that_are_altered_all_the_time_are_no_disagreement() -> None:
    found = Disagreements()
    for step in range(1, 50):
        seen = view(quotas("a", f"{step}"), quotas("b", f"{step - 1}"))  # b is always a little later
        assert found.observe(seen, step * STEP_MS) == ({}, {})


def test_member_that_does_not_follow_is_found_while_quotas_are_altered() -> None:
    found = Disagreements()
    for step in range(1, 10):
        found.observe(view(quotas("a", f"{step}"), quotas("b", "0", "2")), step * STEP_MS)
    assert found.lasting == {"quotas_digest": "the quotas differ: 2 with digest 0 at b; 3 with digest 9 at a"}


def test_members_of_one_name_are_a_rolling_upgrade_at_first() -> None:
    found = Disagreements()
    young = view(member("a", 1, TWICE_SECONDS), member("a", 2, TWICE_SECONDS - 1))
    assert found.observe(young, 0) == ({}, {})
    old = view(member("a", 1, TWICE_SECONDS), member("a", 2, TWICE_SECONDS))
    sentence = {"name a": "two processes are called 'a': each needs a name of its own"}
    assert found.observe(old, 1) == (sentence, {})


def test_member_cannot_tell_as_a_fact_what_the_holder_sees() -> None:
    facts = dict.fromkeys(("name", "run", "silent_seconds", "present_seconds"), "x") | {"admin": "http://a"}
    view = View(False, (MemberView(LesseeId("a", 1), 500, 7, facts),), ())
    found = state_of(Lessee(LeaseTerms(15_000, 1000, 4), LesseeId("b", 2), 0), view, (), 0)["members"]
    seen = {"name": "a", "run": f"{1:016x}", "silent_seconds": 0.5, "present_seconds": 7}
    assert found == [{"admin": "http://a", **seen}]
