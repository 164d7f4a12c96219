"""The rule that makes a client wait: a kind of quota, the entity whose limit applies, and its value."""

from collections.abc import Callable, Container, Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from proxy.channel import Muting, ReplicaThrottle
from proxy.explain.documents import Neighbour, largest
from quotas.definitions.alterations import text_of
from quotas.definitions.definitions import Definitions, match
from quotas.definitions.entities import DEFAULT, BucketKey, Entity
from quotas.definitions.kinds import (
    BY_KEY,
    CLIENT_KINDS,
    CONNECTION,
    FOLLOWER_RATE,
    LEADER_RATE,
    MUTATION,
    REPLICATION,
    TOPIC,
)
from quotas.engine import Engine
from quotas.throttles.connections import UserThrottle
from quotas.throttles.figures import QuotaView
from quotas.throttles.topic_quotas import TopicThrottle


class Rule(msgspec.Struct, frozen=True, array_like=True):
    """What a client was throttled for: a quota key, without its entity and value; `in_force` finds these.

    Args:
        kind: produce, fetch, request, mutation, topic, connection or replication.
        key: the quota key.
        name: the topic, the user whose connections are counted, or the id of the throttled broker; else "".
        limit: for replication, the limit at the time of the throttle, since no quota entry has it; else None.
    """

    kind: str
    key: str
    name: str = ""
    limit: float | None = None


class InForce(NamedTuple):
    """A rule with the entity and value in force for one client.

    Args:
        entity: None for replication, and for the limit of all clients' partition mutations, which is a setting.
        value: the limit, in the key's unit.
        setting: the setting in `[quotas]` that has the limit; "" if a quota entry has it.
    """

    rule: Rule
    entity: Entity | None
    value: float
    setting: str = ""


def rule_of(throttle: Muting | ReplicaThrottle) -> Rule:
    """Return the rule that made a connection wait.

    Args:
        throttle: why a client's channel was muted, or why replicas were left out of a follower's Fetch response.
    """
    if isinstance(throttle, ReplicaThrottle):
        key = LEADER_RATE if throttle.side == "leader" else FOLLOWER_RATE
        return Rule(REPLICATION.name, key, str(throttle.broker), throttle.limit)
    if isinstance(throttle, TopicThrottle):
        return Rule(TOPIC.name, throttle.key, throttle.topic)
    if isinstance(throttle, UserThrottle):
        return Rule(CONNECTION.name, CONNECTION.key, throttle.user)
    return Rule(BY_KEY[throttle.key].name, throttle.key)


def in_force(
    rule: Rule, definitions: Definitions, user: str, client_id: str, mutations_rate: float | None = None
) -> InForce | None:
    """Return the entity and value that a rule has for a client now; None if the limit is gone.

    Without a limit of its own, a client may wait for a capacity.

    Args:
        mutations_rate: `quotas.partition_mutations_rate`, the limit of all clients together.
    """
    if rule.kind == REPLICATION.name:
        return None if rule.limit is None else InForce(rule, None, rule.limit)
    if rule.kind == TOPIC.name:
        own = Entity(topic=rule.name)
        value = definitions.topic_limit(rule.key, rule.name)
        entity = own if definitions.names_topic(rule.key, rule.name) else Entity(topic=DEFAULT)
        return None if value is None else InForce(rule, entity, value)
    if rule.kind == CONNECTION.name:
        value = definitions.user_connection_rate(rule.name)
        entity = Entity(rule.name)
        if value is not None and rule.key not in definitions.values(entity):
            entity = Entity(DEFAULT)
        return None if value is None else InForce(rule, entity, value)
    found = match(definitions, rule.key, user, client_id)
    if found is not None and found.value is not None:
        return InForce(rule, found.entity, found.value, found.static)
    if rule.key == MUTATION.key and mutations_rate is not None:
        return InForce(rule, None, mutations_rate, "partition_mutations_rate")
    capacity = definitions.capacity(rule.key)
    if capacity is None:
        return None
    return InForce(rule, Entity(capacity="cluster" if capacity.cluster else "broker"), capacity.rate)


def coming(found: InForce, definitions: Definitions, now: datetime) -> tuple[str, float | None]:
    """Return when a limit changes by the times of its entries, in ISO 8601, and its value from then on.

    The first is "" where it does not change within a week; the second is None where there is no limit then.
    """
    following = None
    if found.entity is not None and not found.setting:
        following = definitions.coming(found.entity, found.rule.key, now)
    return ("", None) if following is None else (f"{following[0]:%Y-%m-%dT%H:%M:%SZ}", following[1])


