"""The limits that match each client, with the client's rate and that of all clients of the same budget."""

from collections.abc import Iterator
from heapq import nlargest
from itertools import chain
from typing import Final, NamedTuple

from proxy.explain.documents import Quota
from proxy.explain.report import ClientReport
from proxy.explain.rules import InForce, Rule, entity_text, in_force
from quotas.definitions.definitions import Definitions, match
from quotas.definitions.entities import BucketKey
from quotas.definitions.kinds import CLIENT_KEYS, CLIENT_KINDS, MUTATION, TOPIC

_TOPICS_MAX: Final = 3  # in one row
_WHOLE: Final = "partition_mutations_rate"
_MUTATION: Final = CLIENT_KINDS.index(MUTATION)


class Limit(NamedTuple):
    """A limit that matches a client.

    Args:
        bucket: the budget that the client counts against; None for the one of all clients.
        rate: the client's rate, in the limit's unit.
    """

    found: InForce
    bucket: BucketKey | None
    rate: float


class Budgets:
    """The rates of all budgets. `add` each client first; the other methods then return the limits of any client.

    Args:
        mutations_rate: the limit of all clients' partition mutations together, in partitions/s.
    """

    def __init__(self, definitions: Definitions, mutations_rate: float | None) -> None:
        self._definitions = definitions
        self._mutations_rate = mutations_rate
        self._used: dict[tuple[str, BucketKey | None], float] = {}

    def add(self, client: ClientReport) -> None:
        """Add a client's rates to its budgets."""
        used = self._used
        for key, rate in zip(CLIENT_KEYS, client.rates, strict=True):
            if rate:
                _, bucket = self._definitions.limit(key, client.user, client.client_id)
                used[key, bucket] = used.get((key, bucket), 0.0) + rate
        whole = MUTATION.key, None
        used[whole] = used.get(whole, 0.0) + client.rates[_MUTATION]

    def used(self, limit: Limit) -> float:
        """Return the rate of all clients that share the budget of a limit."""
        return self._used.get((limit.found.rule.key, limit.bucket), 0.0)

    def limits(self, client: ClientReport) -> Iterator[Limit]:
        """Yield the limits that match a client, by kind."""
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
        """Return the entity and value that a rule has for a client now; None if the limit is gone."""
        return in_force(rule, self._definitions, client.user, client.client_id, self._mutations_rate)

    def quotas(self, client: ClientReport) -> tuple[Quota, ...]:
        """Return the limits that match a client, and those of topics that it has waited for."""
        return tuple(self._quota(limit) for limit in chain(self.limits(client), self._topics(client)))

    def _topics(self, client: ClientReport) -> Iterator[Limit]:
        """Yield the limits of topics that it has waited for longest, with the rate of all its topics."""
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
    if limit.bucket is None or limit.bucket == (None, None):
        return "all"
    user, client_id = limit.bucket
    if client_id is None:
        return "user"
    return "client_id" if user is None else "client"
