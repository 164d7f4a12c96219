"""Rows of several members, made one row for each client. Pure.

A client is shown by the member where it waits longest, as one member shows it by its worst connection. In a fleet a
limit is one budget for all members, so rates beside it are added up. Members that are none have a budget each: a rate
is then that of the member where it is highest.
"""

from collections.abc import Iterable, Mapping, Sequence

from proxy.explain.parts import IDLE
from proxy.explain.wants import ASSUMED, NO_DEMAND, Demand, merge_demands, wants
from proxy.v1.detail import CONNECTIONS_MAX, NEIGHBOURS_MAX, Connection, Detail, Neighbour, Wants
from proxy.v1.documents import Broker, Client, ClientList, Quota, RuleRow, waited


def one_budget(names: Sequence[str]) -> bool:
    """Whether members share their budgets.

    Args:
        names: theirs in their fleet, "" without one.
    """
    return len(names) < 2 or all(names)


def merge_clients(lists: Sequence[ClientList], *, shared: bool = True) -> ClientList:
    """Return all members' clients, each once, those that wait longest first.

    Args:
        shared: whether the members share their budgets.
    """
    found: dict[tuple[str, str], Client] = {}
    for one in lists:
        for client in one.clients:
            key = client.user, client.client_id
            other = found.get(key)
            found[key] = client if other is None else _sum(other, client, shared=shared)
    rows = tuple(sorted(found.values(), key=waiting_order, reverse=True))
    return ClientList(max([len(rows), *(one.total for one in lists)]), rows)


def waiting_order(client: Client) -> tuple[float, float]:
    """Sort key: how much of its time it waits for quotas, then how little it is idle."""
    return waited(client.times), -client.times[IDLE]


def merge_brokers(lists: Iterable[Sequence[Broker]]) -> tuple[Broker, ...]:
    """Return each broker once: the median weighted by responses, the p99 that is highest at a member."""
    found: dict[int, Broker] = {}
    for broker in (broker for brokers in lists for broker in brokers):
        other = found.get(broker.broker)
        if other is None:
            found[broker.broker] = broker
            continue
        timed = max(1, broker.timed + other.timed)
        median = (broker.median_ms * broker.timed + other.median_ms * other.timed) / timed
        found[broker.broker] = Broker(
            broker.broker, broker.timed + other.timed, median, max(broker.p99_ms, other.p99_ms)
        )
    return tuple(found[broker] for broker in sorted(found))


def merge_rules(lists: Iterable[Sequence[RuleRow]], *, shared: bool = True) -> tuple[RuleRow, ...]:
    """Return each rule once; numbers of clients are of the member that has most.

    Args:
        shared: whether the members share their budgets, and rates are added up.
    """
    together = sum if shared else max
    found: dict[tuple[str, str, str], RuleRow] = {}
    for rule in (rule for rules in lists for rule in rules):
        key = rule.kind, rule.key, rule.entity
        other = found.get(key)
        found[key] = (
            rule
            if other is None
            else other._replace(
                clients=max(rule.clients, other.clients),
                waiting=max(rule.waiting, other.waiting),
                rate=None
                if rule.rate is None and other.rate is None
                else together((rule.rate or 0.0, other.rate or 0.0)),
                enforced=rule.enforced and other.enforced,
            )
        )
    return tuple(sorted(found.values(), key=lambda rule: (-rule.waiting, -rule.clients, rule.entity)))


def worst(details: Sequence[Detail]) -> Detail:
    """Return the member's view where the client waits longest; if it waits at none, where it is idle least."""
    return max(details, key=lambda one: connection_order(one.times))


def connection_order(times: tuple[float, ...]) -> tuple[float, float]:
    """Sort key: how much of its time a connection waits for quotas, then how little it is idle."""
    return waited(times), -times[IDLE]


def merge_connections(details: Sequence[Detail]) -> tuple[Connection, ...]:
    """Return all members' connections of a client, those that wait longest first."""
    found = (connection for one in details for connection in one.connections)
    order = sorted(found, key=lambda one: connection_order(one.times), reverse=True)
    return tuple(order[:CONNECTIONS_MAX])


def merge_neighbours(details: Sequence[Detail], *, shared: bool = True) -> tuple[Neighbour, ...]:
    """Return who shares the budget that the client waits for most, the largest first; rates are added up.

    A member where it waits for another rule has the neighbours of that rule: they are left out.

    Args:
        shared: whether the members share their budgets; if not, the neighbours are of the one where it waits longest.
    """
    rule = worst(details).rule
    if not shared:
        details = [worst(details)]
    if rule is None:
        return ()
    rates: dict[tuple[str, str], float] = {}
    for one in details:
        own = one.rule
        if own is None or (own.kind, own.key, own.entity) != (rule.kind, rule.key, rule.entity):
            continue
        for neighbour in one.neighbours:
            name = neighbour.user, neighbour.client_id
            rates[name] = rates.get(name, 0.0) + neighbour.rate
    order = sorted(rates.items(), key=lambda item: item[1], reverse=True)
    return tuple(Neighbour(*name, rate) for name, rate in order[:NEIGHBOURS_MAX])


def merged_demands(details: Sequence[Detail]) -> Mapping[str, Demand]:
    """Return what the client takes and would take at all members together, by key of quotas."""
    keys = dict.fromkeys(key for one in details for key in one.demands)
    return {key: merge_demands(one.demands.get(key, NO_DEMAND) for one in details) for key in keys}


def merge_wants(details: Sequence[Detail]) -> Wants | None:
    """Return what the client asks for at all members together, of the rule that it waits for most.

    Its waits with another limit are those of the member where they are longest.
    """
    rule = worst(details).rule
    if rule is None:
        return None
    own = next((one.wants for one in details if one.wants is not None), None)
    found = wants(merged_demands(details).get(rule.key, NO_DEMAND), rule.value or 0.0, waited=0.0)
    if found is None:
        return None
    waiting = [one.wants for one in details if one.rule is not None and one.rule.key == rule.key]
    rows: dict[str, float] = {}
    if not found.at_least and all(one is not None and one.waits for one in waiting):
        for times, seconds in (row for one in waiting if one is not None for row in one.waits):
            rows[times] = max(rows.get(times, 0.0), seconds)
    return Wants(found.rate, found.at_least, own.assumed if own else ASSUMED, tuple(rows.items()))


def _sum(one: Client, other: Client, *, shared: bool) -> Client:
    first = max(one, other, key=waiting_order)
    rule = first.rule or one.rule or other.rule
    connections = max(1, one.connections + other.connections)
    times = tuple(
        (own * one.connections + its * other.connections) / connections
        for own, its in zip(one.all_times, other.all_times, strict=True)
    )
    return Client(
        one.user,
        one.client_id,
        one.connections + other.connections,
        first.times,
        times,
        rule,
        _quotas(one.quotas, other.quotas, shared=shared),
        (*one.members, *other.members),
    )


def _quotas(one: Sequence[Quota], other: Sequence[Quota], *, shared: bool) -> tuple[Quota, ...]:
    together = sum if shared else max
    found = {(quota.kind, quota.entity): quota for quota in one}
    for quota in other:
        key = quota.kind, quota.entity
        own = found.get(key)
        found[key] = quota if own is None else own._replace(rate=together((own.rate, quota.rate)))
    return tuple(found.values())
