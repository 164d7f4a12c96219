"""Rows of several members, made one row for each client. Pure.

A client is shown by the member where it waits longest, as one member shows it by its worst connection. In a fleet a
limit is one budget for all members, so rates beside it are added up. Members that are none have a budget each: a rate
is then that of the member where it is highest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from heapq import nlargest
from typing import Any, Final, NamedTuple

from commandline.amounts import count, printable
from console.documents import (
    BROKERS_MAX,
    CONNECTIONS_MAX,
    NEIGHBOURS_MAX,
    WAITS_MIN,
    Broker,
    Client,
    ClientList,
    Connection,
    Detail,
    DocumentError,
    Fields,
    Neighbour,
    Quota,
    RuleRow,
    Wants,
    cause,
    detail,
    is_over,
    limit_text,
    missing_of_members,
    times_of,
    waited,
)
from console.verdict import verdict
from proxy.explain.parts import IDLE, NAMES, amount, part_text
from proxy.explain.wants import ASSUMED, NO_DEMAND, Demand, merge_demands, wants

Document = Mapping[str, Any]


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


# ----------------------------------------------------------------------------------------------------
# `/v1/client` of several members, made one document. Pure.
#
# The client is shown by the member whose connection of it waits longest: `time`, `rule`, `predicted`,
# `broker`, `sluice`
# and the first sentence are that member's. What can be added up is of all members: connections, brokers,
# waits,
# neighbours, what it takes and asks for, and the time of all connections, in which a member counts with its
# connections'
# seconds.


_NAMED_MAX: Final = 5  # members in the sentence
_WAITS_MAX: Final = 50


class MemberVerdict(NamedTuple):
    """One member's document of a client.

    Args:
        seen: the document as a value.
    """

    admin: str
    document: Document
    seen: Detail


class _Weighted(NamedTuple):
    """A member's document with its weight among all: its connections' seconds, as a part of 1."""

    document: Document
    weight: float
    seen: Detail


def read_verdict(admin: str, content: Document) -> MemberVerdict:
    """Check a member's /v1/client.

    Raises:
        DocumentError: it is not such a document, or lacks what a verdict shows.
    """
    try:
        seen = detail(content, admin)
        for _ in verdict(content):
            pass
    except (LookupError, TypeError, ValueError, AttributeError):
        raise DocumentError("/v1/client is not as docs/api.md says") from None
    return MemberVerdict(admin, content, seen)


def merge_verdicts(found: Sequence[MemberVerdict], missing: Sequence[str]) -> dict[str, Any]:
    """Return one document.

    Args:
        found: the members that know the client, at least one; all of the same user.
        missing: admin ports that did not respond.
    """
    first = worst([one.seen for one in found])
    chosen = next(one for one in found if one.seen is first)
    document = {**chosen.document, "members": [_member(one.seen) for one in found]}
    document["members_missing"] = list(missing)
    document["missing"] = missing_of_members((one.admin, one.document) for one in found)
    if len(found) == 1:
        return document
    weighted = _weighted(found)
    details = [one.seen for one in found]
    asked = merge_wants(details)
    document["sentence"] = " ".join(filter(None, (first.sentence, _spread(details), _asks(first, asked))))
    document["wants"] = None if asked is None else _wants_document(asked)
    document["demand"] = {key: _demand_document(one) for key, one in merged_demands(details).items()}
    document["time_of_all_connections"] = _parts(
        [sum(one.weight * one.seen.all_times[part] for one in weighted) for part in range(len(NAMES))]
    )
    document["waits"] = _waits(weighted)
    document["neighbours"] = [one._asdict() for one in merge_neighbours(details)]
    document["brokers"] = _brokers(one.document for one in found)
    document["connections"] = _connections(found)
    document["connections_total"] = sum(one.seen.connections_total for one in found)
    document["enforcing"] = all(one.document.get("enforcing", True) for one in found)
    return document


def _member(seen: Detail) -> Document:
    return {
        "admin": seen.member,
        "connections_total": seen.connections_total,
        "time": _parts(seen.times),
    }


def _spread(found: Sequence[Detail]) -> str:
    """Say at which members the client has connections, those that wait longest first."""
    order = sorted(found, key=lambda one: waited(one.times), reverse=True)
    first, *others = order[:_NAMED_MAX]
    named = [
        f"{first.connections_total} at {first.member} ({part_text(waited(first.times))} waited)",
        *(f"{one.connections_total} at {one.member} ({part_text(waited(one.times))})" for one in others),
    ]
    if order[_NAMED_MAX:]:
        left = order[_NAMED_MAX:]
        named.append(f"{sum(one.connections_total for one in left)} at {count(len(left), 'other')}")
    return f"It has connections at {len(found)} members: {', '.join(named)}."


def _asks(first: Detail, asked: Wants | None) -> str:
    """Say what the client asks for at all members; "" if it waits for no quota with a rate."""
    if first.rule is None or first.rule.key not in first.demands:
        return ""
    if asked is None:
        return "How much it asks for at all of them together is not known."
    rate = amount(first.rule.kind, asked.rate)
    if asked.at_least:
        return (
            f"It took up to {rate} in that time; how much it asks for at all of them together is not known."
        )
    return f"At all of them together it asks for at most about {rate}."


def _wants_document(asked: Wants) -> Document:
    return {
        "rate": round(asked.rate, 3),
        "at_least": asked.at_least,
        "assumed": asked.assumed,
        "wait_seconds_per_minute": dict(asked.waits) or None,
    }


def _demand_document(demand: Demand) -> Document:
    most = None if demand.most is None else round(demand.most, 3)
    return {"taken": round(demand.taken, 3), "highest": round(demand.highest, 3), "most": most}


def _weighted(found: Sequence[MemberVerdict]) -> list[_Weighted]:
    """Weigh each member by its connections' seconds in the window; those left out count as the mean of those listed."""
    seconds = []
    for one in found:
        window = Fields(one.document, "/v1/client").amount("window_seconds")
        listed = [min(connection.seconds, window) for connection in one.seen.connections]
        mean = sum(listed) / len(listed) if listed else window
        seconds.append(mean * one.seen.connections_total)
    whole = sum(seconds)
    if not whole:  # all have ended
        return [_Weighted(one.document, 1 / len(found), one.seen) for one in found]
    return [_Weighted(one.document, own / whole, one.seen) for one, own in zip(found, seconds, strict=True)]


