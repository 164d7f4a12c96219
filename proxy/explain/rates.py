"""Clients' rates by kind of quota, over the quotas' own windows, from the engine of one process."""

from collections.abc import Container, Iterator
from typing import Final, NamedTuple, Protocol

from quotas.definitions.definitions import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from quotas.throttles.figures import QuotaView


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


class Views(Protocol):
    """The part of the engine that is used here."""

    def rates(
        self, now_ms: int, wanted: Container[tuple[str, str]]
    ) -> Iterator[tuple[str, str, float, float, float] | None]:
        """Yield each wanted client's user and id with its rates at a broker: Produce, Fetch, request time."""

    def mutation_views(self, now_ms: int) -> Iterator[QuotaView]:
        """Yield a view for each client with partition mutations."""


class ClientRates:
    """The rates of clients of an engine."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, str], list[float]] = {}

    def look(self, quotas: Views, wanted: Container[tuple[str, str]], now_ms: int) -> Iterator[None]:
        """Read the rates of these clients, by user and client id; iterate over the result in portions."""
        for one in quotas.rates(now_ms, wanted):
            if one is not None:
                user, client_id, produce, fetch, request = one
                found = self._rates.setdefault((user, client_id), list(NO_RATES))
                found[0] += produce
                found[1] += fetch
                found[2] += request
            yield
        for view in quotas.mutation_views(now_ms):
            self._rates.setdefault((view.user, view.client_id), list(NO_RATES))[3] += view.byte_rate
            yield

    def of(self, user: str, client_id: str) -> Rates:
        """Return the rates of one client."""
        found = self._rates.get((user, client_id))
        return NO_RATES if found is None else Rates(*found)
