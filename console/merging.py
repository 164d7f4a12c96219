"""The documents of several members, made one: lists of clients, of limits and of brokers, and the document of a client.

A client is shown by the member where it waits longest, as one member shows it by its worst connection. In a fleet a
limit is one budget for all members, so rates beside it are added up. Members that are none have a budget each: a rate
is then that of the member where it is highest. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from heapq import nlargest
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from commandline.amounts import count, printable, rate
from console.causes import WAITS_MIN, cause, limit_text
from proxy.explain.documents import (
    BROKERS_MAX,
    CAPACITIES_MAX,
    CLASSES_MAX,
    CLIENTS_MAX,
    CONNECTIONS_MAX,
    DISAGREEMENTS_MAX,
    EVENTS_MAX,
    QUOTAS_MAX,
    WAITS_MAX,
    WORKERS_MAX,
    AtBroker,
    BrokerTimes,
    CapacitiesDocument,
    CapacityRow,
    ClassRow,
    ClientDocument,
    ClientRow,
    ClientsDocument,
    Document,
    EventsDocument,
    FleetDocument,
    MemberTimes,
    Neighbour,
    Quota,
    RuleRow,
    Times,
    UserClient,
    UserDocument,
    UserQuota,
    Wait,
    Wants,
    is_over,
    largest,
    last_pushed,
)
from proxy.explain.parts import amount, part_text, summed
from proxy.explain.wants import ASSUMED, NO_DEMAND, Demand, demand_row, merge_demands, wants

NEIGHBOURS_MAX: Final = 20  # of all members together
_IN: Final = "producer_byte_rate"
_CATCH_UP: Final = "catch_up_byte_rate"


def bound(document: Document, member: str) -> None:
    """Cut the lists in a member's document to their permitted lengths, and write the member's name into each row.

    Args:
        document: a document of any kind, which is changed in place.
        member: the member's name, or its admin port as given.
    """
    document.missing = tuple(replace(one, member=member) for one in document.missing[:WORKERS_MAX])
    if isinstance(document, ClientsDocument):
        document.clients = document.clients[:CLIENTS_MAX]
        document.clients_total = max(document.clients_total, len(document.clients))
        for row in document.clients:
            row.members = (member,)
            row.quotas = row.quotas[:QUOTAS_MAX]
    elif isinstance(document, ClientDocument):
        document.connections = document.connections[:CONNECTIONS_MAX]
        for connection in document.connections:
            connection.member = member
        document.waits = document.waits[:WAITS_MAX]
        document.neighbours = document.neighbours[:NEIGHBOURS_MAX]
        document.brokers = document.brokers[:BROKERS_MAX]
        own = MemberTimes(admin=member, connections_total=document.connections_total, time=document.time)
        document.members = (own,)
        document.members_missing = ()
    elif isinstance(document, FleetDocument):
        document.disagreements = document.disagreements[:DISAGREEMENTS_MAX]
    elif isinstance(document, EventsDocument):
        document.events = document.events[:EVENTS_MAX]
    elif isinstance(document, CapacitiesDocument):
        document.capacities = tuple(
            replace(one, classes=one.classes[:CLASSES_MAX]) for one in document.capacities[:CAPACITIES_MAX]
        )


def one_budget(names: Sequence[str]) -> bool:
    """Whether members share their budgets: there is only one member, or all are of a fleet.

    Args:
        names: the members' names in their fleet, "" without one.
    """
    return len(names) < 2 or all(names)


# ----------------------------------------------------------------------------------------------------
# Lists: each client, limit and broker once. `shared` is whether the members share their budgets.


def merge_clients(lists: Sequence[ClientsDocument], *, shared: bool = True) -> ClientsDocument:
    """Return all members' clients, each once, those that wait longest first.

    Args:
        shared: whether each limit is one budget of all members. If so, a client's rate for a limit is the sum of its
            rates at the members; if not, it is the highest of them.
    """
    found: dict[tuple[str, str], ClientRow] = {}
    for client in chain.from_iterable(one.clients for one in lists):
        key = client.user, client.client_id
        other = found.get(key)
        found[key] = client if other is None else _sum(other, client, shared=shared)
    rows = tuple(sorted(found.values(), key=lambda row: row.time.waiting_order, reverse=True))
    return ClientsDocument(
        window_seconds=lists[0].window_seconds if lists else 0,
        enforcing=all(one.enforcing for one in lists),
        missing=tuple(chain.from_iterable(one.missing for one in lists)),
        clients_total=max([len(rows), *(one.clients_total for one in lists)]),
        clients=rows,
    )


def _sum(one: ClientRow, other: ClientRow, *, shared: bool) -> ClientRow:
    first = max(one, other, key=lambda row: row.time.waiting_order)
    whole = max(1, one.connections + other.connections)
    weighted = [(row.connections / whole, row.time_of_all_connections) for row in (one, other)]
    return ClientRow(
        user=one.user,
        client_id=one.client_id,
        connections=one.connections + other.connections,
        time=first.time,
        time_of_all_connections=_mean_times(weighted),
        rule=first.rule or one.rule or other.rule,
        quotas=_quotas(one.quotas, other.quotas, shared=shared),
        members=(*(one.members or ()), *(other.members or ())),
    )


def _mean_times(weighted: Sequence[tuple[float, Times]]) -> Times:
    """Return the weighted mean of times; the weights add up to 1."""
    columns = zip(*([weight * part for part in times.parts] for weight, times in weighted), strict=True)
    return Times(*(round(sum(column), 4) for column in columns))


def _quotas(one: Sequence[Quota], other: Sequence[Quota], *, shared: bool) -> tuple[Quota, ...]:
    together = sum if shared else max
    found = {(quota.kind, quota.entity): quota for quota in one}
    for quota in other:
        key = quota.kind, quota.entity
        own = found.get(key)
        found[key] = quota if own is None else replace(own, rate=together((own.rate, quota.rate)))
    return tuple(found.values())


class Divided(NamedTuple):
    """A capacity as one member, or one fleet, divides it.

    Args:
        member: the member's name; "" where there is only one that divides.
    """

    member: str
    capacity: CapacityRow


def merge_capacities(documents: Iterable[tuple[str, CapacitiesDocument]]) -> tuple[Divided, ...]:
    """Return all capacities; of a fleet, whose members all say what its holder says, each once.

    Args:
        documents: each with the name of the member that has sent it.
    """
    found: dict[str, tuple[CapacityRow, ...]] = {}
    for name, document in documents:
        if not document.problem:
            found.setdefault(document.divided_by or name, document.capacities)
    return tuple(Divided(name if len(found) > 1 else "", row) for name, rows in found.items() for row in rows)


def capacity_text(row: CapacityRow) -> str:
    """Return whose capacity it is and how it is divided, for people.

    >>> capacity_text(CapacityRow(key="producer_byte_rate", value=8e6, promised=6e6, lent=2e6, waiting=1))
    'in, all brokers: 8.0 MB/s, 6.0 MB/s promised, 2.0 MB/s lent, 0 B/s left, 1 class waits'
    """
    direction = "in" if row.key == _IN else "out"
    place = "all brokers" if row.broker < 0 else f"broker {row.broker}"
    text = (
        f"{direction}, {place}: {rate(row.value)}, {rate(row.promised)} promised, {rate(row.lent)} lent, "
        f"{rate(row.left)} left"
    )
    if row.shrunk < 1:
        text += f", more is promised: each has {part_text(row.shrunk)} of its rate"
    if not row.waiting:
        return text
    return f"{text}, {row.waiting} classes wait" if row.waiting > 1 else f"{text}, 1 class waits"


def class_text(one: ClassRow, row: CapacityRow) -> str:
    """Return a class of a capacity, for people: different from the others of the same capacity.

    >>> class_text(ClassRow(entity="user 'ann'", key="catch_up_byte_rate", broker=2), CapacityRow(key="", value=8e6))
    "user 'ann', catch-up reads, broker 2"
    """
    text = f"{one.entity}, catch-up reads" if one.key == _CATCH_UP else one.entity
    return text if one.broker < 0 or one.broker == row.broker else f"{text}, broker {one.broker}"


def merge_brokers(lists: Iterable[Sequence[BrokerTimes]]) -> tuple[BrokerTimes, ...]:
    """Return each broker's response times once, merged from all members.

    The median is the mean of the members' medians, weighted by their numbers of responses; the p99 is the highest.
    """
    found: dict[int, BrokerTimes] = {}
    for broker in chain.from_iterable(brokers[:BROKERS_MAX] for brokers in lists):
        other = found.get(broker.broker)
        if other is None:
            found[broker.broker] = broker
            continue
        timed = max(1, broker.timed + other.timed)
        median = (broker.median_ms * broker.timed + other.median_ms * other.timed) / timed
        found[broker.broker] = BrokerTimes(
            broker=broker.broker,
            timed=broker.timed + other.timed,
            median_ms=median,
            p99_ms=max(broker.p99_ms, other.p99_ms),
        )
    return tuple(found[broker] for broker in sorted(found))


def merge_rules(lists: Iterable[Sequence[RuleRow]], *, shared: bool = True) -> tuple[RuleRow, ...]:
    """Return each limit once, merged from all members. Its numbers of clients are the highest that a member reports.

    Args:
        shared: whether each limit is one budget of all members. If so, the rate of a limit's clients is the sum of the
            members' rates; if not, it is the highest of them.
    """
    together = sum if shared else max
    found: dict[tuple[str, str, str], RuleRow] = {}
    for rule in chain.from_iterable(lists):
        key = rule.kind, rule.key, rule.entity
        other = found.get(key)
        if other is not None:
            rates = [one.rate for one in (rule, other) if one.rate is not None]
            rule = replace(  # noqa: PLW2901 - the sum takes its place
                other,
                clients=max(rule.clients, other.clients),
                waiting=max(rule.waiting, other.waiting),
                rate=together(rates) if rates else None,
                enforced=rule.enforced and other.enforced,
            )
        found[key] = rule
    return tuple(sorted(found.values(), key=lambda rule: (-rule.waiting, -rule.clients, rule.entity)))


# ----------------------------------------------------------------------------------------------------
# `/v1/client` of several members.
#
# `time`, `rule`, `predicted`, `broker`, `sluice` and the first sentence are those of the member whose connection of
# the client waits longest. What can be added up is of all members: connections, brokers, waits, neighbours, what it
# takes and asks for, and the time of all connections, in which a member counts with its connections' seconds.


_NAMED_MAX: Final = 5  # members in the sentence


def worst(found: Sequence[ClientDocument]) -> ClientDocument:
    """Return the document of the member where the client waits longest; if it waits at none, where it is idle least."""
    return max(found, key=lambda one: one.time.waiting_order)


def merge_client(
    found: Sequence[ClientDocument], missing: Sequence[str] = (), *, shared: bool = True
) -> ClientDocument:
    """Return one document of a client, from those of several members.

    Args:
        found: the documents of the members that know the client, at least one, each `bound`.
        missing: the admin ports of members that did not respond.
        shared: whether each limit is one budget of all members. If so, `neighbours` (the clients that share it) are
            those of all members; if not, only those of the member where the client waits longest.
    """
    first = worst(found)
    document = replace(
        first,
        missing=tuple(chain.from_iterable(one.missing for one in found)),
        members=tuple(chain.from_iterable(one.members or () for one in found)),
        members_missing=tuple(missing),
    )
    if len(found) == 1:
        return document
    weights = _weights(found)
    asked = _merge_wants(found)
    brokers: dict[int, AtBroker] = {}
    for row in chain.from_iterable(one.brokers for one in found):
        brokers[row.broker] = _at_broker(brokers[row.broker], row) if row.broker in brokers else row
    connections = chain.from_iterable(one.connections for one in found)
    document.sentence = " ".join(filter(None, (first.sentence, _spread(document), _asks(first, asked))))
    document.wants = asked
    document.demand = {key: demand_row(demand) for key, demand in _demands(found).items()}
    document.time_of_all_connections = _mean_times(
        [(weight, one.time_of_all_connections) for weight, one in zip(weights, found, strict=True)]
    )
    document.waits = _waits(zip(weights, found, strict=True))
    document.neighbours = _neighbours(found if shared else [first], first)
    document.brokers = tuple(brokers[broker] for broker in sorted(brokers)[:BROKERS_MAX])
    document.connections = tuple(
        nlargest(CONNECTIONS_MAX, connections, key=lambda row: row.time.waiting_order)
    )
    document.connections_total = sum(one.connections_total for one in found)
    document.telemetry = last_pushed(chain.from_iterable(one.telemetry for one in found))
    document.enforcing = all(one.enforcing for one in found)
    return document


def _weights(found: Sequence[ClientDocument]) -> list[float]:
    """Return each member's share (0 to 1) of the connections' seconds in the window.
    Connections that a document leaves out count as the mean of those that it lists.
    """
    seconds = []
    for one in found:
        listed = [min(connection.seconds, one.window_seconds) for connection in one.connections]
        mean = sum(listed) / len(listed) if listed else one.window_seconds
        seconds.append(mean * one.connections_total)
    whole = sum(seconds)
    return [own / whole for own in seconds] if whole else [1 / len(found)] * len(found)  # all have ended


def _spread(document: ClientDocument) -> str:
    """Return a sentence: at which members the client has connections, those that wait longest first."""
    order = sorted(document.members or (), key=lambda one: one.time.waited, reverse=True)
    first, *others = order[:_NAMED_MAX]
    named = [
        f"{first.connections_total} at {first.admin} ({part_text(first.time.waited)} waited)",
        *(f"{one.connections_total} at {one.admin} ({part_text(one.time.waited)})" for one in others),
    ]
    if left := order[_NAMED_MAX:]:
        named.append(f"{sum(one.connections_total for one in left)} at {count(len(left), 'other')}")
    return f"It has connections at {len(order)} members: {', '.join(named)}."


def _demands(found: Sequence[ClientDocument]) -> Mapping[str, Demand]:
    """Return the client's demand at all members together, by quota key."""
    some = [
        {key: Demand(one.taken, one.highest, one.most) for key, one in document.demand.items()}
        for document in found
    ]
    keys = dict.fromkeys(chain.from_iterable(some))
    return {key: merge_demands(one.get(key, NO_DEMAND) for one in some) for key in keys}