def _waits(found: Iterable[_Weighted]) -> list[Document]:
    parts: dict[tuple[str, str, str], float] = {}
    for one in found:
        for wait in one.seen.waits:
            key = wait.kind, wait.key, wait.name
            parts[key] = parts.get(key, 0.0) + one.weight * wait.part
    order = nlargest(_WAITS_MAX, parts.items(), key=lambda item: item[1])
    return [
        {"kind": kind, "key": key, "name": name, "part": round(part, 4)} for (kind, key, name), part in order
    ]


class _AtBroker(NamedTuple):
    """A client's connections to one broker."""

    connections: int
    waited: float
    at_broker: float
    ms: float | None

    def plus(self, other: "_AtBroker") -> "_AtBroker":
        """Add another member's; parts and means are weighted by connections."""
        whole = self.connections + other.connections
        own = self.connections / whole if whole else 0.5
        if self.ms is None or other.ms is None:
            ms = self.ms if other.ms is None else other.ms
        else:
            ms = own * self.ms + (1 - own) * other.ms
        return _AtBroker(
            whole,
            own * self.waited + (1 - own) * other.waited,
            own * self.at_broker + (1 - own) * other.at_broker,
            ms,
        )


def _brokers(documents: Iterable[Document]) -> list[Document]:
    found: dict[int, _AtBroker] = {}
    for document in documents:
        for row in Fields(document, "/v1/client").many("brokers", BROKERS_MAX):
            broker = row.whole("broker", -1)
            one = _AtBroker(
                row.whole("connections"),
                row.amount("waited"),
                row.amount("at_broker"),
                row.number("ms_per_request", None),
            )
            found[broker] = one if broker not in found else found[broker].plus(one)
    return [
        {
            "broker": broker,
            "connections": one.connections,
            "waited": round(one.waited, 4),
            "at_broker": round(one.at_broker, 4),
            "ms_per_request": None if one.ms is None else round(one.ms, 3),
        }
        for broker, one in sorted(found.items())[:BROKERS_MAX]
    ]


def _connections(found: Sequence[MemberVerdict]) -> list[Document]:
    """Return the rows of all members as they are, with their member; those that wait longest first."""
    rows = [
        (connection_order(times_of(Fields(row, "connection"), "time")), {**row, "member": one.admin})
        for one in found
        for row in one.document["connections"][:CONNECTIONS_MAX]
    ]
    return [row for _, row in nlargest(CONNECTIONS_MAX, rows, key=lambda pair: pair[0])]


def _parts(times: Sequence[float]) -> Document:
    return {name: round(part, 4) for name, part in zip(NAMES, times, strict=True)}


# ----------------------------------------------------------------------------------------------------
# What `sluice explain` says of a user: all of its clients, which of them waits most, and its quotas. Pure.
#
# It is made of the rows of /v1/clients of all members that respond.


GUESSES_MAX: Final = 3
_GUESSED_CHARACTERS_MAX: Final = 100  # the time for a comparison grows with the square of it
_GUESSED_NAMES_MAX: Final = 10_000
_ROWS_SHOWN: Final = 10
_OF_USER: Final = "user"
_WINDOWS: Final = {10: "last 10 s", 60: "last minute", 900: "last quarter of an hour"}


class Guess(NamedTuple):
    """A client that may be meant."""

    user: str
    client_id: str


