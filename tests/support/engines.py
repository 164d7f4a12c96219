"""Quota engines with a few definitions."""

from collections.abc import Mapping
from dataclasses import replace

from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import Entity
from quotas.engine import Engine
from quotas.options import EngineOptions

Entries = Mapping[Entity, Mapping[str, float]]


def engine_with(
    entries: Entries | None = None, *, static: StaticQuotas | None = None, **options: object
) -> Engine:
    """Make an engine with these limits of entities.

    Args:
        static: the quotas of the configuration, which hold where no entity has any.
        options: fields of its `EngineOptions`.
    """
    definitions = Definitions({entity: dict(limits) for entity, limits in (entries or {}).items()}, static)
    return Engine(replace(EngineOptions(), **options), definitions)  # type: ignore[arg-type]  # fields by name


def limits_of(key: str, rates: Mapping[Entity, float]) -> Entries:
    """Give each entity one limit, of this key."""
    return {entity: {key: rate} for entity, rate in rates.items()}
