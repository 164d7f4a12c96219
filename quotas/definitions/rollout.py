"""A staged rollout of lower quotas: in steps from today's use to the target. Pure.

Step s of n is the weighted geometric mean of both ends, with the weight s / n, so that every step reduces the limit by
the same factor; the last step is the target. A limit whose target is not below today's use is set at once.

No step raises a limit in force: if it is at or above the target, no step exceeds it; if it is below, the target is set
at once. The limit in force is the entity's own, or the one that applies to its clients without it.
"""

import math
from collections.abc import Mapping
from itertools import product

from quotas.definitions.definitions import WHOLE_KEYS
from quotas.definitions.diff import Quotas
from quotas.definitions.entities import DEFAULT, Entity, Name

__all__ = ["rollout"]


def rollout(target: Quotas, today: Mapping[str, float], current: Quotas, step: int, steps: int) -> Quotas:
    """Return the quotas of one step.

    Args:
        target: entities and their limits after the last step.
        today: for each key the use of the busiest client, a limit that throttles no client.
        current: entities and their limits in force.
        step: 1 .. steps.

    >>> from quotas.definitions.entities import Entity
    >>> target = {Entity(client_id="a"): {"producer_byte_rate": 1e6}}
    >>> [list(rollout(target, {"producer_byte_rate": 16e6}, {}, step, 4).values())[0] for step in (1, 2, 4)]
    [{'producer_byte_rate': 8000000.0}, {'producer_byte_rate': 4000000.0}, {'producer_byte_rate': 1000000.0}]
    """
    assert 1 <= step <= steps, "a step is one of the steps"
    return {
        entity: {
            key: min(
                _between(key, value, today.get(key, value), step / steps),
                max(value, _set_now(entity, key, current)),
            )
            for key, value in values.items()
        }
        for entity, values in target.items()
    }


def _set_now(entity: Entity, key: str, current: Quotas) -> float:
    """The limit in force for this entity's clients, in Kafka's order of precedence; infinite without one."""
    for user, client_id in product(_from(entity.user), _from(entity.client_id)):
        found = current.get(entity._replace(user=user, client_id=client_id), {}).get(key)
        if found is not None:
            return found
    return math.inf


def _from(name: Name) -> tuple[Name, ...]:
    """A part of an entity and the parts that replace it in less specific entities."""
    if name is None:
        return (None,)
    return (DEFAULT, None) if name is DEFAULT else (name, DEFAULT, None)


def _between(key: str, target: float, today: float, share: float) -> float:
    if today <= target or share >= 1:
        return target
    found = today * (target / today) ** share
    return float(round(found)) if key in WHOLE_KEYS else found
