"""`/v1/client` as lines for people: the sentence, and its numbers. Pure."""

from collections.abc import Iterator
from typing import Final

from commandline.amounts import duration, printable
from proxy.explain.documents import ClientDocument, Level, Neighbour, Rule, Wants
from proxy.explain.parts import NAMES, amount

_WORDS: Final = {
    "held": "held before its payload is read",
    "muted": "muted",
    "sluice": "in Sluice",
    "broker": "at the broker",
    "poll": "waiting at the broker by its own wish",
    "client": "on the client",
    "idle": "nothing asked",
}
_CONNECTIONS_SHOWN: Final = 10
_BAR: Final = 40


def verdict(document: ClientDocument) -> Iterator[str]:
    """Yield the explanation of a client, from its `/v1/client` document, as lines for a terminal."""
    yield printable(document.sentence)
    for said in document.telemetry:
        yield f"{printable(said.text)}."
    yield ""
    yield f"of the last {document.window_seconds} s, of the connection that waits longest:"
    width = max(map(len, _WORDS.values()))
    for name, part in zip(NAMES, document.time.parts, strict=True):
        if part:
            yield f"  {_WORDS[name].ljust(width)}  {part:>4.0%}  {'#' * max(1, round(part * _BAR))}"
    rule = document.rule
    if rule is not None:
        yield ""
        yield from _rule(rule)
        if document.wants is not None or rule.key in document.demand:
            yield from _wants(rule.kind, document.wants)
    if document.level is not None:
        yield from _level(document.level)
    predicted = document.predicted
    if predicted is not None:
        yield ""
        waits = f"{predicted.throttled_part:.0%} of its time ({printable(predicted.assumed)})"
        yield f"if quotas were enforced, it would wait {waits}"
        yield from _rule(predicted.rule)
    if document.neighbours:
        yield ""
        yield "shares this budget:"
        for one in document.neighbours:
            yield f"  {printable(_name(one))}  {amount(rule.kind if rule else 'produce', one.rate)}"
    yield ""
    yield from _connections(document)


def _rule(rule: Rule) -> Iterator[str]:
    enforced = "enforced" if rule.enforced else "not enforced"
    yield f"rule: {printable(rule.key)} {amount(rule.kind, rule.value)} of {printable(rule.entity)}, {enforced}"
    if rule.set_by:
        yield f"  set by {printable(rule.set_by)}{' at ' + printable(rule.set_at) if rule.set_at else ''}"
    if rule.changes_at:
        then = "no limit" if rule.then is None else amount(rule.kind, rule.then)
        yield f"  {then} from {printable(rule.changes_at)} on"


def _level(level: Level) -> Iterator[str]:
    """Yield what the client's class had of a capacity while it waited."""
    place = "all brokers" if level.broker < 0 else f"broker {level.broker}"
    yield f"capacity: {amount('produce', level.capacity)} of {place}; bound by {printable(level.binds)}"
    own = amount("produce", level.has)
    own = f"{own} of its {amount('produce', level.rate)}" if level.rate else f"{own}, which is not promised"
    lent = f"borrowed {amount('produce', level.lent)} of {amount('produce', level.spare)} that others left"
    yield f"  {printable(level.entity)} had {own}, {lent}, ceiling {amount('produce', level.ceiling)}"


def _wants(kind: str, wants: Wants | None) -> Iterator[str]:
    """Yield what the client asks for, and how long it would wait with other limits, if these are known."""
    if wants is None:
        yield "how much it asks for is not known, nor what it would wait with another limit"
        return
    if wants.at_least:
        yield f"took up to {amount(kind, wants.rate)}; how much more it asks for is not known"
    else:
        yield f"asks for at most about {amount(kind, wants.rate)}, if {printable(wants.assumed)}"
    if wants.wait_seconds_per_minute is None:
        yield "  what it would wait with another limit is not known"
        return
    for times, seconds in wants.wait_seconds_per_minute.items():
        yield f"  with {printable(times)} times the limit it waits at most {duration(seconds)} of each minute"


def _connections(document: ClientDocument) -> Iterator[str]:
    total, several = document.connections_total, len(document.members or ()) > 1
    yield f"connections: {total}"
    for one in document.connections[:_CONNECTIONS_SHOWN]:
        parts = ", ".join(
            f"{name} {part:.0%}"
            for name, part in zip(NAMES, one.time.parts, strict=True)
            if name != "idle" and part >= 0.005
        )
        broker = "any broker" if one.broker < 0 else f"broker {one.broker}"
        library = f"  {printable(one.library)}" if one.library else ""
        member = f"  at {printable(one.member)}" if several and one.member else ""
        yield f"  {printable(one.peer)}  {broker}  {parts or 'idle'}{library}{member}"
    if total > _CONNECTIONS_SHOWN:
        yield f"  and {total - _CONNECTIONS_SHOWN} more; --format json has up to {len(document.connections)}"


def _name(one: Neighbour) -> str:
    user = f"{one.user} " if one.user not in ("", "ANONYMOUS") else ""
    return f"{user}{one.client_id or '(no client id)'}"
