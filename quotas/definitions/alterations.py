"""AlterClientQuotas: validates alterations and returns a result for each entity and the changed limits (KIP-546;
kafka-quotas.md §6.1).

Behavior: Kafka's checks, in Kafka's order, with Kafka's messages. Each entity succeeds or fails separately. Removing a
missing limit or setting an equal one succeeds without a change; an entity without limits is removed. Each entity has
one result, however often the request names it.

Differences from Kafka, where Kafka's result would mislead or the quotas file could not hold it: a repeated entity is
not applied at all (Kafka applies its first alteration and reports an error); an entity part that is given twice is
refused (Kafka uses the last); NaN and infinity are refused for every key (both pass Kafka's comparisons for fractional
keys); an ip must be an address (Kafka also resolves host names, once); the name "<default>" is refused, since it is
how the file spells the default entity (KAFKA-18808). Beyond Kafka: the entity type "topic" with byte rates, never
combined with other types, and connection_creation_rate of a user or the default user; the entity types "group" (with
"user" or "client-id": a member), "capacity" and "when"; ceilings, weights and exemptions. Kafka's tools never name
these, and an alteration leaves what it does not name as it is. This module applies nothing.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from quotas.definitions.definitions import (
    CAPACITY_SCOPES,
    ENTITIES_MAX,
    Definitions,
    check_ceilings,
    check_entity,
    check_members,
    check_value,
    keys_of,
)
from quotas.definitions.entities import DEFAULT, Default, Entity, Name, canonical, ip_name
from quotas.definitions.kinds import INT_KEYS, INT_MAX, KAFKA_KEYS, KEYS, LONG_MAX, MEMBER, WHOLE_KEYS
from quotas.errors import DefinitionError

Parts = Sequence[tuple[str, str | None]]
"""Entity type and name in Kafka's spelling; None is the default entity."""
Alteration = tuple[Parts, Sequence[tuple[str, float | None]]]
"""An entity, and keys with their new values; None removes the key."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TOPIC: Final = "topic"
GROUP: Final = "group"
CAPACITY: Final = "capacity"
WHEN: Final = "when"
PARTS: Final = (USER, CLIENT_ID, IP, TOPIC, GROUP, CAPACITY, WHEN)  # an Entity's fields as the API names them
# A filter component of this type, which matches any name, asks for Sluice's own entities and keys as well.
EVERYTHING: Final = "sluice"


class Outcome(NamedTuple):
    """The result of an AlterClientQuotas request.

    Args:
        results: for each entity of the request its error message; "" if it has succeeded.
        changes: all new limits of each changed entity; empty limits remove the entity.
        before: the limits before the request, at least those of the changed entities.
    """

    results: list[tuple[Parts, str]]
    changes: dict[Entity, Mapping[str, float]]
    before: Mapping[Entity, Mapping[str, float]]


class _RefusedError(Exception):
    """The alteration of one entity is invalid."""


def alter(definitions: Definitions, alterations: Iterable[Alteration]) -> Outcome:
    """Validate alterations and compute the new limits, without changing `definitions`; the caller applies them.

    >>> outcome = alter(Definitions(), [([("user", None)], [("producer_byte_rate", 2e6)]), ([], [])])
    >>> outcome.results
    [([('user', None)], ''), ([], 'Invalid empty client quota entity')]
    >>> outcome.changes
    {Entity(user=<default>): {'producer_byte_rate': 2000000.0}}
    """
    results: dict[Parts, tuple[Parts, str]] = {}
    changes: dict[Entity, Mapping[str, float]] = {}
    found: dict[Entity, Mapping[str, float]] = {}
    added = 0
    for parts, ops in alterations:
        # Not a frozenset: tuples of texts cost the collector nothing.
        identity = tuple(sorted(parts, key=repr))
        try:
            if identity in results:
                raise _RefusedError(f"Ignoring duplicate entity {_shown(parts)}")
            if len({key for key, _ in ops}) < len(ops):
                raise _RefusedError(f"Ignoring duplicate entity {_shown(parts)}: a quota key is given twice")
            entity = _entity(parts)
            before = definitions.values(entity)
            after = _altered(entity, before, ops)
            if after and not before:
                added += 1
                if len(definitions) + added > ENTITIES_MAX:
                    raise _RefusedError(f"There may be no more than {ENTITIES_MAX} entities")
        except _RefusedError as refused:
            results[identity] = (results[identity][0] if identity in results else parts, str(refused))
            _withdraw(changes, parts)
            continue
        results[identity] = (parts, "")
        if after != before:
            changes[entity], found[entity] = after, before
    problems = dict(_contradictions(definitions, changes))
    for entity in problems:
        del changes[entity]
    told = [
        (parts, text or (problems.get(entity_of_parts(parts) or Entity(), "") if problems else ""))
        for parts, text in results.values()
    ]
    return Outcome(told, changes, found)


def parts_of(entity: Entity) -> Parts:
    """Convert an entity to Kafka's types and names.

    >>> parts_of(Entity("ann", DEFAULT))
    [('user', 'ann'), ('client-id', None)]
    """
    return [
        (part, None if name is DEFAULT else str(name))
        for part, name in zip(PARTS, entity, strict=True)
        if name is not None
    ]


def text_of(entity: Entity) -> str:
    """Return an entity in Kafka's notation, for people.

    >>> text_of(Entity("ann", "a b")), text_of(Entity(client_id=DEFAULT))
    ("user 'ann', client-id 'a b'", 'client-id <default>')
    """
    return ", ".join(
        f"{kind} {'<default>' if name is None else repr(name)}" for kind, name in parts_of(entity)
    )


def entity_of_parts(parts: Parts) -> Entity | None:
    """Convert an entity from Kafka's types and names; None if it has an entity type that is unknown here."""
    names: dict[str, Name] = {kind: DEFAULT if name is None else name for kind, name in parts}
    if not names or not set(names) <= set(PARTS):
        return None
    user, client_id, ip, topic, *own = (names.get(kind) for kind in PARTS)
    group, capacity, when = (name.value if isinstance(name, Default) else name for name in own)
    return canonical(Entity(user, client_id, ip, topic, group, capacity, when))