def _merge_wants(found: Sequence[ClientDocument]) -> Wants | None:
    """Return what the client asks for at all members together, of the rule that it waits for most; None if unknown.

    Its waits with another limit are those of the member where they are longest.
    """
    rule = worst(found).rule
    if rule is None:
        return None
    assumed = next((one.wants.assumed for one in found if one.wants is not None), ASSUMED)
    asked = wants(_demands(found).get(rule.key, NO_DEMAND), rule.value, 0.0, assumed)
    if asked is None:
        return None
    waiting = [one.wants for one in found if one.rule is not None and one.rule.key == rule.key]
    rows: dict[str, float] = {}
    if not asked.at_least and all(one is not None and one.wait_seconds_per_minute for one in waiting):
        for one in waiting:
            for times, seconds in (one.wait_seconds_per_minute or {}).items() if one else ():
                rows[times] = max(rows.get(times, 0.0), seconds)
    return replace(asked, wait_seconds_per_minute=rows or None)


def _asks(first: ClientDocument, asked: Wants | None) -> str:
    """Return a sentence: what the client asks for at all members; "" if it waits for no quota with a rate."""
    if first.rule is None or first.rule.key not in first.demand:
        return ""
    if asked is None:
        return "How much it asks for at all of them together is not known."
    rate = amount(first.rule.kind, asked.rate)
    if asked.at_least:
        return (
            f"It took up to {rate} in that time; how much it asks for at all of them together is not known."
        )
    return f"At all of them together it asks for at most about {rate}."


