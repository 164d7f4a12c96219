"""An explanation in a few sentences of plain English: how long a client waits for which quota, or for what else.

web-1 waited 62% of the last minute for producer_byte_rate 2.0 MB/s of client-id <default>, set … by User:ops.
It asks for at most about 4.3 MB/s.             the rate that it would take (`wants`), or what is known of it
web-2 takes 25% of that budget.                 if others share it
It also waited for request_percentage.          if another rule matters
But 70% of the time …                           if something else takes longer (`causes`)
The broker takes 3.0 ms of 140 ms per request.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from commandline.amounts import count
from commandline.amounts import rate as byte_rate
from proxy.explain import documents, parts
from proxy.explain.capacities import UNPROMISED_TEXT
from proxy.explain.documents import SLOW_MS, Level, Neighbour
from proxy.explain.latencies import OwnReport
from proxy.explain.parts import SECONDS, amount, part_text, time_text
from proxy.explain.report import BrokerReport, ClientReport, ConnectionReport, OwnBroker, part_of, waited_part
from proxy.explain.rules import Rule
from proxy.explain.watch import FOLLOWERS
from quotas.definitions.kinds import BY_NAME, CLIENT_KEYS, REPLICATION, TOPIC

# ----------------------------------------------------------------------------------------------------
# The input of the sentence about one client.


class Facts(NamedTuple):
    """The values from which the sentences about one client are made.

    Args:
        client: the report on the client.
        window: the window of the report: TEN_SECONDS, MINUTE or QUARTER of `proxy.explain.parts`.
        times: the time in ms of the connection that waits longest, in each part (`proxy.explain.parts`).
        waited_for: the rule that the client has waited for most; None if it has waited for none.
        rule: that rule with its limit in force; None if the limit is gone.
        asked: how much the client would take without that limit; None if that is unknown.
        neighbours: the clients that share the rule's budget, this one included.
        broker: the response times of that connection's broker.
        own: Sluice's own CPU time and delays.
        member: whether this is one member of a fleet, which has a part of the limit.
        level: what has kept the client's class from using more of a capacity; None without one.
    """

    client: ClientReport
    window: int
    times: Sequence[float]
    waited_for: Rule | None = None
    rule: documents.Rule | None = None
    asked: documents.Wants | None = None
    neighbours: Sequence[Neighbour] = ()
    broker: BrokerReport | None = None
    own: OwnReport | None = None
    member: bool = False
    level: Level | None = None


# ----------------------------------------------------------------------------------------------------
# The clauses about time that is not spent waiting for a quota: at the broker, in the client, in a poll, in Sluice.


_NAMED_MIN: Final = 0.2  # a smaller part is not worth a clause, unless nothing is larger
_NAMED_MAX: Final = 2
_STALLED_MS: Final = 1000.0
_COMPARED_MIN: Final = 20  # requests of other clients
_UNLIKE_TIMES: Final = 3.0
_STANDS_STILL_TIMES: Final = 4.0
_NEARLY_ALL: Final = 0.8
_BUSY: Final = 0.8  # of a core, which is all that one process can use


def busiest(facts: Facts) -> int:
    """Return the part, such as `parts.BROKER`, that takes most of the time; HELD, MUTED and IDLE are not compared."""
    return max((parts.SLUICE, parts.BROKER, parts.POLL, parts.CLIENT), key=lambda part: facts.times[part])


def causes(facts: Facts) -> str:
    """Return clauses that say what takes most of the client's time, and why; the largest part first."""
    largest = sorted(_CLAUSES, key=lambda part: -facts.times[part])
    named = [part for part in largest if part_of(facts.times, part) >= _NAMED_MIN][:_NAMED_MAX]
    texts = []
    for number, part in enumerate(named or largest[:1]):
        share = part_text(part_of(facts.times, part))
        texts.append(f"{share}{'' if number else ' of the time'} {_CLAUSES[part](facts)}")
    return "; ".join(texts)


def elsewhere(facts: Facts) -> str:
    """Return a clause on where the client's other connections spend their time; "" if there is nothing to say.

    It names parts of the time that are large for all connections together, but small for the one that waits longest.
    """
    times = facts.client.times
    found = [
        f"{part_text(part_of(times, part))} {_PLACES[part]}"
        for part in sorted(_PLACES, key=lambda part: -times[part])
        if part_of(times, part) >= _NAMED_MIN > part_of(facts.times, part)
    ]
    return ", ".join(found)


