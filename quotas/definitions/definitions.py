"""The limits by quota entity, with Kafka's order of precedence (KIP-13, KIP-55; kafka-quotas.md §1.3).

Eight levels, the most specific first:

    1 user + client id       3 user      4 default user + client id          6 default user    7 client id
    2 user + default client              5 default user + default client                      8 default client

Two kinds of limits are not in Kafka: a topic's limits, which count all clients together (each topic without an entry
has a bucket of its own with the default topic's limits); and `connection_creation_rate` for a user or the default
user.

Each quota key is looked up separately: a user with only a consumer rate does not hide a producer rate of a lower level.
There are two deviations from Kafka. The empty client id has the default client's quota, in one bucket for all clients
without an id (as KIP-13 says; Kafka leaves them unlimited, KAFKA-13341). A client without any matching entity has a
bucket of its own, since it is counted although it has no limit. Static settings of KIP-13 (`producer_default`,
`producer_override`, ...) have lower precedence than dynamic entries of the same entity. Parsing is in
`toml_file`, measuring in `rate` and `schedule`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from quotas.definitions.classes import Capacity, Terms
from quotas.definitions.entities import DEFAULT, BucketKey, Entity, canonical, code, entity_of
from quotas.definitions.kinds import (
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP_KEYS,
    KEYS,
    LONG_MAX,
    PRODUCER_BYTE_RATE,
    TOPIC_KEYS,
    USER_KEYS,
    WHOLE_KEYS,
)
from quotas.errors import DefinitionError, hint

_DEFAULT_PAIR: Final = code(DEFAULT, DEFAULT)
_DEFAULT_USER: Final = code(DEFAULT, None)
_DEFAULT_ADDRESS: Final = code(None, None, DEFAULT)
_DEFAULT_CLIENT: Final = code(None, DEFAULT)
_DEFAULT_TOPIC: Final = code(None, None, topic=DEFAULT)
# Enough for any cluster's entities, small enough that a mistaken file cannot fill the memory.
CATCH_UP_LAG_DEFAULT: Final = 10_000
ENTITIES_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class StaticQuotas:
    """The static quotas of the configuration (KIP-13), in bytes/s: a default and overrides by client id.

    None as a default, or a missing override: no static limit.
    """

    producer_default: float | None = None
    producer_override: Mapping[str, float] = field(default_factory=dict)
    consumer_default: float | None = None
    consumer_override: Mapping[str, float] = field(default_factory=dict)

    def sides(self) -> tuple[tuple[str, str, float | None, Mapping[str, float]], ...]:
        """Return the settings of both sides, "producer" and "consumer".

        Each is a tuple of the side's name, its quota key, its default and its overrides by client id.
        """
        return (
            ("producer", PRODUCER_BYTE_RATE, self.producer_default, self.producer_override),
            ("consumer", CONSUMER_BYTE_RATE, self.consumer_default, self.consumer_override),
        )


def keys_of(entity: Entity) -> tuple[str, ...]:
    """Return the quota keys that are valid for this kind of entity.

    >>> keys_of(Entity(topic="orders"))
    ('producer_byte_rate', 'consumer_byte_rate')
    """
    if entity.topic is not None:
        return TOPIC_KEYS
    if entity.ip is not None:
        return IP_KEYS
    return USER_KEYS if entity.user is not None and entity.client_id is None else CLIENT_KEYS


def check_entity(entity: Entity, path: str) -> None:
    """Raise `DefinitionError` for an invalid entity, by Kafka's checks; `path` is its place, for the message."""
    present = [part for part, name in zip(Entity._fields, entity, strict=True) if name is not None]
    if not present:
        raise DefinitionError(path, "names no user, client_id, ip or topic")
    for part, name in (("ip", entity.ip), ("topic", entity.topic)):
        if name is not None and len(present) > 1:
            others = " or ".join(other for other in Entity._fields if other != part)
            raise DefinitionError(f"{path}.{part}", f"{name!r} cannot be combined with {others}")
    for part, name in zip(Entity._fields, entity, strict=True):
        if name == "":
            raise DefinitionError(f"{path}.{part}", "must not be empty")