def class_of(definitions: Definitions, key: str, user: str, client_id: str) -> BucketKey:
    """Return the bucket that a client counts against; of a capacity, its class."""
    limit, bucket = definitions.limit(key, user, client_id)
    return bucket if definitions.capacity(key) is None else definitions.class_of(key, limit, bucket)


def entity_text(found: InForce) -> str:
    """Return the entity of a rule as text for people."""
    if found.rule.kind == REPLICATION.name:
        return f"broker {found.rule.name} as a {found.rule.key.partition('.')[0]}"
    return "all clients together" if found.entity is None else text_of(found.entity)


# ----------------------------------------------------------------------------------------------------
# Clients' rates by kind of quota, over the quotas' own windows, from the engine of one process.


Rates = tuple[float, ...]
"""One client's rates at all brokers together, in the order of CLIENT_KINDS, each in the unit of its kind."""
NO_RATES: Final[Rates] = (0.0,) * len(CLIENT_KINDS)
_MUTATION: Final = CLIENT_KINDS.index(MUTATION)


class ClientRates:
    """The rates of clients, read from an engine with `look`."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, str], list[float]] = {}

    def look(self, quotas: Engine, wanted: Container[tuple[str, str]], now_ms: int) -> Iterator[None]:
        """Read the rates of the wanted clients (user, client id); the work is done while the caller iterates."""
        for one in quotas.rates(now_ms, wanted):
            if one is not None:
                user, client_id, rates = one
                found = self._rates.setdefault((user, client_id), list(NO_RATES))
                for index, rate in enumerate(rates):
                    found[index] += rate
            yield
        for view in quotas.views(now_ms, MUTATION.series):  # counted once for all brokers
            self._rates.setdefault((view.user, view.client_id), list(NO_RATES))[_MUTATION] += view.byte_rate
            yield

    def of(self, user: str, client_id: str) -> Rates:
        """Return the rates of one client, at all brokers together; zeros if it was not found."""
        found = self._rates.get((user, client_id))
        return NO_RATES if found is None else tuple(found)


# ----------------------------------------------------------------------------------------------------
# The clients that share the budget of a rule, with their rates.


NEIGHBOURS_MAX: Final = 10


class Sharers:
    """Finds the clients that share a client's budget.

    For a topic these are the clients that have waited for it, with the rates of all their topics: rates are not
    measured by client and topic. For connection rates there are none.

    Args:
        rule: the rule that the client waits for.
        waits: returns whether a client has waited for it.
    """

    def __init__(
        self, quotas: Engine, rule: Rule, user: str, client_id: str, waits: Callable[[str, str], bool]
    ) -> None:
        self._quotas = quotas
        self._rule = rule
        self._waits = waits
        self._is_topic = rule.kind == TOPIC.name
        kind = None if rule.name and not self._is_topic else BY_KEY.get(rule.key)
        self._kind = kind if kind in CLIENT_KINDS else None
        limited = self._kind is not None and not self._is_topic
        self._bucket = class_of(quotas.definitions, rule.key, user, client_id) if limited else None
        self._rates: dict[tuple[str, str], float] = {}
        self._backlogs: dict[int, float] = {}  # by broker

    def look(self, now_ms: int) -> Iterator[None]:
        """Find the clients that share the budget; the work is done while the caller iterates, then call `found`."""
        kind = self._kind
        if kind is None:
            return
        for view in self._quotas.views(now_ms, kind.series):
            moves = view.type == kind.type and (view.byte_rate or view.tokens is not None)
            if moves and self._shares(view):
                name = view.user, view.client_id
                self._rates[name] = self._rates.get(name, 0.0) + view.byte_rate
                self._backlogs[view.broker] = view.backlog_bytes
            yield

    def found(self) -> tuple[Neighbour, ...]:
        """Return the found clients with the highest rates, at all brokers together; at most NEIGHBOURS_MAX."""
        return largest((Neighbour(*name, rate) for name, rate in self._rates.items()), NEIGHBOURS_MAX)

    def _shares(self, view: QuotaView) -> bool:
        if self._is_topic:
            return self._waits(view.user, view.client_id)
        return class_of(self._quotas.definitions, self._rule.key, view.user, view.client_id) == self._bucket

    @property
    def backlog_bytes(self) -> float:
        """The bytes that the found clients would have left to send if the quota were enforced, at all brokers."""
        return sum(self._backlogs.values())
