"""DescribeClientQuotas: validates a filter and returns the matching entities (KIP-546; kafka-quotas.md §6.2).

An entity matches if it has the part of every component; for exact and default components the part must be equal;
`strict` permits no further parts. A component without a name matches any name and the default entity, as in Kafka. A
filter without components matches all entities, or none if strict. KIP-13's static settings are not described.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from quotas.definitions.alterations import IP, PARTS, TOPIC
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity, Name, ip_name

__all__ = ["ANY", "DEFAULT_NAME", "EXACT", "Component", "Filter", "FilterError", "filter_of", "matching"]

Component = tuple[str, int, str | None]
"""Entity type, match type and name, as Kafka writes them."""

EXACT: Final = 0
DEFAULT_NAME: Final = 1
ANY: Final = 2


class FilterError(ValueError):
    """An invalid filter; `unsupported`: it names an unknown entity type."""

    def __init__(self, problem: str, *, unsupported: bool = False) -> None:
        super().__init__(problem)
        self.unsupported = unsupported


class Filter(NamedTuple):
    """A valid filter."""

    names: Mapping[str, Name]  # by Kafka's entity type; None: any
    strict: bool


def filter_of(components: Iterable[Component], strict: bool) -> Filter:
    """Validate a request's components.

    Raises:
        FilterError: with Kafka's message.
    """
    names: dict[str, Name] = {}
    for kind, match_type, match in components:
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
    return Filter(names, strict)


def matching(
    definitions: Definitions,
    wanted: Filter,
    entities: Iterable[tuple[Entity, Mapping[str, float]]] | None = None,
) -> Iterator[tuple[Entity, Mapping[str, float]]]:
    """Yield every matching entity with its limits.

    Args:
        entities: the definitions' entries, through a slower iterator if needed.
    """
    names = [wanted.names.get(kind) for kind in PARTS]
    asked = [kind in wanted.names for kind in PARTS]
    if wanted.strict and all(name is not None for name in wanted.names.values()):
        entity = Entity(*names)
        values = definitions.values(entity) if wanted.names else {}
        return iter([(entity, values)] if values else [])
    found = definitions.entries() if entities is None else entities
    return ((entity, values) for entity, values in found if _matches(entity, names, asked, wanted.strict))


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