def check_value(entity: Entity, key: str, value: float, path: str) -> None:
    """Raise `DefinitionError` for a key that is not valid for this entity, or an invalid value."""
    keys = keys_of(entity)
    if key in KEYS and key not in keys:
        what = " and ".join(
            part for part, name in zip(Entity._fields, entity, strict=True) if name is not None
        )
        raise DefinitionError(path, f"is no limit of {what}; its limits: {', '.join(sorted(keys))}")
    if key not in keys:
        raise DefinitionError(path, f"unknown key, value {value!r}; {hint(key, sorted(keys))}")
    if not value > 0:  # also refuses NaN, which slips through Kafka's own comparisons
        raise DefinitionError(
            path, f"must be greater than 0, not {value!r}; without the key there is no limit"
        )
    if value > LONG_MAX:
        raise DefinitionError(path, f"{value!r} is too large")
    if key in WHOLE_KEYS and (value % 1 > 1e-6 or round(value) < 1):
        raise DefinitionError(path, f"{value!r} must be a whole number")


class Definitions:
    """All quotas in force, by entity, with the static settings; `limit` finds the quota of a user and client id.

    One thread, the owner's, may `put` one entity after another while other threads read: a reader sees an entity's
    limits either before or after the change. Traffic uses a new limit only after `Engine.update` was called.

    Attributes:
        changed: called in the owner's thread with the code of each entity whose limits were set; None: not called.
    """

    def __init__(
        self, entries: Mapping[Entity, Mapping[str, float]] | None = None, static: StaticQuotas | None = None
    ) -> None:
        """Validate and copy the arguments.

        Raises:
            DefinitionError: an invalid entity or value.
        """
        self._digest: Digest | None = None
        self.static = static or StaticQuotas()
        self.capacities: dict[str, Capacity] = {}
        self.changed: Callable[[str], object] | None = None
        self._codes: dict[str, None] = {}  # in the order of definition
        self._users: dict[str, int] = {}  # how many entities name each
        self._topics: dict[str, int] = dict.fromkeys(TOPIC_KEYS, 0)  # topics that each key limits
        self._limited: tuple[str, ...] | None = None  # as long as no topic's entry has changed
        self._rates: dict[str, dict[str, float]] = {key: {} for key in KEYS}
        for entity, values in (entries or {}).items():
            self.put(entity, values, str(entity))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Definitions):
            return NotImplemented
        return self._rates == other._rates and self._codes == other._codes and self.static == other.static

    __hash__ = None  # type: ignore[assignment]  # compared by value, never a key

    @property
    def static(self) -> StaticQuotas:
        """The static quotas of the configuration (KIP-13); assigning replaces all of them."""
        return self._static

    @static.setter
    def static(self, static: StaticQuotas) -> None:
        self._defaults, self._overrides = _check_static(static)
        self._static = static
        self._digest_static()

    @property
    def digest(self) -> str:
        """A hash of all quotas, by which members of a fleet find out whether theirs differ.

        "" unless `keep_digest` was called. Any thread may read it.
        """
        return "" if self._digest is None else str(self._digest)

    def keep_digest(self) -> None:
        """Compute `digest`, and keep it up to date from now on; this call takes some µs for each entity."""
        if self._digest is None:
            self._digest = Digest()
            for text in self._codes:
                self._digest.replace(text, {}, self.limits(text))
            self._digest_static()

    def __len__(self) -> int:
        return len(self._codes)

    def __contains__(self, entity: Entity) -> bool:
        return code(*canonical(entity)) in self._codes

    def put(self, entity: Entity, values: Mapping[str, float], path: str = "") -> None:
        """Replace all limits of one entity; without limits it is removed.

        Args:
            values: the limits by quota key.
            path: the entity's place in a file, for error messages.

        Raises:
            DefinitionError: the entity or a value is invalid; nothing has changed.
        """
        check_entity(entity, path)
        for key, value in values.items():
            check_value(entity, key, value, f"{path}.{key}")
        text = code(*canonical(entity))
        if text not in self._codes and len(self._codes) >= ENTITIES_MAX:
            raise DefinitionError(path, f"more than {ENTITIES_MAX} entities")
        if entity.topic is not None:
            self._count_topic(text, values)
        if self._digest is not None:
            self._digest.replace(text, self.limits(text), values)
        for key, rates in self._rates.items():
            if key in values:
                rates[text] = float(values[key])
            else:
                rates.pop(text, None)
        known = text in self._codes
        if values and not known:
            self._codes[text] = None
            self._count_user(entity, 1)
        elif known and not values:
            del self._codes[text]
            self._count_user(entity, -1)
        if self.changed is not None:
            self.changed(text)

    def codes(self) -> list[str]:
        """Return the codes (`code`) of all entities as a copy; any thread may call it."""
        return list(self._codes)

    def limits(self, text: str) -> dict[str, float]:
        """Return the limits, by quota key, of the entity with this code; empty if it has none."""
        return {key: rates[text] for key, rates in self._rates.items() if text in rates}

    def values(self, entity: Entity) -> dict[str, float]:
        """Return the limits of one entity by quota key, without static settings; empty if it has none."""
        return self.limits(code(*canonical(entity)))

    def entries(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        """Yield each `[[quota]]` entry, in the order of definition; static settings are in `static`."""
        for text in self._codes:
            yield entity_of(text), self.limits(text)

    def drain(self) -> Iterator[None]:
        """Remove all entries, one at each step of the iterator, so that the caller can pause between steps.

        Freeing 100,000 entries at once would block the process.
        """
        assert self._digest is None, "what is in force is changed entity by entity"
        while self._codes:
            text, _ = self._codes.popitem()
            for rates in self._rates.values():
                rates.pop(text, None)
            yield
        while self._users:
            self._users.popitem()
            yield

    def limit(self, key: str, user: str, client_id: str) -> tuple[float | None, BucketKey]:
        """Return the limit for this user and client id (None: unlimited), and the bucket that they count against.

        The limit is in the unit of the quota key `key`; the entity with the highest precedence decides.

        >>> entries = {Entity(client_id=DEFAULT): {"producer_byte_rate": 2e6}, Entity("u"): {"producer_byte_rate": 5e6}}
        >>> Definitions(entries).limit("producer_byte_rate", "", "a")
        (2000000.0, BucketKey(user=None, client_id='a'))
        >>> Definitions(entries).limit("producer_byte_rate", "u", "a")
        (5000000.0, BucketKey(user='u', client_id=None))
        """
        rates = self._rates.get(key)
        if rates and user:
            for level, exclusive in (
                (code(user, client_id), True),
                (code(user, DEFAULT), True),
                (code(user, None), False),
                (code(DEFAULT, client_id), True),
                (_DEFAULT_PAIR, True),
                (_DEFAULT_USER, False),
            ):
                found = rates.get(level)
                if found is not None:
                    return found, BucketKey(user, client_id if exclusive else None)
        own = BucketKey(None, client_id)
        found = rates.get(code(None, client_id)) if rates else None
        if found is None:
            found = self._overrides.get((key, client_id))
        if found is None and rates:
            found = rates.get(_DEFAULT_CLIENT)
        return (self._defaults.get(key) if found is None else found), own

    def capacity(self, key: str) -> Capacity | None:
        """Return the capacity for this quota key, producer_byte_rate or consumer_byte_rate; None if none is stated."""
        return self.capacities.get(key)

    def terms(self, key: str, bucket: BucketKey) -> Terms:
        """Return the terms of the class whose requests count against this bucket.

        Without an entry the class has no promised rate, and may borrow the whole capacity.
        """
        limit, _ = self.limit(key, bucket.user or "", bucket.client_id or "")
        capacity = self.capacity(key)
        if limit is None:
            return Terms(0.0, 0.0 if capacity is None else capacity.rate)
        return Terms(limit, limit)

    def catch_up_lag(self, user: str, client_id: str) -> int:  # noqa: ARG002 - TODO key
        """Return how many records before the log's end this client may read without catching up."""
        return CATCH_UP_LAG_DEFAULT

    def connection_rate(self, ip: str) -> float | None:
        """Return the connections per second that an IP address (canonical, see `ip_name`) may create; None: unlimited.

        >>> key = "connection_creation_rate"
        >>> rates = {Entity(ip=DEFAULT): {key: 10}, Entity(ip="2001:DB8::0:1"): {key: 99}}
        >>> Definitions(rates).connection_rate("192.0.2.1"), Definitions(rates).connection_rate("2001:db8::1")
        (10.0, 99.0)
        """
        rates = self._rates[CONNECTION_CREATION_RATE]
        if not rates:
            return None
        found = rates.get(code(None, None, ip))
        return rates.get(_DEFAULT_ADDRESS) if found is None else found

    def user_connection_rate(self, user: str, *, exactly: bool = False) -> float | None:
        """Return the connections per second that a user may create; None: unlimited.

        Args:
            exactly: use only the user's own entry, not the default user's.

        >>> rates = Definitions({Entity(DEFAULT): {"connection_creation_rate": 10}})
        >>> rates.user_connection_rate("ann"), rates.user_connection_rate("ann", exactly=True)
        (10.0, None)
        """
        rates = self._rates[CONNECTION_CREATION_RATE]
        if not rates or not user:
            return None
        found = rates.get(code(user, None))
        return rates.get(_DEFAULT_USER) if found is None and not exactly else found

    def topic_limit(self, key: str, topic: str) -> float | None:
        """Return a topic's limit in bytes/s for all clients together; None: unlimited.

        >>> entries = {Entity(topic=DEFAULT): {"producer_byte_rate": 9}, Entity(topic="a"): {"producer_byte_rate": 5}}
        >>> definitions = Definitions(entries)
        >>> [definitions.topic_limit("producer_byte_rate", topic) for topic in "ab"]
        [5.0, 9.0]
        """
        rates = self._rates[key]
        found = rates.get(code(None, None, topic=topic))
        return rates.get(_DEFAULT_TOPIC) if found is None else found

    def limits_topics(self, key: str) -> bool:
        """Whether any topic, or the default topic, has a limit for this quota key."""
        return self._topics[key] > 0

    @property
    def limited_topics(self) -> tuple[str, ...]:
        """The names of all topics with an entry of their own, without the default topic.

        >>> Definitions({Entity(topic=name): {"producer_byte_rate": 9} for name in (DEFAULT, "a", "b")}).limited_topics
        ('a', 'b')
        """
        if self._limited is None:
            found = (entity_of(text).topic for text in self._codes) if any(self._topics.values()) else ()
            self._limited = tuple(name for name in found if isinstance(name, str))
        return self._limited

    def names_topic(self, key: str, topic: str) -> bool:
        """Whether this topic has an entry of its own for the quota key, so that the default topic's does not apply."""
        return code(None, None, topic=topic) in self._rates[key]

    def has(self, key: str) -> bool:
        """Whether any entity has an entry for this quota key; static settings do not count."""
        return bool(self._rates.get(key))

    def names(self, key: str, user: str, client_id: str) -> bool:
        """Whether an entry or a static override for the quota key names this client id.

        The entry may be for the client id alone, with this user, or with the default user.
        """
        if (key, client_id) in self._overrides:
            return True
        rates = self._rates.get(key)
        if not rates:
            return False
        return any(code(of, client_id) in rates for of in (user, DEFAULT, None))

    def names_user(self, user: str) -> bool:
        """Whether this user has an entry, with or without a client id."""
        return user in self._users

    def _digest_static(self) -> None:
        if self._digest is not None:
            defaults = [(key, None, rate) for key, rate in self._defaults.items()]
            overrides = [(key, name, rate) for (key, name), rate in self._overrides.items()]
            self._digest.set_static([*defaults, *overrides])

    def _count_topic(self, text: str, values: Mapping[str, float]) -> None:
        self._limited = None
        for key in TOPIC_KEYS:
            self._topics[key] += (key in values) - (text in self._rates[key])

    def _count_user(self, entity: Entity, change: int) -> None:
        if isinstance(entity.user, str):
            count = self._users.get(entity.user, 0) + change
            if count:
                self._users[entity.user] = count
            else:
                del self._users[entity.user]


def _check_static(static: StaticQuotas) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    """Return KIP-13's settings as defaults by key, and overrides by key and client id."""
    defaults: dict[str, float] = {}
    overrides: dict[tuple[str, str], float] = {}
    for side, key, default, override in static.sides():
        if default is not None:
            check_value(Entity(client_id=DEFAULT), key, default, f"{side}_default")
            defaults[key] = float(default)
        for client_id, value in override.items():
            check_entity(Entity(client_id=client_id), f"{side}_override")
            check_value(Entity(client_id=client_id), key, value, f"{side}_override.{client_id}")
            overrides[key, client_id] = float(value)
    return defaults, overrides


# ----------------------------------------------------------------------------------------------------
# Which entity's limit applies to a client, and which others could have. `Definitions.limit` is what traffic uses; this
# says why, for people.


class Candidate(NamedTuple):
    """One entity whose quota could apply to a client, by Kafka's order of precedence.

    Args:
        value: the entity's limit for the quota key; None if it has none.
        static: the name of the static setting in `[quotas]` that has the limit; "" if an entry has it.
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
    static = [side for side in definitions.static.sides() if side[1] == key]
    for name, _, _, overrides in static:
        if client_id in overrides:
            yield Candidate(own, float(overrides[client_id]), f"{name}_override")
    yield Candidate(default, definitions.values(default).get(key))
    for name, _, value, _ in static:
        if value is not None:
            yield Candidate(default, float(value), f"{name}_default")


def match(definitions: Definitions, key: str, user: str, client_id: str) -> Candidate | None:
    """Return the entity whose limit applies to this client; None if no entity has one.

    >>> entries = {Entity(client_id=DEFAULT): {"producer_byte_rate": 9}}
    >>> match(Definitions(entries), "producer_byte_rate", "ann", "a").entity
    Entity(user=None, client_id=<default>, ip=None, topic=None)
    """
    return next((one for one in candidates(definitions, key, user, client_id) if one.value is not None), None)


# ----------------------------------------------------------------------------------------------------
# A digest of quotas, which is equal where quotas are: the members of a fleet compare it.
#
# It is the sum of a hash of each entity with its limits, so following a change costs two hashes, whatever the number of
# entities, and the order in which they were defined does not matter. It finds differences that happen, not those that
# are made on purpose.

_BYTES: Final = 8
_SPACE: Final = 1 << (8 * _BYTES)


class Digest:
    """A hash of a set of quotas, updated with each change; `str` gives its hexadecimal digits.

    >>> one, other = Digest(), Digest()
    >>> one.replace("-=:a", {}, {"producer_byte_rate": 5.0})
    >>> one.replace("-=:b", {}, {"producer_byte_rate": 6.0})
    >>> other.replace("-=:b", {}, {"producer_byte_rate": 6.0})
    >>> str(one) == str(other)
    False
    >>> one.replace("-=:a", {"producer_byte_rate": 5.0}, {})
    >>> str(one) == str(other)
    True
    """

    def __init__(self) -> None:
        self._entries = 0
        self._static = 0

    def __str__(self) -> str:
        return f"{(self._entries + self._static) % _SPACE:0{2 * _BYTES}x}"

    def replace(self, code: str, before: Mapping[str, float], after: Mapping[str, float]) -> None:
        """Replace the limits of the entity with this code in the digest; no limits: the entity does not exist."""
        self._entries = (self._entries - _hash(code, before) + _hash(code, after)) % _SPACE

    def set_static(self, rates: Iterable[tuple[str, str | None, float]]) -> None:
        """Replace all static settings in the digest.

        Args:
            rates: quota key, client id (None for the default), and limit of each setting.
        """
        self._static = (
            sum(_hash(f"static {client_id!r}", {key: rate}) for key, client_id, rate in rates) % _SPACE
        )


def _hash(code: str, limits: Mapping[str, float]) -> int:
    if not limits:
        return 0
    text = "\0".join((code, *(f"{key}={float(limits[key])!r}" for key in sorted(limits))))
    # Names are any strings that a client may send.
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest())