def _waits(weighted: Iterable[tuple[float, ClientDocument]]) -> tuple[Wait, ...]:
    waits = ((weight, wait) for weight, one in weighted for wait in one.waits)
    parts = summed(((wait.kind, wait.key, wait.name), weight * wait.part) for weight, wait in waits)
    order = nlargest(WAITS_MAX, parts.items(), key=lambda item: item[1])
    return tuple(
        Wait(kind=kind, key=key, name=name, part=round(part, 4)) for (kind, key, name), part in order
    )


def _neighbours(found: Sequence[ClientDocument], first: ClientDocument) -> tuple[Neighbour, ...]:
    """Return who shares the budget that the client waits for most; members where it waits for another are left out."""
    rules = [one.rule and (one.rule.kind, one.rule.key, one.rule.entity) for one in (first, *found)]
    same = [one.neighbours for one, rule in zip(found, rules[1:], strict=True) if rule and rule == rules[0]]
    return largest(chain.from_iterable(same), NEIGHBOURS_MAX)


def _at_broker(one: AtBroker, other: AtBroker) -> AtBroker:
    """Add up a client's figures at one broker; shares and means are weighted by connections."""
    whole = one.connections + other.connections
    own = one.connections / whole if whole else 0.5
    if one.ms_per_request is None or other.ms_per_request is None:
        ms = other.ms_per_request if one.ms_per_request is None else one.ms_per_request
    else:
        ms = own * one.ms_per_request + (1 - own) * other.ms_per_request
    return AtBroker(
        broker=one.broker,
        connections=whole,
        waited=round(own * one.waited + (1 - own) * other.waited, 4),
        at_broker=round(own * one.at_broker + (1 - own) * other.at_broker, 4),
        ms_per_request=None if ms is None else round(ms, 3),
    )