def _of_broker(facts: Facts) -> str:
    broker, client = facts.broker, facts.client
    if broker is None or not broker.classes:
        number = client.connections[0].broker if client.connections else -1
        if number >= 0:
            return f"is broker {number}; none of its requests was timed yet"
        mean = f", at {time_text(client.broker_ms / client.probes)} per request" if client.probes else ""
        return f"is the broker{mean}"
    own = next((one for one in client.brokers if one.broker == broker.broker), None)
    worst = client.connections[0] if client.connections else None
    speed = _slow(broker, own)
    if speed is None:
        return f"is broker {broker.broker}, {_quick(broker, own, worst)}"
    follower = ", or which waits for a stopped or slow follower (acks=all)"
    return f"is broker {broker.broker}, {speed}{follower if worst is not None and worst.acks_all else ''}"


def _quick(broker: BrokerReport, own: OwnBroker | None, worst: ConnectionReport | None) -> str:
    """Return a clause that a broker responds quickly, and how many requests the client sends at a time."""
    mean = "" if own is None or not own.requests else f"at {time_text(own.ms / own.requests)} per request, "
    many = 0 if worst is None else worst.in_flight_max
    how = f"the client has up to {many} in flight" if many > 1 else "the client sends one after the other"
    return f"{mean}p99 {time_text(broker.percentile_ms(0.99))}: no request is slow, {how}"


def _slow(broker: BrokerReport, own: OwnBroker | None) -> str | None:
    """Return a clause about a slow broker's response times, for this client, for others, and by time; None if it is not
    slow.
    """
    p99_ms, by_time_ms = broker.percentile_ms(0.99), broker.time_percentile_ms(0.5)
    own_ms = own.ms / own.requests if own is not None and own.requests else None
    others = broker.requests - (0.0 if own is None else own.requests)
    others_ms = max(0.0, broker.ms - (0.0 if own is None else own.ms)) / others if others > 0 else 0.0
    if broker.oldest_ms >= max(_STALLED_MS, _UNLIKE_TIMES * p99_ms):
        return f"which has not responded to a request for {time_text(broker.oldest_ms)}"
    if others >= _COMPARED_MIN and own_ms is not None and own_ms >= max(10.0, _UNLIKE_TIMES * others_ms):
        return (
            f"which takes {time_text(own_ms)} per request of this client, and {time_text(others_ms)} per request of "
            "others: what this client asks for (size, acks, partitions) takes long there, or the broker was slow then"
        )
    if by_time_ms >= max(SLOW_MS, _STANDS_STILL_TIMES * p99_ms):
        return (
            f"which is slow at times only: half of that is requests of {time_text(by_time_ms)} or more, though p99 is "
            f"{time_text(p99_ms)}"
        )
    if p99_ms < SLOW_MS:
        return None
    alone = "for all clients" if others >= _COMPARED_MIN else "(no other client to compare with)"
    return f"whose p99 is {time_text(p99_ms)} {alone}"


def _of_client(facts: Facts) -> str:
    of_all = facts.client.times[parts.CLIENT]
    unread = facts.client.unread_ms / of_all if of_all else 0.0
    if unread >= _NEARLY_ALL:
        return "the client does not read its responses"
    if unread <= 1 - _NEARLY_ALL:
        return "the client is slow to send its requests"
    return "the client is slow to read its responses and to send its requests"


def _of_sluice(facts: Facts) -> str:
    if facts.own is None:
        return "its requests wait in Sluice"
    advice = ": give it more workers" if facts.own.busy >= _BUSY else ""
    return f"its requests wait in Sluice, which uses {part_text(facts.own.busy)} of a core{advice}"


def _of_wish(facts: Facts) -> str:
    if facts.client.user == FOLLOWERS:
        return "it waits for new records"
    return "its Fetches wait for new records, or its group for members, as they ask to"


_PLACES: Final = {
    parts.BROKER: "at brokers",
    parts.POLL: "waiting for new records, or for members",
    parts.CLIENT: "on the client",
    parts.SLUICE: "in Sluice",
}
_CLAUSES: Final[Mapping[int, Callable[[Facts], str]]] = {
    parts.BROKER: _of_broker,
    parts.POLL: _of_wish,
    parts.CLIENT: _of_client,
    parts.SLUICE: _of_sluice,
    parts.IDLE: lambda _: "it asks for nothing",
}


# ----------------------------------------------------------------------------------------------------
# What of a capacity binds: the class's rate or ceiling, other classes, or that more is promised than there is.


def _bound(level: Level) -> str:
    """Return why a class could not use more of a capacity, and what it had, as the end of a sentence; "" for its rate.

    A class that borrows nothing is explained by its rate, as without a capacity.
    """
    whose = "the brokers'" if level.broker < 0 else f"broker {level.broker}'s"
    capacity = f"{whose} {byte_rate(level.capacity)}"
    if level.binds == "capacity":
        return f"{capacity} are used up; {_had(level)}"
    if level.binds == "shrunk":
        text = f"more is promised than {capacity}, so that each has {part_text(level.shrunk)} of its rate"
        if not level.rate:
            return f"{text}; no rate is promised to it, and it had {byte_rate(level.has)}"
        return f"{text}; it had {byte_rate(level.has)} of its {byte_rate(level.rate)}"
    if level.binds == "ceiling":
        who = level.entity if level.shared else "it"
        return f"{who} may use {byte_rate(level.ceiling)} at most, its ceiling; {_had(level)}"
    return ""


