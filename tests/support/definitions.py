"""Random definitions of every kind, for property tests: groups, capacities, terms and times among them."""

from hypothesis import strategies as st

from quotas.definitions.definitions import Definitions, keys_of
from quotas.definitions.entities import DEFAULT, Entity, Name, canonical
from quotas.definitions.kinds import CEILINGS, EACH, FLAG_KEYS, MEMBER, WHOLE_KEYS

# Quotes, backslashes and control characters are what a TOML string must escape.
TEXTS = st.text(st.sampled_from('ab"\\ \t\n\x00\x1f\x7f.#],*ü€'), min_size=1, max_size=6)
NAMES: st.SearchStrategy[Name] = TEXTS | st.just(DEFAULT)
GROUPS = st.sampled_from(["web", 'a "b"', "ops#1"])
TIMES = st.sampled_from(
    [
        "hours=mon-fri 22:00-06:00, sat; time_zone=Europe/Berlin",
        "from=2026-12-01T00:00:00Z",
        "from=2026-12-01T00:00:00Z; until=2026-12-24T00:00:00Z; hours=22:00-06:00",
    ]
)
CLIENTS = st.one_of(
    NAMES.map(Entity),
    NAMES.map(lambda name: Entity(client_id=name)),
    st.tuples(NAMES, NAMES).map(lambda names: Entity(*names)),
    GROUPS.map(lambda name: Entity(group=name)),
)
LIMITED = st.one_of(
    CLIENTS,
    st.tuples(CLIENTS, TIMES).map(lambda found: found[0]._replace(when=found[1])),
    (st.ip_addresses().map(str) | st.just(DEFAULT)).map(lambda name: canonical(Entity(ip=name))),
    NAMES.map(lambda name: Entity(topic=name)),
)
# Names that begin differently for each group, so that no client is in two.
MEMBERS = st.tuples(st.sampled_from("uc"), st.sampled_from("wao"), TEXTS, st.booleans()).map(
    lambda found: _member(*found)
)


def _member(kind: str, begin: str, text: str, prefix: bool) -> Entity:
    group = {"w": "web", "a": 'a "b"', "o": "ops#1"}[begin]
    name = begin + text.replace("*", "x") + ("*" if prefix else "")
    return Entity(name, group=group) if kind == "u" else Entity(client_id=name, group=group)


@st.composite
def limits_of(draw: st.DrawFn, entity: Entity) -> dict[str, float]:
    """Draw valid limits for an entity."""
    found: dict[str, float] = {}
    for key in draw(st.lists(st.sampled_from(keys_of(entity)), min_size=1, unique=True)):
        if key in FLAG_KEYS:
            found[key] = 1.0
        elif key in WHOLE_KEYS:
            found[key] = float(draw(st.integers(1, 2**31 - 1)))
        else:
            found[key] = draw(st.floats(1e-6, 1e6))
    for key, ceiling in CEILINGS.items():
        if key in found and ceiling in found:
            found[ceiling] = max(found[ceiling], found[key])
    return found


@st.composite
def definitions(draw: st.DrawFn) -> Definitions:
    """Draw definitions, valid together."""
    found = Definitions()
    for entity in draw(st.lists(LIMITED, max_size=6)):
        found.put(entity, draw(limits_of(entity)))
    for entity in draw(st.lists(MEMBERS, max_size=6)):
        found.put(entity, {MEMBER: 1.0})
    scope = draw(st.sampled_from(["", "broker", "cluster"]))
    if scope:
        capacity = Entity(capacity=scope)
        found.put(capacity, draw(limits_of(capacity)))
    # A budget for each member needs no table without members; what says nothing is no entity of a file.
    groups = {entity.group for entity in found.members()}
    for entity, values in list(found.entries()):
        if EACH in values and entity.group not in groups:
            found.put(entity, {key: value for key, value in values.items() if key != EACH})
    return found