def _contradictions(
    definitions: Definitions, changes: Mapping[Entity, Mapping[str, float]]
) -> Iterator[tuple[Entity, str]]:
    """Yield each change that contradicts other entries: a client in two groups, a second capacity; with the reason."""
    yield from _in_two_groups(definitions, changes)
    for entity, after in changes.items():
        for scope in CAPACITY_SCOPES:
            other = Entity(capacity=scope)
            if entity.capacity in (None, scope):
                continue
            both = after.keys() & changes.get(other, definitions.values(other)).keys()
            if both:
                yield entity, f"{min(both)} is the capacity of scope {scope!r} already; remove it there first"


def _in_two_groups(
    definitions: Definitions, changes: Mapping[Entity, Mapping[str, float]]
) -> Iterator[tuple[Entity, str]]:
    """Yield the new members that name clients of another group, each with the reason.

    Among more than _MEMBERS_TOLD_APART new members all are refused for one, since each look costs as much as all do.
    """
    members = [entity for entity, after in changes.items() if MEMBER in after]
    if not members:
        return
    known = [entity for entity in definitions.members() if entity not in changes]
    problem = _conflict_of([*known, *members])
    if problem and len(members) > _MEMBERS_TOLD_APART:
        yield from ((entity, problem) for entity in members)
        return
    for entity in members if problem else ():
        own = _conflict_of([*known, entity])
        if own:
            yield entity, own
        else:
            known.append(entity)


_MEMBERS_TOLD_APART: Final = 100


def _conflict_of(members: Iterable[Entity]) -> str:
    try:
        check_members(members)
    except DefinitionError as error:
        return error.problem
    return ""


def _withdraw(changes: dict[Entity, Mapping[str, float]], parts: Parts) -> None:
    """Remove the change of an entity whose result is an error."""
    try:
        changes.pop(_entity(parts), None)
    except _RefusedError:
        return  # it never was one


