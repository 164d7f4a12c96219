"""Changes that `compare` proposes leave nothing to change, whatever is in force and whatever is recommended.

They are put in force as `sluice quotas apply` does it: the file is read, the differences go through the server's own
checks.
"""

import math

from hypothesis import given
from hypothesis import strategies as st

from offline.advice.drift import Advice, Advised, Need, Recommended, compare
from offline.jobs.compare import changes_text
from offline.options import CompareOptions, Goal
from proxy.commands.quota_formats import read
from quotas.definitions.alterations import Quotas, alter, alterations, differences
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity

NAMES = ("a", "b", "c", "new\nline", "web-1")
LADDER = (20e3, 110e3, 220e3, 500e3, 1e6, 2e6, 10e6)
KEYS = ("producer_byte_rate", "consumer_byte_rate")
rates = st.sampled_from((*LADDER, 1.0, 130e3, 300e3, 1e9))
confidences = st.sampled_from(("high: sure", "medium: a day", "low: an hour", ""))
entities = st.one_of(
    st.sampled_from(NAMES).map(lambda name: Entity(client_id=name)),
    st.just(Entity(client_id=DEFAULT)),
    st.sampled_from((Entity("ann"), Entity(group="team"), Entity(client_id="a", when="hours=sat"))),
)
limits = st.dictionaries(
    st.sampled_from((*KEYS, "request_percentage", "producer_byte_rate_ceiling", "weight")), rates, min_size=1
)


def possible(values: dict[str, float]) -> bool:
    """Whether a server takes these limits of an entity."""
    return values.get("weight", 1.0) <= 1e6 and values.get(f"{KEYS[0]}_ceiling", math.inf) >= values.get(
        KEYS[0], 0
    )


@st.composite
def advices(draw: st.DrawFn) -> Advice:
    """What is recommended in one direction: not always what `recommend` would say of these needs."""
    names = draw(st.sets(st.sampled_from(NAMES)))
    if not names:
        return Advice(needs={}, overrides={})
    default = draw(st.sampled_from(LADDER))
    own = draw(st.dictionaries(st.sampled_from(sorted(names)), st.sampled_from(LADDER)))
    needs = {
        ("", name): Need(draw(st.sampled_from((*LADDER, math.inf))), own.get(name, default)) for name in names
    }
    return Advice(
        ladder=LADDER,
        needs=needs,
        default=Advised(default, draw(confidences)),
        overrides={("", name): Advised(value, draw(confidences)) for name, value in own.items()},
    )


recommendations = st.builds(
    Recommended,
    by=st.just("client-id"),
    goal=st.builds(
        Goal,
        headroom=st.sampled_from((1.0, 1.1, 3.0)),
        capacity_in=st.sampled_from((None, 1e6)),
        capacity_out=st.sampled_from((None, 1e6)),
    ),
    recorded_s=st.sampled_from((600, 90_000, 3_000_000)),
    confidence=confidences,
    advice=st.fixed_dictionaries({"produce": advices(), "fetch": advices()}),
)
options = st.builds(
    CompareOptions,
    change=st.sampled_from((0.0, 0.2, 2.0)),
    wide=st.sampled_from((1.0, 2.0, 10.0)),
    unused_days=st.sampled_from((0.0, 28.0)),
    confidence=st.sampled_from(("high", "medium", "low")),
)


def applied(current: Quotas, wanted: Quotas) -> Quotas:
    """The quotas of a server after `sluice quotas apply`."""
    definitions = Definitions(current)
    outcome = alter(definitions, alterations(differences(current, wanted, prune=False)))
    assert all(not problem for _, problem in outcome.results)
    for entity, values in outcome.changes.items():
        definitions.put(entity, values)
    return dict(definitions.entries())


@given(st.dictionaries(entities, limits.filter(possible)), recommendations, options)
def test_after_the_changes_there_is_nothing_to_change(
    current: Quotas, found: Recommended, wanted: CompareOptions
) -> None:
    compared = compare(current, found, wanted)
    changes = compared.wanted(current)
    text = changes_text(compared, changes, "of a test")
    assert read(text, "toml") == changes
    after = applied(current, changes)
    again = compare(after, found, wanted)
    assert again.wanted(after) == {}
    left = {(one.entity, one.key) for one in compared.not_judged}
    assert {(entity, key): after[entity][key] for entity, key in left} == {
        (entity, key): current[entity][key] for entity, key in left
    }
