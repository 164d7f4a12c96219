"""Clients' rates by kind of quota, over the quotas' own windows, from the engine of one process."""

from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple, Protocol

from quotas.definitions.definitions import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from quotas.throttles.quota_view import QuotaView

__all__ = ["KEYS", "NO_RATES", "ClientRates", "Rates", "Views"]


class Rates(NamedTuple):
    """One client's rates at all brokers together: in bytes/s, percent of broker time, and partitions/s."""

    produce: float = 0.0
    fetch: float = 0.0
    request: float = 0.0
    mutation: float = 0.0


KEYS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)  # of `Rates`
NO_RATES: Final = Rates()
_FIELDS: Final = {"Produce": 0, "Fetch": 1, "Request": 2, "ControllerMutation": 3}


class Views(Protocol):
    """The part of the engine that is used here."""

    def views(self, now_ms: int) -> Iterator[QuotaView]:
        """Yield a view for each client and direction."""

    def request_views(self, now_ms: int) -> Iterator[QuotaView]:
        """Yield a view for each client whose request time is measured."""

    def mutation_views(self, now_ms: int) -> Iterator[QuotaView]:
        """Yield a view for each client with partition mutations."""


class ClientRates:
    """The rates of all clients of an engine."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, str], list[float]] = {}

    def look(self, quotas: Views, now_ms: int) -> Iterator[None]:
        """Read the rates of all clients; iterate over the result in portions."""
        for view in chain(quotas.views(now_ms), quotas.request_views(now_ms), quotas.mutation_views(now_ms)):
            if view.byte_rate:
                found = self._rates.setdefault((view.user, view.client_id), list(NO_RATES))
                found[_FIELDS[view.type]] += view.byte_rate
            yield

    def of(self, user: str, client_id: str) -> Rates:
        """Return the rates of one client."""
        found = self._rates.get((user, client_id))
        return NO_RATES if found is None else Rates(*found)
