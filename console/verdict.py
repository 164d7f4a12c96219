"""`/v1/client` as lines for people: the sentence, and its numbers. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from commandline.amounts import duration, printable
from proxy.explain.parts import NAMES, amount

Document = Mapping[str, Any]

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


def verdict(document: Document) -> Iterator[str]:
    """Yield the lines for people."""
    yield printable(document["sentence"])
    yield ""
    yield f"of the last {document['window_seconds']} s, of the connection that waits longest:"
    times = document["time"]
    width = max(map(len, _WORDS.values()))
    for name in NAMES:
        if times[name]:
            bar = "#" * max(1, round(times[name] * _BAR))
            yield f"  {_WORDS[name].ljust(width)}  {times[name]:>4.0%}  {bar}"
    rule = document["rule"]
    if rule is not None:
        yield ""
        yield from _rule(rule)
        if document["wants"] is not None or rule["key"] in document.get("demand", {}):
            yield from _wants(rule["kind"], document["wants"])
    predicted = document["predicted"]
    if predicted is not None:
        yield ""
        part = f"{predicted['throttled_part']:.0%}"
        yield f"if quotas were enforced, it would wait {part} of its time ({predicted['assumed']})"
        yield from _rule(predicted["rule"])
    if document["neighbours"]:
        kind = rule["kind"] if rule else "produce"
        yield ""
        yield "shares this budget:"
        for one in document["neighbours"]:
            yield f"  {printable(_name(one))}  {amount(kind, one['rate'])}"
    yield ""
    yield from _connections(document["connections"], document["connections_total"])


def _rule(rule: Document) -> Iterator[str]:
    kind = rule["kind"]
    enforced = "enforced" if rule["enforced"] else "not enforced"
    yield f"rule: {rule['key']} {amount(kind, rule['value'])} of {printable(rule['entity'])}, {enforced}"
    if rule["set_by"]:
        yield f"  set by {printable(rule['set_by'])}{' at ' + rule['set_at'] if rule['set_at'] else ''}"


def _wants(kind: str, wants: Document | None) -> Iterator[str]:
    """Yield what it asks for, and what it would wait with another limit, as far as that is known."""
    if wants is None:
        yield "how much it asks for is not known, nor what it would wait with another limit"
        return
    if wants["at_least"]:
        yield f"took up to {amount(kind, wants['rate'])}; how much more it asks for is not known"
    else:
        yield f"asks for at most about {amount(kind, wants['rate'])}, if {wants['assumed']}"
    waits = wants["wait_seconds_per_minute"]
    if waits is None:
        yield "  what it would wait with another limit is not known"
        return
    for times, seconds in waits.items():
        yield f"  with {times} times the limit it waits at most {duration(seconds)} of each minute"


def _connections(connections: Sequence[Document], total: int) -> Iterator[str]:
    yield f"connections: {total}"
    for one in connections[:_CONNECTIONS_SHOWN]:
        parts = ", ".join(
            f"{name} {part:.0%}" for name, part in one["time"].items() if name != "idle" and part >= 0.005
        )
        broker = "any broker" if one["broker"] < 0 else f"broker {one['broker']}"
        library = f"  {printable(one['library'])}" if one.get("library") else ""
        member = f"  at {printable(one['member'])}" if "member" in one else ""
        yield f"  {printable(one['peer'])}  {broker}  {parts or 'idle'}{library}{member}"
    if total > _CONNECTIONS_SHOWN:
        yield f"  and {total - _CONNECTIONS_SHOWN} more; --format json has up to {len(connections)}"


def _name(one: Document) -> str:
    user = f"{one['user']} " if one["user"] not in ("", "ANONYMOUS") else ""
    return f"{user}{one['client_id'] or '(no client id)'}"
