"""What one process answers to a question about its clients, and the sum of several processes."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from proxy.explain.neighbours import Neighbour, largest
from proxy.explain.own_time import OwnReport, merge_own
from proxy.explain.report import BrokerReport, ClientReport, merge, merge_brokers
from proxy.explain.rules import Rule

__all__ = ["NOTHING", "Query", "Seen", "merge_seen"]


class Query(NamedTuple):
    """A question.

    Args:
        window: TEN_SECONDS, MINUTE or QUARTER.
        client: a user and client id; None for all clients, each with its worst connection only.
        brokers_only: whether brokers' response times are asked for, and no client.
    """

    window: int
    client: tuple[str, str] | None = None
    brokers_only: bool = False


class Seen(NamedTuple):
    """An answer.

    Args:
        neighbours: of one client, by the rules that it waits for, or would wait for.
        own: what Sluice needs itself.
        backlogs: the bytes that they would have left to send, by rule.
    """

    clients: tuple[ClientReport, ...]
    neighbours: Mapping[Rule, tuple[Neighbour, ...]]
    brokers: tuple[BrokerReport, ...]
    own: OwnReport | None = None
    backlogs: Mapping[Rule, float] = {}


NOTHING: Final = Seen((), {}, ())


def merge_seen(answers: Iterable[Seen]) -> Seen:
    """Add up what several processes have seen."""
    found = list(answers)
    if len(found) < 2:
        return found[0] if found else NOTHING
    reports: dict[tuple[str, str], list[ClientReport]] = {}
    neighbours: dict[Rule, list[Neighbour]] = {}
    for one in found:
        for report in one.clients:
            reports.setdefault((report.user, report.client_id), []).append(report)
        for rule, some in one.neighbours.items():
            neighbours.setdefault(rule, []).extend(some)
    clients = (merge(some) for some in reports.values())
    return Seen(
        tuple(client for client in clients if client is not None),
        {rule: largest(some) for rule, some in neighbours.items()},
        tuple(merge_brokers(broker for one in found for broker in one.brokers)),
        merge_own(one.own for one in found),
        {rule: sum(one.backlogs.get(rule, 0.0) for one in found) for rule in neighbours},
    )
