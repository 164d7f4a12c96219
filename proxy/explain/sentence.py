"""An explanation in a few sentences of plain English: how long a client waits for which quota, or for what else.

web-1 waited 62% of the last minute for producer_byte_rate 2.0 MB/s of client-id <default>, set … by User:ops.
It asks for at most about 4.3 MB/s.             the rate that it would take (`wants`), or what is known of it
web-2 takes 25% of that budget.                 if others share it
It also waited for request_percentage.          if another rule matters
But 70% of the time …                           if something else takes longer (`causes`)
The broker takes 3.0 ms of 140 ms per request.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from commandline.amounts import count
from proxy.explain import parts
from proxy.explain.amounts import amount, part_text, time_text
from proxy.explain.causes import busiest, causes, elsewhere
from proxy.explain.facts import Facts
from proxy.explain.rates import KEYS
from proxy.explain.report import part_of, waited_part
from proxy.explain.rules import Rule
from proxy.explain.watch import FOLLOWERS
from proxy.explain.windows import SECONDS
from quotas.throttles.kinds import TOPIC

_WINDOWS: Final = {10: "the last 10 s", 60: "the last minute", 900: "the last quarter of an hour"}
_SHARES_MIN: Final = 0.1  # of a budget
_ALSO_MIN: Final = 0.2  # of all waits
_HOLDERS: Final = {"connection": "user", "replication": "broker"}
_ANONYMOUS: Final = ("", "ANONYMOUS")
_HARDLY: Final = 0.05
_PART_MIN: Final = 0.01  # a smaller part has a large sampling error, and so has what is divided by it
_NAME_MAX: Final = 100


def sentence(facts: Facts) -> str:
    """Return the sentence."""
    name = _name(facts)
    if not sum(facts.times):
        return f"{name}: nothing was seen of it in {_window(facts)}."
    if facts.found is not None and facts.waited_for is not None:
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
    yield _of_member(facts)
    yield _of_all_connections(facts)
    yield _asks(facts)
    yield _shared(facts)
    if part_of(facts.times, busiest(facts)) > waited_part(facts.times):
        yield f"But {causes(facts)}."
    else:
        yield _broker(facts)


def _waited(name: str, facts: Facts) -> str:
    found, rule = facts.found, facts.rule
    assert found is not None, "the caller has looked"
    assert rule is not None, "its document is made with it"
    limit = f"{found.rule.key} {amount(found.rule.kind, found.value)} of {rule['entity']}"
    by = f" by {rule['set_by']}" if rule["set_by"] else ""
    at = f" {rule['set_at']}" if rule["set_at"] else ""
    origin = f", set{at}{by}" if at or by else ""
    part = part_text(waited_part(facts.times))
    if not (second := _second(facts)):
        return f"{name} waited {part} of {_window(facts)} for {limit}{origin}."
    return f"{name} waited {part} of {_window(facts)}, most of it for {limit}{origin}; {second}."


def _of_member(facts: Facts) -> str:
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
    if facts.found is None or facts.found.rule.key not in KEYS:
        return ""
    where = " in all its topics" if facts.found.rule.kind == TOPIC else ""
    if facts.member:
        where += " here"
    if facts.asked is None:
        return f"How much it asks for{where} is not known."
    rate = amount(facts.found.rule.kind, facts.asked.rate)
    if facts.asked.at_least:
        return f"It took up to {rate}{where} in that time; how much more it asks for is not known."
    return f"It asks for at most about {rate}{where}."


def _shared(facts: Facts) -> str:
    """Return a sentence about the largest other client of the budget; "" without one."""
    own = facts.client.user, facts.client.client_id
    whole = sum(one.rate for one in facts.neighbours)
    others = [one for one in facts.neighbours if (one.user, one.client_id) != own]
    if others and facts.rule is not None and facts.rule["kind"] == TOPIC:
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
    """Return a sentence about the broker's part of a request's time; "" if it is not known."""
    client = facts.client
    part = _of_asked(part_of(facts.times, parts.BROKER), facts.times)
    if not client.probes or part <= 0:
        return ""
    broker_ms = client.broker_ms / client.probes
    if part < _PART_MIN:
        return f"The broker takes {time_text(broker_ms)} per request."
    return f"The broker takes {time_text(broker_ms)} of {time_text(broker_ms / part)} per request."


def _of_asked(part: float, times: Sequence[float]) -> float:
    """Return a part as a share of the time in which the connection was not idle."""
    idle = part_of(times, parts.IDLE)
    return part / (1 - idle) if idle < 1 else 0.0


def _limit_name(rule: Rule) -> str:
    return f"{rule.key} of {_HOLDERS.get(rule.kind, rule.kind)} {rule.name!r}" if rule.name else rule.key


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
