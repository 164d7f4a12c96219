"""Quota engines with a few definitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import Entity
from quotas.definitions.kinds import BY_TYPE, TOPIC
from quotas.engine import Engine
from quotas.options import EngineOptions
from quotas.throttles.figures import QuotaView

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


@dataclass
class KnownClients:
    """What metrics read of an engine, with these clients and topics.

    Attributes:
        left: the partition mutations left for all clients together.
        asked_at: the times that were handed on.
    """

    clients: Sequence[QuotaView] = ()
    topics: Sequence[QuotaView] = ()
    enforcing: bool = True
    left: float | None = None
    asked_at: set[int] = field(default_factory=set)

    def views(self, now_ms: int, series: str) -> Sequence[QuotaView]:
        self.asked_at.add(now_ms)
        if series == TOPIC.series:
            return self.topics
        return [view for view in self.clients if BY_TYPE[view.type].series == series]

    def cluster_tokens(self, now_ms: int) -> float | None:
        self.asked_at.add(now_ms)
        return self.left
