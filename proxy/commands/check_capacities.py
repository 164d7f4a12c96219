"""What `sluice check` says of groups and capacities: what was promised, what is left, and who can never get it.

Promised is the sum of the rates of entries with a name: a user, a client id, a user's client id, or a group with one
budget. A default entity, and a group whose members have a budget each, promise it to any number of clients, so their
rates are in no sum. Nor is that of replication in the sum of a capacity of all brokers, since each broker has it. Rates
are those that hold now.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from commandline.amounts import count
from quotas.definitions.alterations import text_of
from quotas.definitions.amounts import write_bytes
from quotas.definitions.classes import Capacity
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity, entity_of
from quotas.definitions.kinds import (
    CEILINGS,
    CLIENT_KEYS,
    EACH,
    MEMBER,
    PRODUCER_BYTE_RATE,
    TERM_KEYS,
    capacity_key,
)
from quotas.definitions.toml_groups import Group, groups_of

_SHOWN_MAX: Final = 20

Limits = Mapping[str, float]


def groups(definitions: Definitions) -> Iterator[str]:
    """Yield a line on each group, its members and its budget."""
    found = groups_of(
        (entity, values) for entity, values in definitions.entries() if entity.group is not None
    )
    for group in list(found.values())[:_SHOWN_MAX]:
        yield f"group {group.name!r}: {_members(group)}; {_budget(group)}"
    if len(found) > _SHOWN_MAX:
        yield f"and {count(len(found) - _SHOWN_MAX, 'group')} more"


def _members(group: Group) -> str:
    lists = (("client ids", group.client_ids), ("users", group.users))
    return "; ".join(f"{what} {_some(names)}" for what, names in lists if names) or "it has no members"


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN_MAX]))
    return shown if len(names) <= _SHOWN_MAX else f"{shown} and {len(names) - _SHOWN_MAX} more"


def _budget(group: Group) -> str:
    return "each has the budget for itself" if group.each else "one budget together"


def capacities(definitions: Definitions, scope: str) -> Iterator[str]:
    """Yield lines on each capacity: what was promised of it, and what is left.

    Args:
        scope: `quotas.scope`.
    """
    for key, capacity in definitions.capacities.items():
        promised = list(_promised(definitions, key, capacity))
        total = sum(promised)
        names = f"{write_bytes(int(total))} promised by {count(len(promised), 'limit')}"
        left = capacity.rate - total
        rest = (
            f"{write_bytes(int(left))} left" if left >= 0 else f"{write_bytes(int(-left))} more than there is"
        )
        if not _comparable(capacity, scope):
            rest = "each at every broker, while the capacity is that of all"
        yield f"capacity {_of(key, capacity)}: {write_bytes(int(capacity.rate))} bytes/s; {names}, {rest}"
        for entity, rate in _any_number(definitions, key):
            yield f"  and {write_bytes(int(rate))} to each client of {text_of(entity)}, however many there are"
        if capacity.cluster and (rate := _of_replication(definitions, key)):
            yield f"  and {write_bytes(int(rate))} to the replication of each broker"


def capacities_document(definitions: Definitions, scope: str) -> Iterator[dict[str, object]]:
    """Yield an object for each capacity: its quota key and scope, and rate, promised and left in bytes/s.

    `left` is null where rates are of each broker and the capacity of all.

    Args:
        scope: `quotas.scope`.
    """
    for key, capacity in definitions.capacities.items():
        total = sum(_promised(definitions, key, capacity))
        yield {
            "key": key,
            "scope": "cluster" if capacity.cluster else "broker",
            "rate": capacity.rate,
            "promised": total,
            "left": capacity.rate - total if _comparable(capacity, scope) else None,
        }


def capacity_warnings(definitions: Definitions, scope: str) -> Iterator[str]:
    """Yield a warning for each promise that cannot be kept, and for terms and capacities without effect.

    Args:
        scope: `quotas.scope`.
    """
    if not definitions.capacities:
        found = next((one for one in definitions.term_keys() if one[1] in TERM_KEYS), None)
        if found is not None:
            entity, key = found
            yield f"{key} of {text_of(entity)} has no effect: no [[capacity]] is stated"
    for key, capacity in definitions.capacities.items():
        yield from _too_much(definitions, key, capacity)
        yield from _ceilings_alone(definitions, key)
        total = sum(_promised(definitions, key, capacity))
        if _comparable(capacity, scope) and total > capacity.rate:
            yield (
                f"capacity {_of(key, capacity)}: {write_bytes(int(total))} bytes/s are promised, and there are "
                f"{write_bytes(int(capacity.rate))}: when all want theirs, each gets {capacity.rate / total:.0%} of it"
            )
    yield from _empty_groups(definitions)


def _too_much(definitions: Definitions, key: str, capacity: Capacity) -> Iterator[str]:
    """Yield a warning for each rate and ceiling, also of a certain time, that is above the capacity."""
    for entity, values in definitions.entries():
        if entity.capacity is not None or entity.topic is not None:
            continue
        for name in (name for one in _classes(key) for name in (one, CEILINGS[one])):
            value = values.get(name, 0.0)
            if value > capacity.rate:
                yield (
                    f"{name} of {text_of(entity)}: {write_bytes(int(value))} can never be had: capacity "
                    f"{_of(key, capacity)} is {write_bytes(int(capacity.rate))} bytes/s"
                )


def _ceilings_alone(definitions: Definitions, key: str) -> Iterator[str]:
    """Yield a warning for each ceiling without a rate of any number of clients, which are one class without it."""
    for text in definitions.codes_in_force():
        entity, values = entity_of(text), definitions.in_force(text)
        if CEILINGS[key] in values and key not in values and (DEFAULT in entity or EACH in values):
            yield (
                f"{CEILINGS[key]} of {text_of(entity)} has no effect without {key}: clients that are promised "
                "nothing are one class together"
            )


def _empty_groups(definitions: Definitions) -> Iterator[str]:
    members = {entity.group for entity in definitions.members()}
    limited = {
        entity.group
        for entity, values in definitions.entries()
        if entity.group is not None and MEMBER not in values and values.keys() & {*CLIENT_KEYS, *TERM_KEYS}
    }
    for group in sorted(limited - members, key=str):
        yield f"quota of group {group!r} has no effect: no [[group]] has this name, or it has no members"


def _promised(definitions: Definitions, key: str, capacity: Capacity) -> Iterator[float]:
    """Yield the rate that each entity with a name is promised now, and that of a broker's replication."""
    yield from (rate for _, rate, once in _rates(definitions, key) if once)
    rate = _of_replication(definitions, key)
    if rate and not capacity.cluster:
        yield rate


