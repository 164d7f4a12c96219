"""Which entity's limit applies to a client, and which others could have (Kafka's eight levels; kafka-quotas.md §1.3).

`Definitions.limit` is what traffic uses; this says why, for people.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from quotas.definitions.definitions import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, Definitions
from quotas.definitions.entities import DEFAULT, Entity

__all__ = ["Candidate", "candidates", "match"]

_STATIC: Final = {PRODUCER_BYTE_RATE: "producer", CONSUMER_BYTE_RATE: "consumer"}


class Candidate(NamedTuple):
    """One entity that could limit a client.

    Args:
        value: its limit; None if it has none for the key.
        static: the setting of `[quotas]` that has the limit, "" if an entry has it.
    """

    entity: Entity
    value: float | None
    static: str = ""


def candidates(definitions: Definitions, key: str, user: str, client_id: str) -> Iterator[Candidate]:
    """Yield all entities that could limit this client, the one with the highest precedence first.

    >>> entries = {Entity("ann"): {"producer_byte_rate": 5}, Entity(client_id=DEFAULT): {"producer_byte_rate": 9}}
    >>> found = candidates(Definitions(entries), "producer_byte_rate", "ann", "a")
    >>> [(one.entity.user, one.entity.client_id, one.value) for one in found if one.value]
    [('ann', None, 5.0), (None, <default>, 9.0)]
    """
    entities = [
        Entity(user, client_id),
        Entity(user, DEFAULT),
        Entity(user),
        Entity(DEFAULT, client_id),
        Entity(DEFAULT, DEFAULT),
        Entity(DEFAULT),
    ]
    if not user:
        entities.clear()
    own, default = Entity(client_id=client_id), Entity(client_id=DEFAULT)
    for entity in (*entities, own):
        yield Candidate(entity, definitions.values(entity).get(key))
    name = _STATIC.get(key)
    static = definitions.static
    if name is not None:
        overrides = static.producer_override if name == "producer" else static.consumer_override
        if client_id in overrides:
            yield Candidate(own, float(overrides[client_id]), f"{name}_override")
    yield Candidate(default, definitions.values(default).get(key))
    if name is not None:
        value = static.producer_default if name == "producer" else static.consumer_default
        if value is not None:
            yield Candidate(default, float(value), f"{name}_default")


def match(definitions: Definitions, key: str, user: str, client_id: str) -> Candidate | None:
    """Return the entity whose limit applies; None without any.

    >>> entries = {Entity(client_id=DEFAULT): {"producer_byte_rate": 9}}
    >>> match(Definitions(entries), "producer_byte_rate", "ann", "a").entity
    Entity(user=None, client_id=<default>, ip=None, topic=None)
    """
    return next((one for one in candidates(definitions, key, user, client_id) if one.value is not None), None)
