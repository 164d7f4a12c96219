"""The limits that match clients: of each, with its rate and that of its budget; and as a table of all limits.

First all clients are added to the budgets. Then `Budgets.quotas` has the limits of one client, and `RuleTable` all of
them, with the number of their clients, of those that wait, and their rates.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest
from itertools import chain
from typing import Final, NamedTuple

from proxy.explain.documents import RULES_MAX, Quota, RuleRow
from proxy.explain.report import ClientReport
from proxy.explain.rules import InForce, Rule, coming, entity_text, in_force
from quotas.definitions.definitions import Definitions, match
from quotas.definitions.entities import BucketKey, Entity, entity_of
from quotas.definitions.kinds import (
    BY_KEY,
    CLIENT_KEYS,
    CLIENT_KINDS,
    CONNECTION,
    MUTATION,
    REPLICATION,
    TOPIC,
)

_TOPICS_MAX: Final = 3  # in one row
_WHOLE: Final = "partition_mutations_rate"
_MUTATION: Final = CLIENT_KINDS.index(MUTATION)


class Limit(NamedTuple):
    """A limit that matches a client, and the client's rate.

    Args:
        found: the rule, its entity and its value.
        bucket: the budget that the client counts against; None for the one of all clients.
        rate: the client's rate, in the limit's unit.
    """

    found: InForce
    bucket: BucketKey | None
    rate: float


class Budgets:
    """The rates of all budgets; a budget is one limit with the clients that share it.

    First `add` each client; then the other methods return the limits of any client.

    Args:
        mutations_rate: the limit of all clients' partition mutations together, in partitions/s; None without one.
    """

    def __init__(self, definitions: Definitions, mutations_rate: float | None) -> None:
        self._definitions = definitions
        self._mutations_rate = mutations_rate
        self._used: dict[tuple[str, BucketKey | None], float] = {}

    def add(self, client: ClientReport) -> None:
        """Add a client's rates to the budgets that it counts against."""
        used = self._used
        for key, rate in zip(CLIENT_KEYS, client.rates, strict=True):
            if rate:
                _, bucket = self._definitions.limit(key, client.user, client.client_id)
                used[key, bucket] = used.get((key, bucket), 0.0) + rate
        whole = MUTATION.key, None
        used[whole] = used.get(whole, 0.0) + client.rates[_MUTATION]

    def used(self, limit: Limit) -> float:
        """Return the rate of all clients that share the budget of a limit, in the limit's unit."""
        return self._used.get((limit.found.rule.key, limit.bucket), 0.0)

    def limits(self, client: ClientReport) -> Iterator[Limit]:
        """Yield a client's limits: at most one of each kind of quota, then that of all clients' partition mutations."""
        user, client_id = client.user, client.client_id
        for kind, rate in zip(CLIENT_KINDS, client.rates, strict=True):
            value, bucket = self._definitions.limit(kind.key, user, client_id)
            found = None if value is None else match(self._definitions, kind.key, user, client_id)
            if found is not None and found.value is not None:
                rule = Rule(kind.name, kind.key)
                yield Limit(InForce(rule, found.entity, found.value, found.static), bucket, rate)
        if self._mutations_rate is not None:
            rule = Rule(MUTATION.name, MUTATION.key)
            found_of_all = InForce(rule, None, self._mutations_rate, _WHOLE)
            yield Limit(found_of_all, None, client.rates[_MUTATION])

    def in_force(self, rule: Rule, client: ClientReport) -> InForce | None:
        """Return a rule with the entity and value that apply to a client now; None if there is no limit any more."""
        return in_force(rule, self._definitions, client.user, client.client_id, self._mutations_rate)

    def quotas(self, client: ClientReport) -> tuple[Quota, ...]:
        """Return the limits that match a client, each with its rate, and those of topics that it has waited for."""
        return tuple(self._quota(limit) for limit in chain(self.limits(client), self._topics(client)))

    def _topics(self, client: ClientReport) -> Iterator[Limit]:
        """Yield the limits of the topics that it has waited for longest, each with its rate of all topics together."""
        waits = (wait for wait in client.waits if wait[0].kind == TOPIC.name)
        for rule, _ in nlargest(_TOPICS_MAX, waits, key=lambda wait: wait[1]):
            found = self.in_force(rule, client)
            if found is not None:
                yield Limit(found, None, client.rates[CLIENT_KEYS.index(rule.key)])

    def _quota(self, limit: Limit) -> Quota:
        rule = limit.found.rule
        used = 0.0 if rule.kind == TOPIC.name else self.used(limit)
        return Quota(
            kind=rule.kind,
            key=rule.key,
            entity=entity_text(limit.found),
            value=limit.found.value,
            rate=round(limit.rate, 3),
            part=round(limit.rate / used, 4) if used else None,
            shared_by=_shared_by(limit),
        )