def _had(level: Level) -> str:
    """Return what a class had of its rate and of what others left."""
    loan = f"{byte_rate(level.lent)} of {byte_rate(level.spare)} that others left"
    if not level.rate:
        return f"no rate is promised to it, and it had {byte_rate(level.has)} and {loan}"
    whole = level.has >= _WHOLE_PART * level.rate
    own = (
        f"its {byte_rate(level.rate)}" if whole else f"{byte_rate(level.has)} of its {byte_rate(level.rate)}"
    )
    return f"it had {own} and {loan}"


def would_bind(level: Level) -> str | None:
    """Return the end of a sentence on what a client would wait for with enforcement; None for its own rate.

    >>> would_bind(Level(binds="ceiling", entity="group 'web'", capacity=8e6, ceiling=4e6))
    "for the ceiling 4.0 MB/s of group 'web'"
    """
    whose = "the brokers'" if level.broker < 0 else f"broker {level.broker}'s"
    if level.binds == "ceiling":
        return f"for the ceiling {byte_rate(level.ceiling)} of {level.entity}"
    if level.binds in ("capacity", "shrunk"):
        return (
            f"for {whose} {byte_rate(level.capacity)}, which others use up: it would have "
            f"{byte_rate(level.has + level.lent)}"
        )
    return None


_WHOLE_PART: Final = 0.95  # of its rate
_WINDOWS: Final = {10: "the last 10 s", 60: "the last minute", 900: "the last quarter of an hour"}
_SHARES_MIN: Final = 0.1  # of a budget
_ALSO_MIN: Final = 0.2  # of all waits
_ANONYMOUS: Final = ("", "ANONYMOUS")
_HARDLY: Final = 0.05
_PART_MIN: Final = 0.01  # a smaller part has a large sampling error, and so has what is divided by it
_NAME_MAX: Final = 100


def sentence(facts: Facts) -> str:
    """Return the sentences that explain why the client waits."""
    name = _name(facts)
    if not sum(facts.times):
        return f"{name}: nothing was seen of it in {_window(facts)}."
    if facts.rule is not None and facts.waited_for is not None:
        if waited_part(facts.times) < _HARDLY < part_of(facts.times, busiest(facts)):
            part = part_text(waited_part(facts.times))
            limit = _limit_name(facts.waited_for)
            return f"{name} is hardly throttled ({part} of {_window(facts)}, for {limit}): {causes(facts)}."
        return " ".join(filter(None, _throttled(name, facts)))
    waited = waited_part(facts.times)
    if facts.waited_for is not None and waited >= part_of(facts.times, busiest(facts)):
        limit = _limit_name(facts.waited_for)
        return f"{name} waited {part_text(waited)} of {_window(facts)} for {limit}; that limit is gone now."
    others = elsewhere(facts)
    more = f" All {facts.client.connections_total} connections together were {others}." if others else ""
    return f"{name} is not throttled: {causes(facts)}.{more}"


def _throttled(name: str, facts: Facts) -> Iterable[str]:
    yield _waited(name, facts)
    yield _comes(facts)
    yield _of_member(facts)
    yield _of_all_connections(facts)
    yield _asks(facts)
    yield _shared(facts)
    if part_of(facts.times, busiest(facts)) > waited_part(facts.times):
        yield f"But {causes(facts)}."
    else:
        yield _broker(facts)


def _waited(name: str, facts: Facts) -> str:
    rule = facts.rule
    assert rule is not None, "the caller has looked"
    limit = f"{rule.key} {amount(rule.kind, rule.value)} of {rule.entity}"
    by = f" by {rule.set_by}" if rule.set_by else ""
    at = f" {rule.set_at}" if rule.set_at else ""
    origin = f", set{at}{by}" if at or by else ""
    part = part_text(waited_part(facts.times))
    if facts.level is not None and (bound := _bound(facts.level)):
        others = f"; {second}" if (second := _second(facts)) else ""
        group = f" {_sharing(facts.level)}" if facts.level.shared else ""
        rate = f" for {limit}" if rule.kind == REPLICATION.name else ""  # it may be the leader's
        return f"{name} waited {part} of {_window(facts)}{rate}: {bound}{others}.{group}"
    if not (second := _second(facts)):
        return f"{name} waited {part} of {_window(facts)} for {limit}{origin}."
    return f"{name} waited {part} of {_window(facts)}, most of it for {limit}{origin}; {second}."


