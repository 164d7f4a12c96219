"""The limits: immutable, by quota entity, with Kafka's order of precedence (KIP-13, KIP-55; kafka-quotas.md
§1.3).

Eight levels, the most specific first:

    1 user + client id       3 user      4 default user + client id          6 default user    7 client id
    2 user + default client              5 default user + default client                      8 default client

Each quota key is looked up by itself: a user with only a consumer rate does not hide a producer rate further
down. Two deviations, both for the clients Kafka forgets: the empty client id takes the default client's
quota, in one bucket shared by all clients without an id (KIP-13 asks for it; Kafka leaves them unlimited,
KAFKA-13341). And a client nothing matches has a bucket of its own, since it needs no limit but is still
counted. Static settings of KIP-13 (`producer_default`, `producer_override`, ...) lie below dynamic entries of
the same entity. This module parses nothing (`definitions_file`) and records nothing (`rate`, `schedule`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from quotas.entities import DEFAULT, BucketKey, Entity, Name
from quotas.errors import DefinitionError

QuotaKey = Literal[
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
]
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CLIENT_KEYS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
IP_KEYS: Final = frozenset({"connection_creation_rate"})
# Kafka's LONG and INT keys take no fractions (kafka-quotas.md §6.1); the other two are DOUBLE.
WHOLE_KEYS: Final = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
LONG_MAX: Final = 2**63 - 1
# Enough for any cluster's entities, small enough that a mistaken file cannot fill the memory.
ENTITIES_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class StaticQuotas:
    """KIP-13's own settings, per client id, in bytes/s; `None` and absent = unlimited."""

    producer_default: float | None = None
    producer_override: Mapping[str, float] = field(default_factory=dict)
    consumer_default: float | None = None
    consumer_override: Mapping[str, float] = field(default_factory=dict)


def check_entity(entity: Entity, path: str) -> None:
    """Raise `DefinitionError` for an entity that cannot be (Kafka's checks, kafka-quotas.md §6.1)."""
    if entity.user is None and entity.client_id is None and entity.ip is None:
        raise DefinitionError(path, "names no user, client_id or ip")
    if entity.ip is not None and (entity.user is not None or entity.client_id is not None):
        raise DefinitionError(f"{path}.ip", f"{entity.ip!r} cannot be combined with user or client_id")
    for part, name in zip(Entity._fields, entity, strict=True):
        if name == "":
            raise DefinitionError(f"{path}.{part}", "must not be empty")


def check_value(entity: Entity, key: str, value: float, path: str) -> None:
    """Raise `DefinitionError` for a key this entity does not have or a value the key cannot take."""
    keys = IP_KEYS if entity.ip is not None else CLIENT_KEYS
    if key not in keys:
        raise DefinitionError(path, f"unknown key, value {value!r}; known here: {', '.join(sorted(keys))}")
    if not value > 0:  # also refuses NaN, which slips through Kafka's own comparisons
        raise DefinitionError(path, f"must be greater than 0, not {value!r}")
    if value > LONG_MAX:
        raise DefinitionError(path, f"{value!r} is too large")
    if key in WHOLE_KEYS and value % 1 > 1e-6:
        raise DefinitionError(path, f"{value!r} must be a whole number")


class Definitions:
    """Every limit there is, read-only: `limit` is the one question asked of it."""

    __slots__ = ("_entries", "_rates", "_users", "static")

    def __init__(
        self,
        entries: Mapping[Entity, Mapping[str, float]] | None = None,
        static: StaticQuotas | None = None,
    ) -> None:
        """Check and copy; later changes of the arguments change nothing here.

        Raises:
            DefinitionError: an entity or a value that cannot be.
        """
        copied: dict[Entity, Mapping[str, float]] = {}
        rates: dict[str, dict[tuple[Name, Name], float]] = {}
        self.static = static or StaticQuotas()
        _fill_static(rates, self.static)
        for entity, values in (entries or {}).items():
            check_entity(entity, str(entity))
            for key, value in values.items():
                check_value(entity, key, value, f"{entity}.{key}")
                if entity.ip is None:
                    rates.setdefault(key, {})[(entity.user, entity.client_id)] = float(value)
            copied[entity] = MappingProxyType(dict(values))
        if len(copied) > ENTITIES_MAX:
            raise DefinitionError("", f"{len(copied)} entities are more than {ENTITIES_MAX}")
        self._entries = copied
        self._rates = rates
        self._users = frozenset(entity.user for entity in copied if isinstance(entity.user, str))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Definitions):
            return NotImplemented
        return self._entries == other._entries and self.static == other.static

    __hash__ = None  # type: ignore[assignment]  # compared by value, never a key

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        """Every `[[quota]]` entry, in the order it was defined; static settings are in `.static`."""
        return iter(self._entries.items())

    def limit(self, key: str, user: str, client_id: str) -> tuple[float | None, BucketKey]:
        """The limit in units/s (`None`: unlimited) and the bucket that this user and client id count against.

        >>> entries = {Entity(client_id=DEFAULT): {"producer_byte_rate": 2e6}, Entity("u"): {"producer_byte_rate": 5e6}}
        >>> Definitions(entries).limit("producer_byte_rate", "", "a")
        (2000000.0, BucketKey(user=None, client_id='a'))
        >>> Definitions(entries).limit("producer_byte_rate", "u", "a")
        (5000000.0, BucketKey(user='u', client_id=None))
        """
        rates = self._rates.get(key)
        own = BucketKey(None, client_id)
        if not rates:
            return None, own
        if user:
            pair = BucketKey(user, client_id)
            for entity, bucket in (
                ((user, client_id), pair),
                ((user, DEFAULT), pair),
                ((user, None), BucketKey(user, None)),
                ((DEFAULT, client_id), pair),
                ((DEFAULT, DEFAULT), pair),
                ((DEFAULT, None), BucketKey(user, None)),
            ):
                found = rates.get(entity)
                if found is not None:
                    return found, bucket
        found = rates.get((None, client_id))
        return (rates.get((None, DEFAULT)) if found is None else found), own

    def has(self, key: str) -> bool:
        """Whether anything at all is limited by this key."""
        return bool(self._rates.get(key))

    def names(self, key: str, user: str, client_id: str) -> bool:
        """Whether an entry names this client id itself, so that it is not one of the many."""
        rates = self._rates.get(key)
        if not rates:
            return False
        return (user, client_id) in rates or (DEFAULT, client_id) in rates or (None, client_id) in rates

    def names_user(self, user: str) -> bool:
        """Whether an entry names this user, with whatever client id."""
        return user in self._users


def _fill_static(rates: dict[str, dict[tuple[Name, Name], float]], static: StaticQuotas) -> None:
    """Put KIP-13's settings where dynamic entries will overwrite them."""
    for side, key, default, override in (
        ("producer", PRODUCER_BYTE_RATE, static.producer_default, static.producer_override),
        ("consumer", CONSUMER_BYTE_RATE, static.consumer_default, static.consumer_override),
    ):
        if default is not None:
            check_value(Entity(client_id=DEFAULT), key, default, f"{side}_default")
            rates.setdefault(key, {})[(None, DEFAULT)] = float(default)
        for client_id, value in override.items():
            check_entity(Entity(client_id=client_id), f"{side}_override")
            check_value(Entity(client_id=client_id), key, value, f"{side}_override.{client_id}")
            rates.setdefault(key, {})[(None, client_id)] = float(value)