def _shared_by(limit: Limit) -> str:
    """Return whose clients share a limit's budget."""
    bucket = limit.bucket
    if bucket is None or bucket == BucketKey(None, None):
        return "all"
    if bucket.group is not None:
        return "group"
    if bucket.client_id is None:
        return "user"
    return "client_id" if bucket.user is None else "client"


class _Place(NamedTuple):
    """What identifies a limit in the table: two limits with equal values are one row.

    Args:
        name: the broker of a replication throttle; else "".
    """

    kind: str
    key: str
    entity: Entity | None
    name: str


@dataclass(slots=True)
class _Rule:
    """One row of the table while clients are counted.

    Attributes:
        rate: the rate of all its clients together; None if it is not measured.
        highest: the highest rate of any of its budgets.
    """

    found: InForce
    rate: float | None = None
    highest: float | None = None
    clients: int = 0
    waiting: int = 0


class RuleTable:
    """Makes the rows of `/v1/rules`: `add` each client, then take `rows`.

    Args:
        budgets: the budgets, to which all clients were added.
    """

    def __init__(self, definitions: Definitions, budgets: Budgets) -> None:
        self._definitions = definitions
        self._budgets = budgets
        self._rules: dict[_Place, _Rule] = {}

    def add(self, client: ClientReport) -> None:
        """Count a client at each limit that matches it."""
        here = set()
        for limit in self._budgets.limits(client):
            place = _place(limit.found)
            rule = self._rules.get(place)
            if rule is None:
                rule = self._rules[place] = _Rule(limit.found, 0.0, 0.0)
            rule.clients += 1
            rule.rate = (rule.rate or 0.0) + limit.rate
            rule.highest = max(rule.highest or 0.0, self._budgets.used(limit))
            here.add(place)
        for place, found in self._waited(client).items():
            rule = self._rules.setdefault(place, _Rule(found))
            rule.waiting += 1
            rule.clients += place not in here
            here.add(place)

    def rows(
        self, origin: Callable[[InForce], tuple[str, str]], now: datetime, *, enforced: bool
    ) -> Iterator[RuleRow]:
        """Yield the limits, those with the most waiting clients first, then those with the most clients.

        Args:
            origin: returns who has set a limit, and when (ISO 8601).
            now: the time at which the limits hold.
            enforced: whether quotas are enforced now, as each row says.
        """
        used = nlargest(RULES_MAX, self._rules.values(), key=lambda one: (one.waiting, one.clients))
        for rule in chain(used, self._unused(RULES_MAX - len(used))):
            of = rule.found
            set_by, set_at = origin(of)
            changes_at, then = coming(of, self._definitions, now)
            yield RuleRow(
                kind=of.rule.kind,
                key=of.rule.key,
                entity=entity_text(of),
                value=of.value,
                setting=of.setting,
                set_by=set_by,
                set_at=set_at,
                changes_at=changes_at,
                then=then,
                enforced=enforced,
                clients=rule.clients,
                waiting=rule.waiting,
                rate=None if rule.rate is None else round(rule.rate, 3),
                highest=None if rule.highest is None else round(rule.highest, 3),
            )

    def _waited(self, client: ClientReport) -> Mapping[_Place, InForce]:
        """Return the limits that a client has waited for, each once."""
        found = (self._budgets.in_force(rule, client) for rule, _ in client.waits)
        return {_place(limit): limit for limit in found if limit is not None}

    def _unused(self, room: int) -> Iterator[_Rule]:
        """Yield at most `room` limits without a client, in the order in which they were defined."""
        for code in self._definitions.codes():
            entity = entity_of(code)
            for key, value in self._definitions.limits(code).items():
                found = InForce(Rule(kind_of(key, entity), key), entity, value)
                if _place(found) in self._rules:
                    continue
                if room <= 0:
                    return
                room -= 1
                rate = None if found.rule.kind in (TOPIC.name, CONNECTION.name) else 0.0
                yield _Rule(found, rate, rate)


def _place(found: InForce) -> _Place:
    rule = found.rule
    return _Place(rule.kind, rule.key, found.entity, rule.name if rule.kind == REPLICATION.name else "")


def kind_of(key: str, entity: Entity) -> str:
    """Return the kind of a limit, by its quota key and its entity.

    >>> kind_of("producer_byte_rate", Entity("ann")), kind_of("producer_byte_rate", Entity(topic="orders"))
    ('produce', 'topic')
    """
    if entity.topic is not None:
        return TOPIC.name
    return BY_KEY[key].name
