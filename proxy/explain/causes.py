"""The clauses about time that is not spent waiting for a quota: at the broker, in the client, in a poll, in Sluice."""

from collections.abc import Callable, Mapping
from typing import Final

from proxy.explain import parts
from proxy.explain.amounts import part_text, time_text
from proxy.explain.facts import Facts
from proxy.explain.report import BrokerReport, ConnectionReport, OwnBroker, part_of
from proxy.explain.watch import FOLLOWERS

_NAMED_MIN: Final = 0.2  # a smaller part is not worth a clause, unless nothing is larger
_NAMED_MAX: Final = 2
_SLOW_MS: Final = 100.0  # a broker whose p99 is below that does not make a client slow
_STALLED_MS: Final = 1000.0
_COMPARED_MIN: Final = 20  # requests of other clients
_UNLIKE_TIMES: Final = 3.0
_STANDS_STILL_TIMES: Final = 4.0
_NEARLY_ALL: Final = 0.8
_BUSY: Final = 0.8  # of a core, which is all that one process can use


def busiest(facts: Facts) -> int:
    """Return the index of the largest part of the time, apart from HELD, MUTED and IDLE."""
    return max((parts.SLUICE, parts.BROKER, parts.POLL, parts.CLIENT), key=lambda part: facts.times[part])


def causes(facts: Facts) -> str:
    """Return clauses about the largest parts of the time, the largest first."""
    largest = sorted(_CLAUSES, key=lambda part: -facts.times[part])
    named = [part for part in largest if part_of(facts.times, part) >= _NAMED_MIN][:_NAMED_MAX]
    texts = []
    for number, part in enumerate(named or largest[:1]):
        share = part_text(part_of(facts.times, part))
        texts.append(f"{share}{'' if number else ' of the time'} {_CLAUSES[part](facts)}")
    return "; ".join(texts)


def elsewhere(facts: Facts) -> str:
    """Return the parts of all connections' time that are small for the one that waits longest; "" if there are none."""
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
    """Return a clause about a broker that responds quickly to a client whose connection asks much of it."""
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
    if by_time_ms >= max(_SLOW_MS, _STANDS_STILL_TIMES * p99_ms):
        return (
            f"which is slow at times only: half of that is requests of {time_text(by_time_ms)} or more, though p99 is "
            f"{time_text(p99_ms)}"
        )
    if p99_ms < _SLOW_MS:
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
