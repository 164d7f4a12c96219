"""Quotas brought down in steps: from what clients use today to what they shall have (a staged ramp-down). Pure.

Step s of n gives the geometric mean of both ends with the weight s / n, so that every step takes the same share off;
the last step is the target itself. A limit whose target is not below today's use is set at once.
"""

from collections.abc import Mapping

from quotas.definitions import WHOLE_KEYS
from quotas.plan import Quotas

__all__ = ["ramped"]


def ramped(target: Quotas, today: Mapping[str, float], step: int, steps: int) -> Quotas:
    """What to set at this step.

    Args:
        target: entities and their limits at the end.
        today: for each key, what the busiest client uses; nobody is throttled by that.
        step: 1 .. steps.

    >>> from quotas.entities import Entity
    >>> target = {Entity(client_id="a"): {"producer_byte_rate": 1e6}}
    >>> [list(ramped(target, {"producer_byte_rate": 16e6}, step, 4).values())[0] for step in (1, 2, 4)]
    [{'producer_byte_rate': 8000000.0}, {'producer_byte_rate': 4000000.0}, {'producer_byte_rate': 1000000.0}]
    """
    assert 1 <= step <= steps, "a step is one of the steps"
    return {
        entity: {
            key: _between(key, value, today.get(key, value), step / steps) for key, value in values.items()
        }
        for entity, values in target.items()
    }


def _between(key: str, target: float, today: float, share: float) -> float:
    if today <= target or share >= 1:
        return target
    found = today * (target / today) ** share
    return float(round(found)) if key in WHOLE_KEYS else found