def _comes(facts: Facts) -> str:
    """Return a sentence on what the limit is next by the times of its entries; "" if it stays for a week."""
    rule = facts.rule
    if rule is None or not rule.changes_at:
        return ""
    # Of a capacity that binds, the sentence before has not named the rule.
    limit = "That limit" if facts.level is None else f"{rule.key} of {rule.entity}"
    if rule.then is None:
        return f"{limit} ends {rule.changes_at}."
    return f"{limit} is {amount(rule.kind, rule.then)} from {rule.changes_at} on."


def _sharing(level: Level) -> str:
    """Return a sentence that says whose clients are one class."""
    whose = level.entity if level.entity == UNPROMISED_TEXT else f"clients of {level.entity}"
    return f"All {whose} share that."


def _of_member(facts: Facts) -> str:
    if facts.level is not None and _bound(facts.level):
        return ""  # the whole fleet's figures
    return "This member of the fleet has a part of that limit." if facts.member else ""


def _of_all_connections(facts: Facts) -> str:
    """Return a sentence if all connections together wait much less, idle time apart, than the worst one; else ""."""
    client = facts.client
    of_all = waited_part(client.times)
    worst = _of_asked(waited_part(facts.times), facts.times)
    if client.connections_total < 2 or 2 * _of_asked(of_all, client.times) > worst:
        return ""
    others = elsewhere(facts)
    text = f"That is one connection: all {client.connections_total} together waited {part_text(of_all)}"
    return f"{text}, and were {others}." if others else f"{text}."


def _asks(facts: Facts) -> str:
    if facts.rule is None or facts.rule.key not in CLIENT_KEYS:
        return ""
    where = " in all its topics" if facts.rule.kind == TOPIC.name else ""
    if facts.member:
        where += " here"
    if facts.asked is None:
        return f"How much it asks for{where} is not known."
    rate = amount(facts.rule.kind, facts.asked.rate)
    if facts.asked.at_least:
        return f"It took up to {rate}{where} in that time; how much more it asks for is not known."
    return f"It asks for at most about {rate}{where}."


def _shared(facts: Facts) -> str:
    """Return a sentence about the largest other client of the budget; "" without one."""
    own = facts.client.user, facts.client.client_id
    whole = sum(one.rate for one in facts.neighbours)
    others = [one for one in facts.neighbours if (one.user, one.client_id) != own]
    if others and facts.rule is not None and facts.rule.kind == TOPIC.name:
        more = f", and so do {count(len(others) - 1, 'other')}" if len(others) > 1 else ""
        return f"{_of_user(others[0].user, others[0].client_id)} waits for it too{more}."
    if not others or not whole or others[0].rate < _SHARES_MIN * whole:
        return ""
    first = max(others, key=lambda one: one.rate)
    more = f" ({len(others)} others share it)" if len(others) > 1 else ""
    return (
        f"{_of_user(first.user, first.client_id)} takes {part_text(first.rate / whole)} of that budget{more}."
    )


def _second(facts: Facts) -> str:
    """Return a sentence about a second important rule; "" without one."""
    waits = sorted(facts.client.waits, key=lambda wait: -wait[1])
    whole = sum(ms for _, ms in waits)
    if len(waits) < 2 or waits[1][1] < _ALSO_MIN * whole:
        return ""
    return f"{part_text(waits[1][1] / whole)} of the wait was for {_limit_name(waits[1][0])}"


def _broker(facts: Facts) -> str:
    """Return a sentence on how much of a request's time the broker takes; "" if that is not known."""
    client = facts.client
    part = _of_asked(part_of(facts.times, parts.BROKER), facts.times)
    if not client.probes or part <= 0:
        return ""
    broker_ms = client.broker_ms / client.probes
    if part < _PART_MIN:
        return f"The broker takes {time_text(broker_ms)} per request."
    return f"The broker takes {time_text(broker_ms)} of {time_text(broker_ms / part)} per request."


def _of_asked(part: float, times: Sequence[float]) -> float:
    """Return a part of the time as a share (0 to 1) of the time in which the connection was not idle."""
    idle = part_of(times, parts.IDLE)
    return part / (1 - idle) if idle < 1 else 0.0


def _limit_name(rule: Rule) -> str:
    return f"{rule.key} of {BY_NAME[rule.kind].holder or rule.kind} {rule.name!r}" if rule.name else rule.key


def _window(facts: Facts) -> str:
    return _WINDOWS[SECONDS[facts.window]]


def _name(facts: Facts) -> str:
    if facts.client.user == FOLLOWERS:
        return f"Follower {facts.client.client_id}"
    name = _of_user(facts.client.user, facts.client.client_id)
    return f"{name} at {facts.client.address}" if facts.client.address else name


def _of_user(user: str, client_id: str) -> str:
    name = _shortened(client_id) or "(no client id)"
    return name if user in _ANONYMOUS else f"{name} of user {_shortened(user)}"


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"{name[:_NAME_MAX]}…"
