"""`sluice quotas explain`: which entities could limit a client, which one does, and why (Kafka's precedence)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from quotas.definitions.alterations import text_of
from quotas.definitions.definitions import CLIENT_KEYS, KEYS, Definitions, candidates, keys_of
from quotas.definitions.entities import Entity
from quotas.definitions.toml_file import render_value

_KEYS: Final = tuple(key for key in KEYS if key in CLIENT_KEYS)


def document(quotas: Mapping[Entity, Mapping[str, float]], user: str, client_id: str) -> dict[str, Any]:
    """Return the entities of each quota key, the one with the highest precedence first."""
    known = {
        entity: {key: value for key, value in values.items() if key in keys_of(entity)}
        for entity, values in quotas.items()
    }
    definitions = Definitions(known)
    return {
        "user": user,
        "client_id": client_id,
        "keys": {key: list(_entities(definitions, key, user, client_id)) for key in _KEYS},
    }


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for people: all entities that have a limit, and whether one applies."""
    for key, entities in found["keys"].items():
        limits = [entity for entity in entities if entity["value"] is not None]
        if not limits:
            yield f"{key}: unlimited; none of {len(entities)} entities has a limit"
            continue
        yield f"{key}: {render_value(key, limits[0]['value'])}"
        for entity in entities:
            if entity["applies"]:
                why = "applies: the highest precedence of those that have a limit"
            elif entity["value"] is None:
                why = "has no limit"
            else:
                why = "has a lower precedence"
            value = "–" if entity["value"] is None else render_value(key, entity["value"])
            yield f"  {entity['precedence']}  {entity['entity']}: {value}  {why}"


def write(found: Mapping[str, Any]) -> str:
    """Return the document as JSON."""
    return json.dumps(found, indent=2)


def _entities(definitions: Definitions, key: str, user: str, client_id: str) -> Iterator[Mapping[str, Any]]:
    applies = True  # the first one that has a limit
    for precedence, found in enumerate(candidates(definitions, key, user, client_id), start=1):
        has = found.value is not None
        yield {
            "precedence": precedence,
            "entity": text_of(found.entity),
            "value": found.value,
            "applies": applies and has,
        }
        applies = applies and not has
