"""The alterations that make a server's quotas equal to those of a file. Pure.

An entity in the file gets exactly the file's limits; any other entity is left unchanged, or removed with `prune`. A
second run finds nothing to alter.
"""

from collections.abc import Mapping
from typing import NamedTuple

from quotas.definitions.alterations import Alteration, parts_of
from quotas.definitions.entities import Entity

__all__ = ["Difference", "Quotas", "alterations", "differences"]

Quotas = Mapping[Entity, Mapping[str, float]]


class Difference(NamedTuple):
    """One key of one entity: its current and its wanted value; None: no limit."""

    entity: Entity
    key: str
    old: float | None
    new: float | None


def differences(current: Quotas, wanted: Quotas, *, prune: bool) -> list[Difference]:
    """Compare two sets of quotas; returns changes in the order of `wanted`, then removals.

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