def _entity(parts: Parts) -> Entity:
    if not parts:
        raise _RefusedError("Invalid empty client quota entity")
    names = _names(parts)
    if IP in names and len(names) > 1:
        raise _RefusedError(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    if TOPIC in names and len(names) > 1:
        raise _RefusedError("Invalid quota entity combination, topic should not be combined with other types")
    ip = names.get(IP)
    if ip is not None and ip_name(ip) is None:
        raise _RefusedError(f"{ip} is not a valid IP or resolvable host.")
    entity = entity_of_parts(parts)
    assert entity is not None, "its types are known"
    try:
        check_entity(entity, "")
    except DefinitionError as error:
        raise _RefusedError(f"Invalid quota entity: {error.problem}") from None
    return entity


def _names(parts: Parts) -> dict[str, str | None]:
    names: dict[str, str | None] = {}
    for kind, name in parts:
        if kind in names:
            raise _RefusedError(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in PARTS:
            raise _RefusedError(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _RefusedError(f"Empty {kind} not supported")
        if name == DEFAULT.value:
            raise _RefusedError(
                f"{kind} {name} not supported: the quotas file spells the default entity so, which has no name"
            )
        names[kind] = name
    return names


def _altered(
    entity: Entity, before: Mapping[str, float], ops: Sequence[tuple[str, float | None]]
) -> Mapping[str, float]:
    known = keys_of(entity)
    after = dict(before)
    for key, value in ops:
        if value is None:
            after.pop(key, None)
            continue
        if key not in known:
            raise _RefusedError(f"Invalid configuration key {key}")
        after[key] = _value(key, value) if key in KEYS else value
        try:
            check_value(entity, key, after[key], key)
        except DefinitionError as error:
            raise _RefusedError(f"{key} {error.problem}") from None
    try:
        check_ceilings(after, "", before)
    except DefinitionError as error:
        raise _RefusedError(f"{error.path.removeprefix('.')} {error.problem}") from None
    return after


def _value(key: str, value: float) -> float:
    if not value > 0:  # so written, it refuses NaN too
        raise _RefusedError(f"Quota {key} must be greater than 0")
    if key in INT_KEYS and value > INT_MAX:
        raise _RefusedError(f"Proposed value for {key} is too large for an INT.")
    if key in WHOLE_KEYS:
        if value > LONG_MAX:
            raise _RefusedError(f"Proposed value for {key} is too large for a LONG.")
        whole = float(round(value))
        if math.fmod(value, 1.0) > 1e-6 or not whole:
            raise _RefusedError(f"{key} cannot be a fractional value.")
        return whole
    if value > LONG_MAX:  # infinity among them
        raise _RefusedError(f"Proposed value for {key} is too large.")
    return value


def _shown(parts: Parts) -> str:
    names = ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in parts)
    return f"ClientQuotaEntity(entries={{{names}}})"


# ----------------------------------------------------------------------------------------------------
# The alterations that make a server's quotas equal to those of a file. Pure.
#
# An entity in the file gets exactly the file's limits; any other entity is left unchanged, or removed with `prune`. A
# second run finds nothing to alter.

Quotas = Mapping[Entity, Mapping[str, float]]


class Difference(NamedTuple):
    """One quota key of one entity whose current limit (`old`) differs from the wanted one (`new`); None: no limit."""

    entity: Entity
    key: str
    old: float | None
    new: float | None


def differences(current: Quotas, wanted: Quotas, *, prune: bool) -> list[Difference]:
    """Compare two sets of quotas; returns the differing limits, in the order of `wanted`.

    Args:
        prune: whether entities that are only in `current` lose all limits; otherwise they are left as they are.

    >>> a = Entity(client_id="a")
    >>> differences({a: {"x": 1.0}}, {a: {"y": 2.0}}, prune=False)[0].new
    2.0
    """
    found: list[Difference] = []
    for entity, values in wanted.items():
        before = current.get(entity, {})
        found += [
            Difference(entity, key, before.get(key), value)
            for key, value in values.items()
            if before.get(key) != value
        ]
        found += [Difference(entity, key, value, None) for key, value in before.items() if key not in values]
    if prune:
        for entity, before in current.items():
            if entity not in wanted:
                found += [Difference(entity, key, value, None) for key, value in before.items()]
    return found


def alterations(found: list[Difference]) -> list[Alteration]:
    """Convert differences to alterations for AlterClientQuotas, one for each entity."""
    ops: dict[Entity, list[tuple[str, float | None]]] = {}
    for difference in found:
        ops.setdefault(difference.entity, []).append((difference.key, difference.new))
    return [(parts_of(entity), values) for entity, values in ops.items()]


# ----------------------------------------------------------------------------------------------------
# DescribeClientQuotas: validates a filter and returns the matching entities (KIP-546; kafka-quotas.md §6.2).
#
# An entity matches if it has the part of every component; for exact and default components the part must be equal;
# `strict` permits no further parts. A component without a name matches any name and the default entity, as in Kafka. A
# filter without components matches all entities, or none if strict. KIP-13's static settings are not described.

Component = tuple[str, int, str | None]
"""Entity type, match type and name, as Kafka writes them."""

EXACT: Final = 0
DEFAULT_NAME: Final = 1
ANY: Final = 2


class FilterError(ValueError):
    """The filter of a DescribeClientQuotas request is invalid.

    Attributes:
        unsupported: whether the reason is an unknown entity type, which Kafka reports as UNSUPPORTED_VERSION.
    """

    def __init__(self, problem: str, *, unsupported: bool = False) -> None:
        super().__init__(problem)
        self.unsupported = unsupported


class Filter(NamedTuple):
    """The validated filter of a DescribeClientQuotas request.

    Args:
        names: by Kafka's entity type, the name to match; DEFAULT for the default entity, None for any name.
        strict: whether entities with further entity types are left out.
        everything: whether Sluice's own entities and keys are wanted, which Kafka does not know.
    """

    names: Mapping[str, Name]  # by Kafka's entity type; None: any
    strict: bool
    everything: bool = False


def filter_of(components: Iterable[Component], strict: bool) -> Filter:
    """Validate the filter components of a DescribeClientQuotas request, with Kafka's checks.

    Raises:
        FilterError: a component is invalid; the text is Kafka's message.
    """
    names: dict[str, Name] = {}
    everything = False
    for kind, match_type, match in components:
        if kind == EVERYTHING:
            everything = True
            continue
        if not kind:
            raise FilterError("Invalid empty entity type.")
        if kind in names:
            raise FilterError(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in PARTS:
            raise FilterError(f"Unsupported entity type {kind}", unsupported=True)
        name = _name(match_type, match)
        names[kind] = ip_name(name) or name if kind == IP and isinstance(name, str) else name
    if IP in names and len(names) > 1:
        raise FilterError(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    if TOPIC in names and len(names) > 1:
        raise FilterError(
            "Invalid entity filter component combination. Topic filter component should not be used with others."
        )
    return Filter(names, strict, everything)


def matching(
    definitions: Definitions,
    wanted: Filter,
    entities: Iterable[tuple[Entity, Mapping[str, float]]] | None = None,
) -> Iterator[tuple[Entity, Mapping[str, float]]]:
    """Yield each entity that matches the filter, with its limits; those that Kafka knows, unless all are wanted.

    Args:
        entities: `definitions.entries()`, perhaps with pauses between entries; None: without pauses.
    """
    names = [wanted.names.get(kind) for kind in PARTS]
    asked = [kind in wanted.names for kind in PARTS]
    if wanted.strict and all(name is not None for name in wanted.names.values()):
        entity = (
            entity_of_parts(
                [(kind, None if name is DEFAULT else str(name)) for kind, name in wanted.names.items()]
            )
            or Entity()
        )
        found: Iterable[tuple[Entity, Mapping[str, float]]] = [
            (entity, definitions.values(entity) if wanted.names else {})
        ]
    else:
        found = definitions.entries() if entities is None else entities
        found = (
            (entity, values) for entity, values in found if _matches(entity, names, asked, wanted.strict)
        )
    known = found if wanted.everything else ((entity, _kafkas(entity, values)) for entity, values in found)
    return ((entity, values) for entity, values in known if values)


def _kafkas(entity: Entity, values: Mapping[str, float]) -> Mapping[str, float]:
    """Return the limits that Kafka's tools know; none of an entity that has a part of Sluice's own."""
    if entity[4:] != _NO_OWN_PARTS:
        return {}
    return (
        values
        if values.keys() <= _KAFKAS
        else {key: value for key, value in values.items() if key in _KAFKAS}
    )


_NO_OWN_PARTS: Final = (None, None, None)
_KAFKAS: Final = frozenset(KAFKA_KEYS)


def _matches(entity: Entity, names: Sequence[Name], asked: Sequence[bool], strict: bool) -> bool:
    for own, name, must in zip(entity, names, asked, strict=True):
        if must:
            if own is None or (name is not None and own != name):
                return False
        elif strict and own is not None:
            return False
    return True


def _name(match_type: int, match: str | None) -> Name:
    if match_type == EXACT:
        if match is None:
            raise FilterError("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        return match
    if match_type not in (DEFAULT_NAME, ANY):
        raise FilterError(f"Unknown match type {match_type}")
    if match is not None:
        word = "DEFAULT" if match_type == DEFAULT_NAME else "SPECIFIED"
        raise FilterError(f"Request specified MATCH_TYPE_{word}, but also specified a match string.")
    return DEFAULT if match_type == DEFAULT_NAME else None