def guesses(clients: Iterable[Client], *, user: str | None, client_id: str | None) -> tuple[Guess, ...]:
    """Return the clients with the nearest names: this client id of other users first; at most GUESSES_MAX.

    Args:
        user: what was asked for; None: any.
        client_id: likewise; without one, the guesses are of users, with an empty client id.
    """
    known = [(one.user, one.client_id) for one in clients][:_GUESSED_NAMES_MAX]
    if client_id is None:
        users = dict.fromkeys(name for name, _ in known)
        return tuple(Guess(name, "") for name in _nearest(user or "", users))
    same = [Guess(client_id, "")] if any(client_id and name[0] == client_id for name in known) else []
    same += [Guess(*name) for name in known if name[1] == client_id]
    near = set(_nearest(client_id, dict.fromkeys(name for _, name in known if name != client_id)))
    others = sorted(
        (Guess(*name) for name in known if name[1] in near),
        key=lambda one: user is not None and one.user != user,
    )
    return tuple((same + others)[:GUESSES_MAX])


def _nearest(name: str, names: Iterable[str]) -> list[str]:
    folded = {
        one.casefold(): one for one in names if 0 < len(one) <= _GUESSED_CHARACTERS_MAX
    }  # of several that differ in case, one
    if len(name) > _GUESSED_CHARACTERS_MAX:
        return []
    return [folded[one] for one in get_close_matches(name.casefold(), folded, GUESSES_MAX)]


def user_document(user: str, window: int, found: ClientList, enforcing: bool) -> dict[str, Any]:
    """Return the document of a user.

    Args:
        found: all of its clients, at least one.
        window: in seconds.
    """
    quotas = _quotas_user(found.clients)
    return {
        "user": user,
        "window_seconds": window,
        "enforcing": enforcing,
        "sentence": _sentence(user, window, found, quotas),
        "clients_total": found.total,
        "waiting": sum(waited(one.times) >= WAITS_MIN for one in found.clients),
        "connections_total": sum(one.connections for one in found.clients),
        "quotas": [
            {"kind": one.kind, "entity": one.entity, "value": one.value, "rate": round(one.rate, 3)}
            for one in quotas
        ],
        "clients": [_client(one) for one in found.clients],
    }


def user_lines(document: Document, found: ClientList) -> Iterator[str]:
    """Yield the lines for people."""
    yield printable(document["sentence"])
    yield ""
    yield f"clients of the {_WINDOWS[document['window_seconds']]}, those that wait longest first:"
    shown = found.clients[:_ROWS_SHOWN]
    names = [printable(one.client_id) or "(no client id)" for one in shown]
    width = max(map(len, names))
    for name, client in zip(names, shown, strict=True):
        yield (
            f"  {name.ljust(width)}  {waited(client.times):>4.0%}  {count(client.connections, 'connection')}  "
            f"{printable(cause(client, ()).text)}"
        )
    if found.total > len(shown):
        yield f"  and {found.total - len(shown)} more; --format json has up to {len(found.clients)}"
    yield ""
    yield f"one of them: sluice explain --client-id {names[0]} --user {printable(document['user'])}"


def _quotas_user(clients: Iterable[Client]) -> tuple[Quota, ...]:
    """Return the limits that the user's clients share, with the sum of their rates."""
    found: dict[tuple[str, str], Quota] = {}
    for quota in (quota for client in clients for quota in client.quotas if quota.shared_by == _OF_USER):
        key = quota.kind, quota.entity
        own = found.get(key)
        found[key] = quota if own is None else own._replace(rate=own.rate + quota.rate)
    return tuple(found.values())


def _sentence(user: str, window: int, found: ClientList, quotas: Sequence[Quota]) -> str:
    first = max(found.clients, key=waiting_order)
    waiting = [one for one in found.clients if waited(one.times) >= WAITS_MIN]
    texts = []
    whole, name = count(found.total, "client"), first.client_id or "(no client id)"
    if waiting:
        rule = "a quota that is gone now" if first.rule is None else limit_text(first.rule)
        most = f"{name} most, {part_text(waited(first.times))} of the {_WINDOWS[window]}, for {rule}"
        texts.append(f"{len(waiting)} of {whole} of user {user} waited; {most}.")
    else:
        texts.append(f"User {user} has {whole}; none waited for a quota in the {_WINDOWS[window]}.")
    for quota in quotas:
        rate, value = amount(quota.kind, quota.rate), amount(quota.kind, quota.value)
        over = ": over it" if is_over(quota) else ""
        texts.append(f"Together they take {rate} of {value} ({quota.kind} quota of {quota.entity}){over}.")
    return " ".join(texts)


def _client(one: Client) -> Document:
    rule = one.rule
    return {
        "client_id": one.client_id,
        "connections": one.connections,
        "waited": round(waited(one.times), 4),
        "time": {name: round(part, 4) for name, part in zip(NAMES, one.times, strict=True)},
        "rule": None
        if rule is None
        else {
            "kind": rule.kind,
            "key": rule.key,
            "entity": rule.entity,
            "value": rule.value,
            "enforced": rule.enforced,
        },
        "members": list(one.members),
    }
