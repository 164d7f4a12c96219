"""The limits by quota entity, with Kafka's order of precedence (KIP-13, KIP-55; kafka-quotas.md §1.3).

Eight levels, the most specific first:

    1 user + client id       3 user      4 default user + client id          6 default user    7 client id
    2 user + default client              5 default user + default client                      8 default client

A client in a group that has a limit for the quota key has another order: the entities of its own (1, 2, 3, 4, 7), the
group of its user, the group of its client id, and then the defaults (5, 6, 8). Static settings stand with 7 and 8.

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

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Final, NamedTuple

from quotas.definitions import times
from quotas.definitions.classes import UNPROMISED, Capacity, Terms
from quotas.definitions.entities import DEFAULT, BucketKey, Entity, canonical, code, entity_of
from quotas.definitions.groups import Conflict, Members, check_member, conflict
from quotas.definitions.kinds import (
    ALL_KEYS,
    CAPACITY_KEYS,
    CATCH_UP_LAG,
    CEILINGS,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    EACH,
    EXEMPT,
    FLAG_KEYS,
    GROUP_KEYS,
    IP_KEYS,
    LONG_MAX,
    MEMBER,
    OWN_KEYS,
    PRODUCER_BYTE_RATE,
    REPLICATION_KEYS,
    TERM_KEYS,
    TOPIC_KEYS,
    USER_KEYS,
    WEIGHT,
    WEIGHT_MAX,
    WHOLE_KEYS,
    capacity_key,
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
_BOUNDARIES_SPARE: Final = 100
_LOOKS: Final = 20


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


CAPACITY_SCOPES: Final = ("broker", "cluster")


def keys_of(entity: Entity) -> tuple[str, ...]:
    """Return the quota keys that are valid for this kind of entity.

    >>> keys_of(Entity(topic="orders")), keys_of(Entity(client_id="web-*", group="web"))
    (('producer_byte_rate', 'consumer_byte_rate'), ('member',))
    """
    if entity.topic is not None:
        return TOPIC_KEYS
    if entity.ip is not None:
        return IP_KEYS
    if entity.capacity is not None:
        return CAPACITY_KEYS
    if entity.group is not None:
        if entity.user is not None or entity.client_id is not None:
            return (MEMBER,)
        return GROUP_KEYS if entity.when is None else _TIMED_GROUP_KEYS
    return _USER_TERMS if entity.user is not None and entity.client_id is None else _CLIENT_TERMS


_USER_TERMS: Final = (*USER_KEYS, *OWN_KEYS)
_CLIENT_TERMS: Final = (*CLIENT_KEYS, *OWN_KEYS)
_TIMED_GROUP_KEYS: Final = tuple(key for key in GROUP_KEYS if key != EACH)


def check_entity(entity: Entity, path: str) -> None:
    """Raise `DefinitionError` for an invalid entity, by Kafka's checks; `path` is its place, for the message."""
    missing = entity[:-1].count(None)
    if missing == len(_NAMED):
        raise DefinitionError(path, "names no user, client_id, ip, topic or group")
    if missing < len(_NAMED) - 1:
        for part in ("ip", "topic", "capacity"):
            name = getattr(entity, part)
            if name is not None:
                others = " or ".join(other for other in _NAMED if other != part)
                raise DefinitionError(f"{path}.{part}", f"{name!r} cannot be combined with {others}")
    if "" in entity:
        part = Entity._fields[entity.index("")]
        raise DefinitionError(f"{path}.{part}", "must not be empty")
    if entity[4:] != _NO_OWN_PARTS:
        _check_own_parts(entity, path)


_NAMED: Final = Entity._fields[:-1]  # `when` names nothing by itself
_NO_OWN_PARTS: Final = (None, None, None)


