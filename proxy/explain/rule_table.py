"""The table of all limits: for each the number of its clients, the number that wait for it, and their rates."""

from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest
from itertools import chain
from typing import NamedTuple, Protocol

from proxy.explain.budgets import Budgets
from proxy.explain.documents import RULES_MAX, RuleRow
from proxy.explain.report import ClientReport
from proxy.explain.rules import InForce, Rule, entity_text
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity, entity_of
from quotas.definitions.kinds import BY_KEY, CONNECTION, REPLICATION, TOPIC


class _Place(NamedTuple):
    """The values by which limits are distinguished.

    Args:
        name: the broker of a replication throttle; else "".
    """

    kind: str
    key: str
    entity: Entity | None
    name: str


class _Origin(Protocol):
    @property
    def by(self) -> str: ...

    @property
    def at(self) -> str: ...


class _Rule:
    """One limit.

    Attributes:
        rate: the rate of all its clients together; None if it is not measured.
        highest: the highest rate of any of its budgets.
    """

    __slots__ = ("clients", "found", "highest", "rate", "waiting")

    def __init__(self, found: InForce, rate: float | None = None) -> None:
        self.found = found
        self.clients = self.waiting = 0
        self.rate = rate
        self.highest = rate


class RuleTable:
    """Makes the table: `add` all clients, then take `rows`.

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
                rule = self._rules[place] = _Rule(limit.found, 0.0)
            rule.clients += 1
            rule.rate = (rule.rate or 0.0) + limit.rate
            rule.highest = max(rule.highest or 0.0, self._budgets.used(limit))
            here.add(place)
        for place, found in self._waited(client).items():
            rule = self._rules.setdefault(place, _Rule(found))
            rule.waiting += 1
            rule.clients += place not in here
            here.add(place)

    def rows(self, origin: Callable[[InForce], _Origin], *, enforced: bool) -> Iterator[RuleRow]:
        """Yield the limits by the number of clients that wait, then of clients; those without clients come last."""
        used = nlargest(RULES_MAX, self._rules.values(), key=lambda one: (one.waiting, one.clients))
        for rule in chain(used, self._unused(RULES_MAX - len(used))):
            of = rule.found
            found = origin(of)
            yield RuleRow(
                kind=of.rule.kind,
                key=of.rule.key,
                entity=entity_text(of),
                value=of.value,
                setting=of.setting,
                set_by=found.by,
                set_at=found.at,
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
        """Yield limits without a client, in the order in which they were defined."""
        for code in self._definitions.codes():
            entity = entity_of(code)
            for key, value in self._definitions.limits(code).items():
                found = InForce(Rule(kind_of(key, entity), key), entity, value)
                if _place(found) in self._rules:
                    continue
                if room <= 0:
                    return
                room -= 1
                yield _Rule(found, None if found.rule.kind in (TOPIC.name, CONNECTION.name) else 0.0)


def _place(found: InForce) -> _Place:
    rule = found.rule
    return _Place(rule.kind, rule.key, found.entity, rule.name if rule.kind == REPLICATION.name else "")


def kind_of(key: str, entity: Entity) -> str:
    """Return the kind of a limit that an entity has.

    >>> kind_of("producer_byte_rate", Entity("ann")), kind_of("producer_byte_rate", Entity(topic="orders"))
    ('produce', 'topic')
    """
    if entity.topic is not None:
        return TOPIC.name
    return BY_KEY[key].name