# ----------------------------------------------------------------------------------------------------
# What `sluice explain` says of a user: all of its clients, which of them waits most, and its quotas; and of a client
# that is unknown: the nearest names. Both are made of the rows of /v1/clients of all members that respond.


GUESSES_MAX: Final = 3
_GUESSED_CHARACTERS_MAX: Final = 100  # the time for a comparison grows with the square of it
_GUESSED_NAMES_MAX: Final = 10_000
_ROWS_SHOWN: Final = 10
_OF_USER: Final = "user"
_WINDOWS: Final = {10: "last 10 s", 60: "last minute", 900: "last quarter of an hour"}


class Guess(NamedTuple):
    """A client with a name like the requested one."""

    user: str
    client_id: str


def guesses(clients: Iterable[ClientRow], *, user: str | None, client_id: str | None) -> tuple[Guess, ...]:
    """Return at most GUESSES_MAX known clients with names like the requested, unknown one.

    First come those with the same client id and another user.

    Args:
        user: the requested user; None for any.
        client_id: the requested client id; None if a user was requested: the guesses are then users, with an empty
            client id.
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


def user_document(
    user: str, found: ClientsDocument, members: Sequence[str], members_missing: Sequence[str]
) -> UserDocument:
    """Return the document of a user, made from its clients.

    Args:
        found: all of its clients at all members, at least one.
        members, members_missing: the admin ports of those that responded, and of the others.
    """
    quotas = _quotas_of_user(found.clients)
    return UserDocument(
        user=user,
        window_seconds=found.window_seconds,
        enforcing=found.enforcing,
        missing=found.missing,
        sentence=_sentence(user, found, quotas),
        clients_total=found.clients_total,
        waiting=sum(one.time.waited >= WAITS_MIN for one in found.clients),
        connections_total=sum(one.connections for one in found.clients),
        quotas=quotas,
        clients=tuple(
            UserClient(
                client_id=one.client_id,
                connections=one.connections,
                waited=round(one.time.waited, 4),
                time=one.time,
                rule=one.rule,
                members=one.members or (),
            )
            for one in found.clients
        ),
        members=tuple(members),
        members_missing=tuple(members_missing),
    )


def user_lines(document: UserDocument, found: ClientsDocument) -> Iterator[str]:
    """Yield the document of a user as lines for a terminal."""
    yield printable(document.sentence)
    yield ""
    yield f"clients of the {_window(document.window_seconds)}, those that wait longest first:"
    shown = found.clients[:_ROWS_SHOWN]
    names = [printable(one.client_id) or "(no client id)" for one in shown]
    width = max(map(len, names))
    for name, client in zip(names, shown, strict=True):
        yield (
            f"  {name.ljust(width)}  {client.time.waited:>4.0%}  {count(client.connections, 'connection')}  "
            f"{printable(cause(client, ()).text)}"
        )
    if found.clients_total > len(shown):
        yield f"  and {found.clients_total - len(shown)} more; --format json has up to {len(found.clients)}"
    yield ""
    yield f"one of them: sluice explain --client-id {names[0]} --user {printable(document.user)}"


def _window(seconds: int) -> str:
    return _WINDOWS.get(seconds, f"last {seconds} s")


def _quotas_of_user(clients: Iterable[ClientRow]) -> tuple[UserQuota, ...]:
    """Return the limits that the user's clients share, with the sum of their rates."""
    rates: dict[tuple[str, str], list[Quota]] = {}
    for quota in chain.from_iterable(client.quotas for client in clients):
        if quota.shared_by == _OF_USER:
            rates.setdefault((quota.kind, quota.entity), []).append(quota)
    return tuple(
        UserQuota(
            kind=kind, entity=entity, value=found[0].value, rate=round(sum(one.rate for one in found), 3)
        )
        for (kind, entity), found in rates.items()
    )


def _sentence(user: str, found: ClientsDocument, quotas: Sequence[UserQuota]) -> str:
    first = max(found.clients, key=lambda row: row.time.waiting_order)
    waiting = sum(one.time.waited >= WAITS_MIN for one in found.clients)
    texts = []
    whole, name = count(found.clients_total, "client"), first.client_id or "(no client id)"
    window = _window(found.window_seconds)
    if waiting:
        rule = "a quota that is gone now" if first.rule is None else limit_text(first.rule)
        most = f"{name} most, {part_text(first.time.waited)} of the {window}, for {rule}"
        texts.append(f"{waiting} of {whole} of user {user} waited; {most}.")
    else:
        texts.append(f"User {user} has {whole}; none waited for a quota in the {window}.")
    for quota in quotas:
        rate, value = amount(quota.kind, quota.rate), amount(quota.kind, quota.value)
        over = ": over it" if is_over(quota.rate, quota.value) else ""
        texts.append(f"Together they take {rate} of {value} ({quota.kind} quota of {quota.entity}){over}.")
    return " ".join(texts)