def _check_own_parts(entity: Entity, path: str) -> None:
    """Raise `DefinitionError` for an invalid group, member, capacity, or time."""
    for part in ("group", "capacity", "when"):
        if getattr(entity, part) in (DEFAULT, DEFAULT.value):
            raise DefinitionError(f"{path}.{part}", f"there is no default {part}")
    if entity.capacity is not None and entity.capacity not in CAPACITY_SCOPES:
        raise DefinitionError(
            f"{path}.capacity", f"{entity.capacity!r} must be one of {', '.join(CAPACITY_SCOPES)}"
        )
    if entity.group is not None:
        _check_member_names(entity, path)
    if entity.when is None:
        return
    if entity.capacity is not None or keys_of(entity) == (MEMBER,):
        raise DefinitionError(path, "has no times: only limits have")
    if str(times.parse(entity.when, f"{path}.when")) != entity.when:
        raise DefinitionError(
            f"{path}.when", f"{entity.when!r} must be spelled {str(times.parse(entity.when))!r}"
        )


def _check_member_names(entity: Entity, path: str) -> None:
    if entity.user is not None and entity.client_id is not None:
        raise DefinitionError(path, "a member of a group is a user or a client_id, not both")
    for part, name in (("user", entity.user), ("client_id", entity.client_id)):
        if name is DEFAULT:
            raise DefinitionError(f"{path}.{part}", "the default entity is in no group")
        if name is not None:
            check_member(str(name), f"{path}.{part}")


def check_value(entity: Entity, key: str, value: float, path: str) -> None:
    """Raise `DefinitionError` for a key that is not valid for this entity, or an invalid value."""
    keys = keys_of(entity)
    if key not in keys and key in ALL_KEYS:
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
    if key == WEIGHT and value > WEIGHT_MAX:
        raise DefinitionError(path, f"must be at most {WEIGHT_MAX:.0f}, not {value!r}")
    if key in FLAG_KEYS and value != 1:
        raise DefinitionError(path, f"must be 1, not {value!r}; without the key it is not so")


def _checked(entity: Entity, values: Mapping[str, float], path: str) -> Entity:
    """Return the entity in its canonical form; raise `DefinitionError` if it or a value is invalid."""
    check_entity(entity, path)
    for key, value in values.items():
        check_value(entity, key, value, f"{path}.{key}")
    return canonical(entity)


def check_ceilings(
    values: Mapping[str, float], path: str, before: Mapping[str, float] = MappingProxyType({})
) -> None:
    """Raise `DefinitionError` if a ceiling among an entity's limits is below its rate, unless both were so `before`.

    `Definitions.put` does not check this, since the two may come one after the other, as records of a topic do; then
    the ceiling in force is the rate.
    """
    for key, ceiling in CEILINGS.items():
        if key not in values or ceiling not in values or values[ceiling] >= values[key]:
            continue
        if any(values[one] != before.get(one) for one in (key, ceiling)):
            raise DefinitionError(
                f"{path}.{ceiling}",
                f"{values[ceiling]:.0f} must be at least {key}, which is {values[key]:.0f}",
            )


def check_members(members: Iterable[Entity], path: str = "group") -> None:
    """Raise `DefinitionError` if two groups have members that name the same clients.

    Args:
        members: entities of a group and a user, or a client id.
    """
    users: list[tuple[str, str]] = []
    client_ids: list[tuple[str, str]] = []
    for entity in members:
        assert entity.group is not None, "it is a member"
        if entity.user is not None:
            users.append((str(entity.user), entity.group))
        else:
            client_ids.append((str(entity.client_id), entity.group))
    found: Conflict | None = conflict(users) or conflict(client_ids)
    if found is not None:
        raise DefinitionError(path, str(found))


_Level = tuple[str, BucketKey, float | None]
"""The code of an entity whose limit could apply to a client, what the client's requests count against if it decides,
and the limit if it is a static setting; None: it is an entity."""


class _Timed:
    """All entries with times of one entity.

    Attributes:
        stated: the limits of the entity's entry without times.
        entries: by the code of each entry with times, its times and limits.
        awaited: when `elapse` looks at them next; None: never.
    """

    __slots__ = ("awaited", "entries", "stated")

    def __init__(self, stated: dict[str, float]) -> None:
        self.stated = stated
        self.entries: dict[str, tuple[times.When, dict[str, float]]] = {}
        self.awaited: datetime | None = None

    def values(self, now: datetime | None) -> dict[str, float]:
        """Return the limits that hold at a time; None: those without times."""
        found = dict(self.stated)
        if now is not None:
            periods = ((when.period(now), code, values) for code, (when, values) in self.entries.items())
            held = [(period, code, values) for period, code, values in periods if period is not None]
            for _, _, values in sorted(held, key=_rank):
                found.update(values)
        return found


