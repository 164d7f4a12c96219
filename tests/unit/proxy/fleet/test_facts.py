"""proxy.fleet.facts."""

from dataclasses import replace

import pytest

from proxy.config import QuotaSettings, ReassignmentSettings
from proxy.fleet.facts import differences, facts_of
from proxy.fleet.messages import FACTS_MAX, Facts
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.options import EngineOptions

SETTINGS = QuotaSettings()
REASSIGNMENT = ReassignmentSettings()
TOPIC = ReassignmentSettings(mode="batch", journal="topic")
OPTIONS = EngineOptions()


def facts(
    settings: QuotaSettings = SETTINGS,
    options: EngineOptions = OPTIONS,
    rate: float = 5,
    members_max: int = 8,
    reassignment: ReassignmentSettings = REASSIGNMENT,
) -> Facts:
    definitions = Definitions({Entity("ann"): {"producer_byte_rate": rate}})
    definitions.keep_digest()
    return facts_of(settings, reassignment, members_max, options, definitions)


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
            facts(replace(SETTINGS, store="topic")),
            "the store of quotas differs: file at a; topic __sluice-quotas at b",
        ),
        (
            facts(options=replace(OPTIONS, scope="cluster")),
            "the scope of quotas differs: broker at a; cluster at b",
        ),
        (facts(options=replace(OPTIONS, policy="schedule")), "the policy differs"),
        (facts(options=replace(OPTIONS, mode="observe")), "the mode differs"),
        (
            facts(options=replace(OPTIONS, window_samples=5)),
            "the windows differ: 11 of 1 s at a; 5 of 1 s at b",
        ),
        (facts(options=replace(OPTIONS, burst_seconds=0.5)), "the seconds of burst differ"),
        (
            facts(options=replace(OPTIONS, partition_mutations_rate=5)),
            "the partition mutations of all clients differ",
        ),
        (facts(options=replace(OPTIONS, client_ids_max=5)), ""),
    ],
)
def test_what_must_be_alike_is_compared(other: Facts, said: str) -> None:
    found = list(differences([("a", facts()), ("b", other)]).values())
    assert [text[: len(said)] for text in found] == ([said] if said else [])
