"""`/v1/client` of several members, made one document. Pure.

The client is shown by the member whose connection of it waits longest: `time`, `rule`, `predicted`, `broker`, `sluice`
and the first sentence are that member's. What can be added up is of all members: connections, brokers, waits,
neighbours, what it takes and asks for, and the time of all connections, in which a member counts with its connections'
seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final, NamedTuple

from commandline.amounts import count
from proxy.explain.parts import NAMES, amount, part_text
from proxy.explain.wants import Demand
from proxy.v1.detail import CONNECTIONS_MAX, Detail, Wants, detail
from proxy.v1.documents import BROKERS_MAX, times_of, waited
from proxy.v1.fields import DocumentError, Fields
from proxy.v1.merging import connection_order, merge_neighbours, merge_wants, merged_demands, worst
from proxy.v1.missing import missing_of_members
from proxy.v1.verdict import verdict

Document = Mapping[str, Any]

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