def _rank(held: tuple[times.Period, str, object]) -> tuple[float, float, str]:
    """Return the place of an entry among those that hold: what begins later, and ends earlier, decides."""
    (start, end), text, _ = held
    return (
        (start - times.NEVER).total_seconds(),
        -math.inf if end is None else -(end - times.NEVER).total_seconds(),
        text,
    )


class Definitions:
    """All quotas in force, by entity, with the static settings; `limit` finds the quota of a user and client id.

    One thread, the owner's, may `put` one entity after another while other threads read: a reader sees an entity's
    limits either before or after the change. Traffic uses a new limit only after `Engine.update` was called.

    Entries with times (`Entity.when`) are kept as they are stated. `elapse` puts those in force that hold, for the
    entity that they are about; before its first call none holds. `values`, `limits` and `entries` tell what is stated,
    and `in_force` and all that traffic asks for what holds.

    Attributes:
        capacities: by quota key, the capacity that is stated; where both scopes are, that of each broker.
        replication: the terms of the classes of replication, by quota key (`classes.replication_terms`); assigning
            replaces them.
        changed: called in the owner's thread with the code of each entity whose limits in force were set; None: not
            called.
        revision: a number that grows with every change in force.
    """

    def __init__(
        self, entries: Mapping[Entity, Mapping[str, float]] | None = None, static: StaticQuotas | None = None
    ) -> None:
        """Validate and copy the arguments.

        Raises:
            DefinitionError: an invalid entity or value.
        """
        self._digest: Digest | None = None
        self.revision = 0
        self.static = static or StaticQuotas()
        self.capacities: dict[str, Capacity] = {}
        self._replication: Mapping[str, Terms] = MappingProxyType({})
        self.changed: Callable[[str], object] | None = None
        self._codes: dict[str, None] = {}  # in the order of definition
        self._users: dict[str, int] = {}  # how many entities name each
        self._topics: dict[str, int] = dict.fromkeys(TOPIC_KEYS, 0)  # topics that each key limits
        self._limited: tuple[str, ...] | None = None  # as long as no topic's entry has changed
        self._rates: dict[str, dict[str, float]] = {key: {} for key in ALL_KEYS}  # those in force
        self._member_users = Members()
        self._member_client_ids = Members()
        self._timed: dict[str, _Timed] = {}  # by the entity's code without times
        self._boundaries: list[tuple[datetime, str]] = []  # a heap: when an entity with this code changes
        self._now: datetime | None = None
        for entity, values in (entries or {}).items():
            self.put(entity, values, str(entity))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Definitions):
            return NotImplemented
        return (
            self._codes == other._codes
            and self.static == other.static
            and all(self.limits(text) == other.limits(text) for text in self._codes)
        )

    __hash__ = None  # type: ignore[assignment]  # compared by value, never a key

    @property
    def static(self) -> StaticQuotas:
        """The static quotas of the configuration (KIP-13); assigning replaces all of them."""
        return self._static

    @static.setter
    def static(self, static: StaticQuotas) -> None:
        self._defaults, self._overrides = _check_static(static)
        self._static = static
        self.revision += 1
        self._digest_static()

    @property
    def replication(self) -> Mapping[str, Terms]:
        """The terms of the classes of replication, by quota key; none: replication shares no capacity."""
        return self._replication

    @replication.setter
    def replication(self, terms: Mapping[str, Terms]) -> None:
        if terms != self._replication:
            self._replication = terms
            self.revision += 1

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

    def put(
        self, entity: Entity, values: Mapping[str, float], path: str = "", *, checked: bool = False
    ) -> str:
        """Replace all limits of one entity; without limits it is removed.

        Returns: the code of the entity.

        Args:
            values: the limits by quota key.
            path: the entity's place in a file, for error messages.
            checked: whether the entity is `canonical` and valid, and so is each value.

        Raises:
            DefinitionError: the entity or a value is invalid; nothing has changed.
        """
        if not checked:
            entity = _checked(entity, values, path)
        text = code(*entity)
        known = text in self._codes
        if not known:
            if not values:
                return text
            if len(self._codes) >= ENTITIES_MAX:
                raise DefinitionError(path, f"more than {ENTITIES_MAX} entities")
        if self._digest is not None:
            self._digest.replace(text, self.limits(text), values)
        given = {key: float(value) for key, value in values.items()}
        if values and not known:
            self._codes[text] = None
            self._count(entity, 1)
        elif not values:
            del self._codes[text]
            self._count(entity, -1)
        if entity.when is not None:
            self._put_timed(entity, text, given)
        elif text in self._timed:
            self._timed[text].stated = given
            self._put_in_force(text, self._timed[text].values(self._now))
        else:
            self._put_in_force(text, given, new=not known)
        return text

    def _put_in_force(self, text: str, values: Mapping[str, float], *, new: bool = False) -> None:
        """Make these the limits of the entity with this code, for traffic."""
        self.revision += 1
        if text[0] == "t":
            self._count_topic(text, values)
        for key, rates in () if new else self._rates.items():
            if rates and key not in values:
                rates.pop(text, None)
        for key, value in values.items():
            self._rates[key][text] = value
        self.revision += 1
        if text[0] == "c":
            self._find_capacities()
        if self.changed is not None:
            self.changed(text)

    def _put_timed(self, entity: Entity, text: str, values: dict[str, float]) -> None:
        """Replace an entry with times; without limits it is removed."""
        assert entity.when is not None, "it has times"
        base = code(*entity._replace(when=None))
        timed = self._timed.get(base)
        if timed is None:
            timed = self._timed[base] = _Timed(self.in_force(base))
        if values:
            timed.entries[text] = (times.parse(entity.when), values)
            self._await(base, timed)
        else:
            del timed.entries[text]
        self._put_in_force(base, timed.values(self._now))
        if not timed.entries:
            del self._timed[base]

    def _await(self, base: str, timed: _Timed) -> None:
        """Have `elapse` look at an entity when the next of its entries begins or ceases to hold."""
        if self._now is None:
            return
        found = (when.next_change(self._now) for when, _ in timed.entries.values())
        at = min((one for one in found if one is not None), default=None)
        if at is not None and (timed.awaited is None or at < timed.awaited):
            timed.awaited = at
            heappush(self._boundaries, (at, base))
            if (
                len(self._boundaries) > 2 * len(self._timed) + _BOUNDARIES_SPARE
            ):  # of entries that went, mostly
                known = self._timed.items()
                self._boundaries = [(one.awaited, text) for text, one in known if one.awaited is not None]
                heapify(self._boundaries)

    @property
    def next_change(self) -> datetime | None:
        """When `elapse` has something to do; None if no entry has times that are still to come."""
        return self._boundaries[0][0] if self._boundaries else None

    def coming(self, entity: Entity, key: str, now: datetime) -> tuple[datetime, float | None] | None:
        """Return when the limit of an entity changes by the times of its entries, and its value from then on.

        None: it does not within a week, or not at one of the next _LOOKS moments at which any of its entries changes.
        A value of None: it has none from then on.
        """
        timed = self._timed.get(code(*canonical(entity)))
        if timed is None:
            return None
        whens = [when for when, _ in list(timed.entries.values())]
        value, at = timed.values(now).get(key), now
        for _ in range(_LOOKS):
            following = [change for when in whens if (change := when.next_change(at)) is not None]
            if not following:
                return None
            at = min(following)
            if at > now + times.WEEK:
                return None
            if timed.values(at).get(key) != value:
                return at, timed.values(at).get(key)
        return None

    def elapse(
        self,
        now: datetime,
        pace: Callable[[Iterable[str]], Iterable[str]] = iter,
        changed: Callable[[str, Mapping[str, float], Mapping[str, float]], object] | None = None,
    ) -> bool:
        """Put in force what holds now, of all entries with times; returns whether any limit in force has changed.

        Args:
            now: with a time zone; not earlier than in the call before, unless the clock was set back.
            pace: wraps an iterable in one that may pause between items, since thousands may change at one moment.
            changed: called with the code of each entity whose limits in force change, and with these before and after.
        """
        if self._now is None or now < self._now:
            self._boundaries = [(now, base) for base in self._timed]  # all are looked at
        self._now = now
        due: set[str] = set()
        while self._boundaries and self._boundaries[0][0] <= now:
            due.add(heappop(self._boundaries)[1])
        differs = False
        for base in pace(sorted(due)):
            timed = self._timed.get(base)
            if timed is None:
                continue
            before, values = self.in_force(base), timed.values(now)
            timed.awaited = None
            if values != before:
                self._put_in_force(base, values)
                differs = True
                if changed is not None:
                    changed(base, before, values)
            self._await(base, timed)
        return differs

    def term_keys(self) -> Iterator[tuple[Entity, str]]:
        """Yield each capacity, ceiling, weight and exemption that is stated: its entity and quota key."""
        for scope in CAPACITY_SCOPES:
            text = code(None, None, capacity=scope)
            yield from ((entity_of(text), key) for key in self.in_force(text))
        for key in TERM_KEYS:
            yield from ((entity_of(text), key) for text in self._rates[key] if text not in self._timed)
        for base, timed in self._timed.items():
            yield from ((entity_of(base), key) for key in timed.stated if key in TERM_KEYS)
            for text, (_, values) in timed.entries.items():
                yield from ((entity_of(text), key) for key in values if key in TERM_KEYS)

    def members(self) -> Iterator[Entity]:
        """Yield the members of all groups, as entities."""
        return map(entity_of, self._rates[MEMBER])

    def codes(self) -> list[str]:
        """Return the codes (`code`) of all entities as a copy; any thread may call it."""
        return list(self._codes)

    def codes_in_force(self) -> list[str]:
        """Return the codes of all entities that may have limits in force, as a copy: no entry with times is among them.

        Any thread may call it.
        """
        if not self._timed:
            return list(self._codes)
        codes = list(self._codes)
        known = set(codes)
        own = [text for text in codes if text[0] != "w"]
        return own + [text for text in list(self._timed) if text not in known]

    def limits(self, text: str) -> dict[str, float]:
        """Return the limits that are stated for the entity with this code, by quota key; empty if it has none."""
        if text not in self._codes:
            return {}
        if self._timed:
            timed = self._timed.get(text)
            if timed is not None:
                return dict(timed.stated)
            if text[0] == "w":
                found = self._timed.get(code(*entity_of(text)._replace(when=None)))
                return dict(found.entries[text][1]) if found is not None and text in found.entries else {}
        return self.in_force(text)

    def in_force(self, text: str) -> dict[str, float]:
        """Return the limits in force of the entity with this code, by quota key; empty if it has none."""
        return {
            key: value
            for key, rates in self._rates.items()
            if rates and (value := rates.get(text)) is not None
        }

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
        for base in self._timed:
            for rates in self._rates.values():
                rates.pop(base, None)
        self._timed.clear()
        self._boundaries.clear()
        self._member_users, self._member_client_ids = Members(), Members()
        self._topics, self._limited = dict.fromkeys(TOPIC_KEYS, 0), None
        self.capacities = {}
        while self._users:
            self._users.popitem()
            yield

    def take(self, other: "Definitions") -> None:
        """Move all entries of `other` to these definitions, which have none; `other` has none afterwards.

        Nothing is copied, so that a million entities are not twice in memory. No other thread may read meanwhile.
        Entries with times hold from the next `elapse` on.
        """
        assert not self._codes, "it has no entries"
        self._codes, other._codes = other._codes, self._codes
        self._users, other._users = other._users, self._users
        self._topics, other._topics = other._topics, self._topics
        self._rates, other._rates = other._rates, self._rates
        self._timed, other._timed = other._timed, self._timed
        self._member_users, other._member_users = other._member_users, self._member_users
        self._member_client_ids, other._member_client_ids = other._member_client_ids, self._member_client_ids
        self._boundaries, self._now = [], None
        self._limited = None
        self._find_capacities()
        self.revision += 1
        if self._digest is not None:
            for text in self._codes:
                self._digest.replace(text, {}, self.limits(text))
        if self.changed is not None:
            for text in self.codes_in_force():
                self.changed(text)

    def limit(
        self, key: str, user: str, client_id: str, *, lent: bool = True
    ) -> tuple[float | None, BucketKey]:
        """Return the limit for this user and client id (None: unlimited), and the bucket that they count against.

        The limit is in the unit of the quota key `key`; the entity with the highest precedence decides.

        Args:
            lent: whether capacities hold; if not, terms such as a ceiling without a rate decide nothing.

        >>> entries = {Entity(client_id=DEFAULT): {"producer_byte_rate": 2e6}, Entity("u"): {"producer_byte_rate": 5e6}}
        >>> Definitions(entries).limit("producer_byte_rate", "", "a")
        (2000000.0, BucketKey(user=None, client_id='a', group=None))
        >>> Definitions(entries).limit("producer_byte_rate", "u", "a")
        (5000000.0, BucketKey(user='u', client_id=None, group=None))
        """
        deciding = self._deciding(key) if lent else (self._rates[key],)
        rates = deciding[0]
        for text, bucket, static in self._levels(key, user, client_id, deciding):
            if static is not None:
                return static, bucket
            found = rates.get(text)
            if found is not None:
                return found, bucket
            if len(deciding) > 1 and any(text in values for values in deciding[1:]):
                return None, bucket
        if len(deciding) > 1 and self._rates[WEIGHT]:
            for text, bucket, _ in self._levels(key, user, client_id, (self._rates[WEIGHT],)):
                if text in self._rates[WEIGHT]:
                    return None, bucket
        return None, BucketKey(None, client_id)

    def _deciding(self, key: str) -> tuple[Mapping[str, float], ...]:
        """Return the values by entity of which an entity must have one to decide for a quota key; the first are limits.

        With a capacity, a ceiling without a rate decides that nothing is promised, and so does an exemption.
        """
        rates = self._rates[key]
        if key not in self.capacities:
            return (rates,)
        return (rates, self._rates[CEILINGS[key]], self._rates[EXEMPT])

    def _levels(
        self, key: str, user: str, client_id: str, deciding: tuple[Mapping[str, float], ...]
    ) -> Iterator[_Level]:
        """Yield all that could limit this client, the one with the highest precedence first."""
        both, every = BucketKey(user, client_id), BucketKey(user, None)
        client = BucketKey(None, client_id)
        own = code(None, client_id)
        override = self._overrides.get((key, client_id))
        groups: list[_Level] = []
        if self._rates[MEMBER]:
            levels = self._group_levels(user, client_id)
            groups = [one for one in levels if any(one[0] in values for values in deciding)]
        if user:
            yield (code(user, client_id), both, None)
            yield (code(user, DEFAULT), both, None)
            yield (code(user, None), every, None)
            yield (code(DEFAULT, client_id), both, None)
        if groups:
            yield (own, client, None)
            if override is not None:
                yield (own, client, override)
            yield from groups
        if user:
            yield (_DEFAULT_PAIR, both, None)
            yield (_DEFAULT_USER, every, None)
        if not groups:
            yield (own, client, None)
            if override is not None:
                yield (own, client, override)
        yield (_DEFAULT_CLIENT, client, None)
        default = self._defaults.get(key)
        if default is not None:
            yield (_DEFAULT_CLIENT, client, default)

    def decides(self, key: str, text: str) -> bool:
        """Whether the entity with this code decides for a quota key, if none with a higher precedence does."""
        return any(text in values for values in self._deciding(key))

    def precedence(self, key: str, user: str, client_id: str) -> Iterator[tuple[str, float | None]]:
        """Yield the code of each entity that could limit this client, the one with the highest precedence first.

        A static setting is the code of its client id or default, and its limit; an entity has None.
        """
        for text, _, static in self._levels(key, user, client_id, self._deciding(key)):
            yield text, static

    def _group_levels(self, user: str, client_id: str) -> Iterator[_Level]:
        """Yield the groups that this client is in, with what its requests would count against."""
        if user and self._member_users:
            group = self._member_users.group_of(user)
            if group is not None:
                yield self._group_level(group, BucketKey(user, None))
        if self._member_client_ids:
            group = self._member_client_ids.group_of(client_id)
            if group is not None:
                yield self._group_level(group, BucketKey(None, client_id))

    def _group_level(self, group: str, own: BucketKey) -> _Level:
        """Return the level of a group; `own` is the bucket of its member, where each has the budget for itself."""
        text = code(None, None, group=group)
        return (text, own if text in self._rates[EACH] else BucketKey(None, None, group), None)

    def capacity(self, key: str) -> Capacity | None:
        """Return the capacity that the classes of this quota key share; None if none is stated.

        What is read behind the log's end (catch_up_byte_rate) shares that of consumer_byte_rate.
        """
        if key in REPLICATION_KEYS and key not in self._replication:
            return None
        return self.capacities.get(capacity_key(key))

    def terms(self, key: str, bucket: BucketKey) -> Terms:
        """Return the terms of the class whose requests count against this bucket.

        Rate, ceiling and exemption are those of the entity that decides (`limit`); a weight may also be that of an
        entity with a higher precedence. Without a ceiling it borrows nothing, and where nothing is promised either, up
        to the whole capacity.
        """
        if key in self._replication:
            return self._replication[key]
        capacity = self.capacity(key)
        deciding = self._deciding(key)
        rates, ceilings, exempt, weights = (
            self._rates[key],
            self._rates[CEILINGS[key]],
            self._rates[EXEMPT],
            self._rates[WEIGHT],
        )
        weight: float | None = None
        unbounded = 0.0 if capacity is None else capacity.rate
        for text, static in self._levels_of(key, bucket):
            weight = weights.get(text) if weight is None else weight
            if static is None and not any(text in values for values in deciding):
                continue
            rate = rates.get(text, 0.0) if static is None else static
            ceiling = ceilings.get(text) or (rate or unbounded)
            return Terms(rate, max(rate, ceiling), weight or 1.0, text in exempt)
        return Terms(0.0, unbounded, weight or 1.0)

    def class_of(self, key: str, limit: float | None, bucket: BucketKey) -> BucketKey:
        """Return the class of a capacity for clients with this limit and bucket (`limit`).

        Clients that no entry promises anything are one class, whatever their names, unless an entry is about exactly
        their bucket or exempts them.
        """
        if limit is None and not self.names_bucket(key, bucket) and not self.terms(key, bucket).exempt:
            return UNPROMISED
        return bucket

    def _levels_of(self, key: str, bucket: BucketKey) -> Iterator[tuple[str, float | None]]:
        """Yield code and static limit of all that could decide for a bucket, the highest precedence first."""
        user, client_id, group = bucket
        if group is not None:
            yield code(None, None, group=group), None
        elif client_id is None:
            yield code(user, None), None
            yield from self._each_levels(self._member_users, user)
            yield _DEFAULT_USER, None
        elif user is not None:
            yield code(user, client_id), None
            yield code(user, DEFAULT), None
            yield code(DEFAULT, client_id), None
            yield _DEFAULT_PAIR, None
        else:
            own = code(None, client_id)
            yield own, None
            yield own, self._overrides.get((key, client_id), None)
            yield from self._each_levels(self._member_client_ids, client_id)
            yield _DEFAULT_CLIENT, None
            yield _DEFAULT_CLIENT, self._defaults.get(key)

    def _each_levels(self, members: Members, name: str | None) -> Iterator[tuple[str, float | None]]:
        """Yield the group of a name, if each of its members has the budget for itself."""
        group = members.group_of(name) if members and name else None
        text = code(None, None, group=group)
        if group is not None and text in self._rates[EACH]:
            yield text, None

    def _find_capacities(self) -> None:
        """Read the capacities again from the entities that state them."""
        found: dict[str, Capacity] = {}
        for scope in reversed(CAPACITY_SCOPES):
            for key, rate in self.in_force(code(None, None, capacity=scope)).items():
                found[key] = Capacity(rate, scope == "cluster")
        self.capacities = found

    def catch_up_lag(self, user: str, client_id: str) -> int:
        """Return how many records before the log's end this client may read without catching up.

        >>> entries = {Entity(client_id="a"): {"catch_up_byte_rate": 1e6, "catch_up_lag": 500}}
        >>> Definitions(entries).catch_up_lag("", "a"), Definitions(entries).catch_up_lag("", "b")
        (500, 10000)
        """
        found, _ = self.limit(CATCH_UP_LAG, user, client_id)
        return CATCH_UP_LAG_DEFAULT if found is None else int(found)

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
            self._limited = tuple(dict.fromkeys(name for name in found if isinstance(name, str)))
        return self._limited

    def names_topic(self, key: str, topic: str) -> bool:
        """Whether this topic has an entry of its own for the quota key, so that the default topic's does not apply."""
        return code(None, None, topic=topic) in self._rates[key]

    def has(self, key: str) -> bool:
        """Whether any entity has an entry for this quota key; static settings do not count."""
        return bool(self._rates.get(key))

    def names(self, key: str, user: str, client_id: str) -> bool:
        """Whether an entry or a static override for the quota key names this client id.

        The entry may be for the client id alone, with this user, or with the default user, and may make it the member
        of a group.
        """
        if (key, client_id) in self._overrides or client_id in self._member_client_ids:
            return True
        tables = [self._rates[one] for one in (key, *TERM_KEYS) if self._rates[one]]
        if not tables:
            return False
        levels = [code(of, client_id) for of in (user, DEFAULT, None)]
        return any(text in rates for rates in tables for text in levels)

    def beginnings(self, user: str, client_id: str) -> tuple[str, str]:
        """Return the prefixes by which a user and a client id are in a group, without their `*`; "" for none."""
        return self._member_users.beginning_of(user), self._member_client_ids.beginning_of(client_id)

    def names_bucket(self, key: str, bucket: BucketKey) -> bool:
        """Whether an entry is about exactly this bucket: its number is bounded, while names below a default have none.

        >>> entries = {Entity(client_id=DEFAULT): {"producer_byte_rate": 9}, Entity("ann"): {"producer_byte_rate": 5}}
        >>> found = Definitions(entries)
        >>> [found.names_bucket("producer_byte_rate", BucketKey(*one)) for one in (("ann", None), (None, "a"))]
        [True, False]
        """
        if bucket.group is not None or (bucket.user is None and (key, bucket.client_id) in self._overrides):
            return True
        text = code(bucket.user, bucket.client_id)
        deciding = self._deciding(key)
        return any(text in values for values in deciding) or (
            len(deciding) > 1 and text in self._rates[WEIGHT]
        )

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

    def _count(self, entity: Entity, change: int) -> None:
        """Note that an entity was added (1) or removed (-1)."""
        if entity.group is not None and (entity.user is not None or entity.client_id is not None):
            members = self._member_client_ids if entity.user is None else self._member_users
            name = str(entity.client_id if entity.user is None else entity.user)
            (members.add if change > 0 else members.remove)(name, entity.group)
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
        decides: whether it decides if no other one goes before it: it has a limit, or, with a capacity, a ceiling or an
            exemption, so that nothing is promised to the client.
    """

    entity: Entity
    value: float | None
    static: str = ""
    decides: bool = False


def candidates(definitions: Definitions, key: str, user: str, client_id: str) -> Iterator[Candidate]:
    """Yield all entities that could limit this client, the one with the highest precedence first.

    >>> entries = {Entity("ann"): {"producer_byte_rate": 5}, Entity(client_id=DEFAULT): {"producer_byte_rate": 9}}
    >>> found = candidates(Definitions(entries), "producer_byte_rate", "ann", "a")
    >>> [(one.entity.user, one.entity.client_id, one.value) for one in found if one.value]
    [('ann', None, 5.0), (None, <default>, 9.0)]
    """
    sides = [side for side in definitions.static.sides() if side[1] == key]
    for text, static in definitions.precedence(key, user, client_id):
        entity = entity_of(text)
        if static is None:
            value = definitions.in_force(text).get(key)
            yield Candidate(entity, value, decides=definitions.decides(key, text))
        else:
            word = "override" if entity.client_id is not DEFAULT else "default"
            yield Candidate(entity, static, f"{sides[0][0]}_{word}", decides=True)


def match(definitions: Definitions, key: str, user: str, client_id: str) -> Candidate | None:
    """Return the entity whose limit applies to this client; None if none does.

    >>> entries = {Entity(client_id=DEFAULT): {"producer_byte_rate": 9}}
    >>> match(Definitions(entries), "producer_byte_rate", "ann", "a").entity
    Entity(client_id=<default>)
    """
    found = next((one for one in candidates(definitions, key, user, client_id) if one.decides), None)
    return None if found is None or found.value is None else found


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
