"""The response of one process to a query about clients and brokers, and the sum of several processes' responses."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from proxy.explain.neighbours import Neighbour, largest
from proxy.explain.own_time import OwnReport, merge_own
from proxy.explain.report import BrokerReport, ClientReport, merge, merge_brokers
from proxy.explain.rules import Rule


class Missing(NamedTuple):
    """A worker process whose figures are missing.

    Args:
        worker: its number, from 1.
        problem: why, such as "no response within 4 s".
    """

    worker: int
    problem: str


class Query(NamedTuple):
    """A query.

    Args:
        window: TEN_SECONDS, MINUTE or QUARTER.
        client: a user and client id; None for all clients, each with its worst connection only.
        brokers_only: whether only brokers' response times are wanted.
        address: for one client, the address whose connections are wanted; "" for all.
        client_id: of all clients those with this client id, without rates; None for all with their rates.
    """

    window: int
    client: tuple[str, str] | None = None
    brokers_only: bool = False
    address: str = ""
    client_id: str | None = None

    @property
    def of_all(self) -> bool:
        """Whether it takes a look at all clients and all of their rates."""
        return self.client is None and self.client_id is None and not self.brokers_only


class Seen(NamedTuple):
    """The response to a query.

    Args:
        neighbours: for one client, the clients of the same budget, by the rules that it waits or would wait for.
        own: Sluice's own CPU time and delays.
        backlogs: the bytes that the neighbours would have left to send, by rule.
        missing: the processes whose response is not part of it.
    """

    clients: tuple[ClientReport, ...]
    neighbours: Mapping[Rule, tuple[Neighbour, ...]]
    brokers: tuple[BrokerReport, ...]
    own: OwnReport | None = None
    backlogs: Mapping[Rule, float] = {}
    missing: tuple[Missing, ...] = ()


NOTHING: Final = Seen((), {}, ())


class SeenSum:
    """Adds up several processes' responses, which arrive in portions."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, str], list[ClientReport]] = {}
        self._neighbours: dict[Rule, list[Neighbour]] = {}
        self._brokers: list[BrokerReport] = []
        self._own: list[OwnReport | None] = []
        self._backlogs: dict[Rule, float] = {}

    def add(self, seen: Seen) -> None:
        """Add a portion."""
        for report in seen.clients:
            self._reports.setdefault((report.user, report.client_id), []).append(report)
        for rule, some in seen.neighbours.items():
            self._neighbours.setdefault(rule, []).extend(some)
        self._brokers += seen.brokers
        self._own.append(seen.own)
        for rule, backlog in seen.backlogs.items():
            self._backlogs[rule] = self._backlogs.get(rule, 0.0) + backlog

    def clients(self) -> Iterator[ClientReport]:
        """Yield each client once."""
        for reports in self._reports.values():
            merged = merge(reports)
            if merged is not None:
                yield merged

    def sum(self, clients: Iterable[ClientReport]) -> Seen:
        """Return everything, with these clients."""
        neighbours = {rule: largest(some) for rule, some in self._neighbours.items()}
        brokers = tuple(merge_brokers(self._brokers))
        return Seen(tuple(clients), neighbours, brokers, merge_own(self._own), self._backlogs)


def merge_seen(answers: Iterable[Seen]) -> Seen:
    """Add up the responses of several processes."""
    found = list(answers)
    if len(found) < 2:
        return found[0] if found else NOTHING
    whole = SeenSum()
    for one in found:
        whole.add(one)
    return whole.sum(whole.clients())