def _of_replication(definitions: Definitions, key: str) -> float:
    """Return the rate that the replication of each broker is promised; 0 if it does not share this capacity."""
    return sum(terms.rate for one, terms in definitions.replication.items() if capacity_key(one) == key)


def _any_number(definitions: Definitions, key: str) -> Iterator[tuple[Entity, float]]:
    """Yield the entities that promise a rate to any number of clients."""
    return ((entity, rate) for entity, rate, once in _rates(definitions, key) if not once)


def _classes(key: str) -> Iterator[str]:
    """Yield the quota keys whose classes share the capacity of this one."""
    return (one for one in CEILINGS if capacity_key(one) == key)


def _rates(definitions: Definitions, key: str) -> Iterator[tuple[Entity, float, bool]]:
    """Yield each entity with a rate of the capacity's classes, the rate, and whether it is promised once."""
    for one in _classes(key):
        yield from _rates_of(definitions, one)


def _rates_of(definitions: Definitions, key: str) -> Iterator[tuple[Entity, float, bool]]:
    """Yield each entity with a rate of one quota key, the rate, and whether it is promised once."""
    static = {
        Entity(client_id=DEFAULT): default for _, one, default, _ in definitions.static.sides() if one == key
    }
    for _, one, _, override in definitions.static.sides():
        if one == key:
            static |= {Entity(client_id=name): rate for name, rate in override.items()}
    for text in definitions.codes_in_force():
        entity, values = entity_of(text), definitions.in_force(text)
        if entity.capacity is None and entity.topic is None and key in values:
            static.pop(entity, None)
            yield entity, values[key], DEFAULT not in entity and EACH not in values
    for entity, rate in static.items():
        if rate is not None:
            yield entity, rate, entity.client_id is not DEFAULT


def _comparable(capacity: Capacity, scope: str) -> bool:
    """Whether rates and capacity are of the same: of each broker, or of all."""
    return capacity.cluster == (scope == "cluster")


def _of(key: str, capacity: Capacity) -> str:
    direction = "in" if key == PRODUCER_BYTE_RATE else "out"
    return f"{direction} of {'all brokers' if capacity.cluster else 'each broker'}"
