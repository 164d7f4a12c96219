"""The clients that share the budget of a rule, with their rates."""

from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from typing import Final, NamedTuple, Protocol

from proxy.explain.rules import Rule
from quotas.definitions.definitions import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Definitions,
)
from quotas.throttles.figures import QuotaView
from quotas.throttles.kinds import TOPIC

NEIGHBOURS_MAX: Final = 10
_TYPES: Final = {
    PRODUCER_BYTE_RATE: "Produce",
    CONSUMER_BYTE_RATE: "Fetch",
    REQUEST_PERCENTAGE: "Request",
    CONTROLLER_MUTATION_RATE: "ControllerMutation",
}


class Neighbour(NamedTuple):
    """A client with its rate: in bytes/s, percent, or partitions/s."""

    user: str
    client_id: str
    rate: float


class Quotas(Protocol):
    """The part of the engine that is used here."""

    @property
    def definitions(self) -> Definitions:
        """The definitions in force."""

    def views(self, now_ms: int) -> Iterator[QuotaView]:
        """Yield a view for each client and direction."""

    def request_views(self, now_ms: int) -> Iterator[QuotaView]:
        """Yield a view for each client whose request time is measured."""

    def mutation_views(self, now_ms: int) -> Iterator[QuotaView]:
        """Yield a view for each client with partition mutations."""


class Sharers:
    """Finds the clients that share a client's budget.

    For a topic these are the clients that have waited for it, with the rates of all their topics: rates are not
    measured by client and topic. For connection rates there are none.

    Args:
        rule: the rule that the client waits for.
        waits: returns whether a client has waited for it.
    """

    def __init__(
        self, quotas: Quotas, rule: Rule, user: str, client_id: str, waits: Callable[[str, str], bool]
    ) -> None:
        self._quotas = quotas
        self._rule = rule
        self._waits = waits
        self._is_topic = rule.kind == TOPIC
        self._type = "" if rule.name and not self._is_topic else _TYPES.get(rule.key, "")
        limited = self._type and not self._is_topic
        self._bucket = quotas.definitions.limit(rule.key, user, client_id)[1] if limited else None
        self._rates: dict[tuple[str, str], float] = {}
        self._backlogs: dict[int, float] = {}  # by broker

    def look(self, now_ms: int) -> Iterator[None]:
        """Look at all clients; iterate over the result in portions."""
        if not self._type:
            return
        views = {"Request": self._quotas.request_views, "ControllerMutation": self._quotas.mutation_views}
        for view in views.get(self._type, self._quotas.views)(now_ms):
            if view.type == self._type and (view.byte_rate or view.tokens is not None):
                self._take(view)
            yield

    def found(self) -> tuple[Neighbour, ...]:
        """Return the clients with the highest rates, at all brokers together."""
        return largest(Neighbour(*name, rate) for name, rate in self._rates.items())

    def _take(self, view: QuotaView) -> None:
        if self._shares(view):
            name = view.user, view.client_id
            self._rates[name] = self._rates.get(name, 0.0) + view.byte_rate
            self._backlogs[view.broker] = view.backlog_bytes

    def _shares(self, view: QuotaView) -> bool:
        if self._is_topic:
            return self._waits(view.user, view.client_id)
        return self._quotas.definitions.limit(self._rule.key, view.user, view.client_id)[1] == self._bucket

    @property
    def backlog_bytes(self) -> float:
        """The bytes that these clients would have left to send, at all brokers (`QuotaView.backlog_bytes`)."""
        return sum(self._backlogs.values())


def largest(neighbours: Iterable[Neighbour]) -> tuple[Neighbour, ...]:
    """Return the clients with the highest rates, after adding up the rates of each client."""
    rates: dict[tuple[str, str], float] = {}
    for user, client_id, rate in neighbours:
        rates[user, client_id] = rates.get((user, client_id), 0.0) + rate
    found = (Neighbour(*name, rate) for name, rate in rates.items())
    return tuple(nlargest(NEIGHBOURS_MAX, found, key=lambda one: one.rate))
