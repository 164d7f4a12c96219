"""The documents of /v1 (docs/api.md) as values. Pure; what a version does not offer is empty or None."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from commandline.amounts import duration
from proxy.explain.parts import BROKER, CLIENT, HELD, IDLE, MUTED, NAMES, POLL, SLUICE, amount
from proxy.explain.wants import Demand

# ----------------------------------------------------------------------------------------------------
# Bounds on what is read of members. Pure.


MEMBERS_MAX: Final = 64  # more in /v1/fleet are counted, and not asked
CLIENTS_MAX: Final = 10_000  # of one member's list, and in the history
LIST_BYTES_MAX: Final = 32 * 1024**2  # of /v1/clients: 10,000 rows are about 8 MB
RESPONSE_BYTES_MAX: Final = 2 * 1024**2  # of every other document


# ----------------------------------------------------------------------------------------------------
# Reads fields of a JSON document that another process wrote. Pure.
#
# A member may be broken, or not Sluice at all: whatever is not as docs/api.md says is a DocumentError with
# its path, and
# never reaches a template.


TEXT_CHARACTERS_MAX: Final = 40_000  # a client id has at most 32,767 bytes


class DocumentError(Exception):
    """A member's document is not as docs/api.md says."""


class Fields:
    """The fields of one JSON object.

    Args:
        content: the parsed JSON.
        path: its place, for the error.

    >>> fields = Fields({"rate": 2.5, "many": [{}]}, "/v1/clients")
    >>> fields.number("rate"), fields.number("value", None), len(list(fields.many("many", 10)))
    (2.5, None, 1)
    >>> Fields({"rate": "<b>"}, "/v1/clients").number("rate")
    Traceback (most recent call last):
    console.documents.DocumentError: /v1/clients.rate is not a number
    """

    __slots__ = ("content", "path")

    def __init__(self, content: object, path: str) -> None:
        if not isinstance(content, Mapping):
            raise DocumentError(f"{path} is not an object")
        self.content: Mapping[str, Any] = content
        self.path = path

    def text(self, name: str, default: str = "") -> str:
        """Return a string; null is the default."""
        found = self.content.get(name)
        if found is None:
            return default
        if not isinstance(found, str) or len(found) > TEXT_CHARACTERS_MAX:
            raise self._wrong(name, "a string")
        # A lone surrogate is valid in JSON and in no page.
        return found if found.isascii() else found.encode("utf-8", "backslashreplace").decode()

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean."""
        found = self.content.get(name, default)
        if not isinstance(found, bool):
            raise self._wrong(name, "true or false")
        return found

    def number(self, name: str, default: float | None = 0.0) -> float | None:
        """Return a finite number; null is the default."""
        found = self.content.get(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise self._wrong(name, "a number")
        try:
            value = float(found)
        except OverflowError:
            raise self._wrong(name, "a finite number") from None
        if not math.isfinite(value):
            raise self._wrong(name, "a finite number")
        return value

    def amount(self, name: str) -> float:
        """Return a number; 0 without one."""
        return self.number(name) or 0.0

    def whole(self, name: str, default: int = 0) -> int:
        """Return an integer."""
        return int(self.number(name, default) or 0)

    def one(self, name: str) -> "Fields | None":
        """Return an object; None for null."""
        found = self.content.get(name)
        return None if found is None else Fields(found, f"{self.path}.{name}")

    def many(self, name: str, at_most: int) -> Iterator["Fields"]:
        """Yield the objects of a list, at most so many."""
        found = self.content.get(name)
        if found is None:
            return
        if not isinstance(found, list):
            raise self._wrong(name, "a list")
        place = f"{self.path}.{name}[]"
        for content in found[:at_most]:
            yield Fields(content, place)

    def texts(self, name: str, at_most: int) -> Iterator[str]:
        """Yield the strings of a list, at most so many."""
        found = self.content.get(name) or []
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self._wrong(name, "a list of strings")
        yield from found[:at_most]

    def _wrong(self, name: str, expected: str) -> DocumentError:
        return DocumentError(f"{self.path}.{name} is not {expected}")


QUOTAS_MAX: Final = 8  # of one client
BROKERS_MAX: Final = 1000
RULES_MAX: Final = 1000
EVENTS_MAX: Final = 1000
_NOTHING_SEEN: Final = (0.0,) * IDLE + (1.0,)


class Rule(NamedTuple):
    """The rule that a client waits for."""

    kind: str
    key: str
    name: str
    entity: str
    value: float | None
    enforced: bool
    setting: str
    set_by: str
    set_at: str


class Quota(NamedTuple):
    """A limit that matches a client, with the client's own rate.

    Args:
        part: of the budget's use that is this client's.
        shared_by: whose clients share the budget: client (none but this one), user, client_id, or all; "" if unknown.
    """

    kind: str
    entity: str
    value: float
    rate: float
    part: float | None
    shared_by: str = ""


class Client(NamedTuple):
    """One client's row.

    Args:
        times: the parts of the connection that waits longest.
        all_times: of all its connections.
        members: where it is seen.
    """

    user: str
    client_id: str
    connections: int
    times: tuple[float, ...]
    all_times: tuple[float, ...]
    rule: Rule | None
    quotas: tuple[Quota, ...]
    members: tuple[str, ...]


class ClientList(NamedTuple):
    """`/v1/clients` of one member, or of all."""

    total: int
    clients: tuple[Client, ...]


class Broker(NamedTuple):
    """A broker's response times over the last minute."""

    broker: int
    timed: int
    median_ms: float
    p99_ms: float


class Event(NamedTuple):
    """An event of a member."""

    id: int
    at: str
    kind: str
    text: str


class EventList(NamedTuple):
    """`/v1/events` since the last one that was read."""

    run: str
    last: int
    lost: int
    events: tuple[Event, ...]


class Status(NamedTuple):
    """The status of a member."""

    version: str
    member: str
    mode: str
    enforcing: bool
    switched: str
    policy: str
    scope: str
    workers: int
    started_at: str
    ready: str


class FleetMember(NamedTuple):
    """A member as the fleet knows it."""

    name: str
    admin: str


class Fleet(NamedTuple):
    """`/v1/fleet`: whom else to ask."""

    name: str
    holder: str
    members: tuple[FleetMember, ...]
    disagreements: tuple[str, ...]


class RuleRow(NamedTuple):
    """A quota with its use."""

    kind: str
    key: str
    entity: str
    value: float
    set_by: str
    set_at: str
    enforced: bool
    clients: int
    waiting: int
    rate: float | None


def waited(times: tuple[float, ...]) -> float:
    """The part of a connection's time that it waits for quotas."""
    return times[HELD] + times[MUTED]


def clients(content: object, member: str) -> ClientList:
    """Read /v1/clients.

    Raises:
        DocumentError: it is not such a document.
    """
    fields = Fields(content, "/v1/clients")
    rows = tuple(_client(row, (member,)) for row in fields.many("clients", CLIENTS_MAX))
    return ClientList(max(fields.whole("clients_total"), len(rows)), rows)


def _client(row: Fields, members: tuple[str, ...]) -> Client:
    times = times_of(row, "time")
    whole = times_of(row, "time_of_all_connections") if "time_of_all_connections" in row.content else times
    return Client(
        row.text("user"),
        row.text("client_id"),
        row.whole("connections"),
        times,
        whole,
        rule_of(row.one("rule")),
        tuple(_quota(one) for one in row.many("quotas", QUOTAS_MAX)),
        members,
    )


def times_of(row: Fields, name: str) -> tuple[float, ...]:
    """Return the parts of a time, of a whole of 1."""
    found = row.one(name)
    if found is None:
        return _NOTHING_SEEN
    times = tuple(min(1.0, max(0.0, found.amount(part))) for part in NAMES)
    whole = sum(times)
    return tuple(part / whole for part in times) if whole else _NOTHING_SEEN


def rule_of(found: Fields | None) -> Rule | None:
    """Return a rule; None for null."""
    if found is None:
        return None
    return Rule(
        found.text("kind"),
        found.text("key"),
        found.text("name"),
        found.text("entity"),
        found.number("value", None),
        found.flag("enforced", True),
        found.text("setting"),
        found.text("set_by"),
        found.text("set_at"),
    )


def _quota(one: Fields) -> Quota:
    return Quota(
        one.text("kind"),
        one.text("entity"),
        one.amount("value"),
        one.amount("rate"),
        one.number("part", None),
        one.text("shared_by"),
    )


def brokers(content: object) -> tuple[Broker, ...]:
    """Read /v1/brokers."""
    return tuple(broker_of(one) for one in Fields(content, "/v1/brokers").many("brokers", BROKERS_MAX))


def broker_of(one: Fields) -> Broker:
    """Read one broker."""
    return Broker(one.whole("broker"), one.whole("timed"), one.amount("median_ms"), one.amount("p99_ms"))


def events(content: object) -> EventList:
    """Read /v1/events."""
    fields = Fields(content, "/v1/events")
    found = tuple(
        Event(one.whole("id"), one.text("at"), one.text("kind"), one.text("text"))
        for one in fields.many("events", EVENTS_MAX)
    )
    return EventList(fields.text("run"), fields.whole("last"), fields.whole("lost"), found)


def status(content: object) -> Status:
    """Read /v1/status."""
    fields = Fields(content, "/v1/status")
    enforcing = fields.flag("enforcing", True)
    return Status(
        fields.text("version"),
        fields.text("member"),
        fields.text("mode"),
        enforcing,
        _switched(fields.one("switched")),
        fields.text("policy"),
        fields.text("scope"),
        fields.whole("workers", 1),
        fields.text("started_at"),
        fields.text("ready"),
    )


def _switched(found: Fields | None) -> str:
    """Return when enforcement was switched, by whom and why."""
    if found is None:
        return ""
    words = [found.text("at")]
    for before, name in (("by", "by"), ("from", "from")):
        if value := found.text(name):
            words.append(f"{before} {value}")
    text = " ".join(filter(None, words))
    return f"{text}: {found.text('reason')}" if found.text("reason") else text


def fleet(content: object) -> Fleet:
    """Read /v1/fleet."""
    fields = Fields(content, "/v1/fleet")
    members = tuple(
        FleetMember(one.text("name"), one.text("admin").rstrip("/"))
        for one in fields.many("members", MEMBERS_MAX)
    )
    if not fields.flag("member"):
        return Fleet("", "", (), ())
    return Fleet(
        fields.text("name"), fields.text("holder"), members, tuple(fields.texts("disagreements", QUOTAS_MAX))
    )


def rules(content: object) -> tuple[RuleRow, ...]:
    """Read /v1/rules."""
    found = Fields(content, "/v1/rules").many("rules", RULES_MAX)
    return tuple(
        RuleRow(
            one.text("kind"),
            one.text("key"),
            one.text("entity"),
            one.amount("value"),
            one.text("set_by"),
            one.text("set_at"),
            one.flag("enforced", True),
            one.whole("clients"),
            one.whole("waiting"),
            one.number("rate", None),
        )
        for one in found
    )


# ----------------------------------------------------------------------------------------------------
# The field `missing` of the documents of /v1 (docs/api.md): worker processes whose clients they lack. Pure.


_WORKERS_MAX: Final = 256
_NAMED_MAX: Final = 4
_PROBLEM_CHARACTERS_MAX: Final = 100


def missing_workers(content: object) -> tuple[str, ...]:
    """Return each worker with its problem; none of a version that does not say it.

    >>> missing_workers({"missing": [{"worker": 2, "problem": "no response within 4 s"}]})
    ('worker 2 (no response within 4 s)',)

    Raises:
        DocumentError: the field is not as it should be.
    """
    found = Fields(content, "document").many("missing", _WORKERS_MAX)
    return tuple(
        f"worker {one.whole('worker')} ({one.text('problem')[:_PROBLEM_CHARACTERS_MAX]})" for one in found
    )


def missing_of_members(documents: Iterable[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the field as the commands print it: each worker with its member.

    Args:
        documents: of each member, with its admin port as given.

    >>> missing_of_members([("gw-1:19080", {"missing": [{"worker": 2, "problem": "no response"}]})])
    [{'member': 'gw-1:19080', 'worker': 2, 'problem': 'no response'}]

    Raises:
        DocumentError: a field is not as it should be.
    """
    return [
        {"member": admin, **row.content}
        for admin, document in documents
        for row in Fields(document, "document").many("missing", _WORKERS_MAX)
    ]


def lacks(name: str, missing: Iterable[str]) -> str:
    """Return what people are told of a member that lacks workers.

    >>> lacks("gw-1", ("worker 2 (it does not run)",))
    'gw-1 lacks worker 2 (it does not run): clients connected there are not shown'
    """
    found = list(missing)
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return f"{name} lacks {', '.join(found[:_NAMED_MAX])}{more}: clients connected there are not shown"


# ----------------------------------------------------------------------------------------------------
# `/v1/client` (docs/api.md) as a value. Pure.


CONNECTIONS_MAX: Final = 100
NEIGHBOURS_MAX: Final = 20
_WAITS_MAX: Final = 50
_TIMES_MAX: Final = 8
_KINDS_MAX: Final = 8


class Connection(NamedTuple):
    """One connection of the client.

    Args:
        broker: -1: any.
        seconds: since it was opened.
        batch_bytes: mean bytes of its Produce requests, or of what it fetches.
        waits_until: ISO 8601; "" while it does not wait.
    """

    peer: str
    broker: int
    seconds: float
    times: tuple[float, ...]
    library: str
    batch_bytes: float | None
    in_flight: float | None
    waits_until: str
    member: str


class Neighbour(NamedTuple):
    """A client that shares the rule's budget."""

    user: str
    client_id: str
    rate: float


class Wait(NamedTuple):
    """A quota that it has waited for; `part` of all connections' time."""

    kind: str
    key: str
    name: str
    part: float


class Wants(NamedTuple):
    """The rate that the client would take, or with `at_least` the highest that was seen.

    Args:
        waits: the seconds of each minute that it would wait at most, by the limit's multiple; empty if not known.
    """

    rate: float
    at_least: bool
    assumed: str
    waits: tuple[tuple[str, float], ...]


class Detail(NamedTuple):
    """One client at one member.

    Args:
        demands: by key of quotas; of a version without them empty.
    """

    member: str
    user: str
    client_id: str
    sentence: str
    times: tuple[float, ...]
    all_times: tuple[float, ...]
    rule: Rule | None
    waits: tuple[Wait, ...]
    neighbours: tuple[Neighbour, ...]
    wants: Wants | None
    demands: Mapping[str, Demand]
    broker: Broker | None
    broker_ms: float | None
    connections: tuple[Connection, ...]
    connections_total: int


def detail(content: object, member: str) -> Detail:
    """Read /v1/client.

    Raises:
        DocumentError: it is not such a document.
    """
    fields = Fields(content, "/v1/client")
    broker = fields.one("broker")
    return Detail(
        member,
        fields.text("user"),
        fields.text("client_id"),
        fields.text("sentence"),
        times_of(fields, "time"),
        times_of(fields, "time_of_all_connections"),
        rule_of(fields.one("rule")),
        tuple(
            Wait(one.text("kind"), one.text("key"), one.text("name"), one.amount("part"))
            for one in fields.many("waits", _WAITS_MAX)
        ),
        tuple(
            Neighbour(one.text("user"), one.text("client_id"), one.amount("rate"))
            for one in fields.many("neighbours", NEIGHBOURS_MAX)
        ),
        _wants(fields.one("wants")),
        _demands(fields.one("demand")),
        None if broker is None else broker_of(broker),
        fields.number("broker_ms_per_request", None),
        tuple(_connection(one, member) for one in fields.many("connections", CONNECTIONS_MAX)),
        fields.whole("connections_total"),
    )


def _wants(found: Fields | None) -> Wants | None:
    if found is None:
        return None
    waits = found.one("wait_seconds_per_minute")
    rows = (
        ()
        if waits is None
        else tuple((name, waits.amount(name)) for name in list(waits.content)[:_TIMES_MAX])
    )
    return Wants(found.amount("rate"), found.flag("at_least"), found.text("assumed"), rows)


def _demands(found: Fields | None) -> Mapping[str, Demand]:
    if found is None:
        return {}
    some = ((key, found.one(key)) for key in list(found.content)[:_KINDS_MAX])
    return {
        key: Demand(one.amount("taken"), one.amount("highest"), one.number("most", None))
        for key, one in some
        if one is not None
    }


def _connection(one: Fields, member: str) -> Connection:
    return Connection(
        one.text("peer"),
        one.whole("broker", -1),
        one.amount("seconds"),
        times_of(one, "time"),
        one.text("library"),
        one.number("batch_bytes", None),
        one.number("in_flight", None),
        one.text("waits_until"),
        member,
    )


# ----------------------------------------------------------------------------------------------------
# Why a client waits, in a few words, from its row in the list. Pure.
#
# The sentence of /v1/client says it whole; there is not one for each of 10,000 rows.


WAITS_MIN: Final = 0.01
_MOSTLY: Final = 0.5
_SLUICE_MIN: Final = 0.2
_OVER_MIN: Final = 1.1  # of a limit
SLOW_MS: Final = 100.0  # a broker's p99
PART_NAMES: Final = {
    "held": "held before its payload is read",
    "muted": "muted for a quota",
    "client": "on the client",
    "sluice": "in Sluice",
    "broker": "at the broker",
    "poll": "waits for records by its own wish",
    "idle": "asks for nothing",
}


class Cause(NamedTuple):
    """A cause.

    Args:
        kind: quota, observed, broker, client, sluice, over (a limit, without waiting), or calm.
        part: of the time that is meant.
    """

    kind: str
    text: str
    part: float


def cause(client: Client, brokers: Sequence[Broker]) -> Cause:
    """Return why the client waits, or what it does."""
    times, rule = client.times, client.rule
    wait = waited(times)
    if wait >= WAITS_MIN and rule is not None:
        return Cause("quota" if rule.enforced else "observed", limit_text(rule), wait)
    if wait >= WAITS_MIN:
        return Cause("quota", "a quota that is gone now", wait)
    slow = max(brokers, key=lambda broker: broker.p99_ms, default=None)
    if times[BROKER] >= _MOSTLY and slow is not None and slow.p99_ms >= SLOW_MS:
        text = f"at its broker; the slowest is broker {slow.broker}, p99 {duration(slow.p99_ms / 1000)}"
        return Cause("broker", text, times[BROKER])
    if times[CLIENT] >= _MOSTLY:
        return Cause("client", "slow client: reads or sends slowly", times[CLIENT])
    if times[SLUICE] >= _SLUICE_MIN:
        return Cause("sluice", "its requests are in Sluice", times[SLUICE])
    limit = heaviest(client)
    if limit is not None and is_over(limit):
        return Cause("over", f"over its {limit.kind} quota, and hardly waits", 0.0)
    return _calm(times)


def _calm(times: Sequence[float]) -> Cause:
    busiest = max((part for part in range(len(NAMES)) if part != IDLE), key=lambda part: times[part])
    if times[busiest] < _SLUICE_MIN:
        return Cause("calm", "asks for little", times[IDLE])
    words = {BROKER: "at its broker", POLL: "waits for records", CLIENT: "partly on the client"}
    return Cause("calm", words.get(busiest, "in Sluice"), times[busiest])


def trouble(client: Client, brokers: Sequence[Broker]) -> float:
    """Sort key: clients that wait for a quota, those with another cause, those over a limit, then the busiest."""
    found = cause(client, brokers)
    rank = {"quota": 2.0, "observed": 2.0, "calm": 0.0}.get(found.kind, 1.0)
    return rank + (found.part if rank else 1 - client.times[IDLE]) / 1.001


def limit_text(rule: Rule) -> str:
    """Return a rule in words: key, value, entity."""
    value = "" if rule.value is None else f" {amount(rule.kind, rule.value)}"
    whose = rule.entity or rule.name
    return f"{rule.key}{value}{f' of {whose}' if whose else ''}"


def is_over(quota: Quota) -> bool:
    """Whether the client's own rate is above the limit, and not only by what windows and bursts make of it."""
    return quota.rate > _OVER_MIN * quota.value


def heaviest(client: Client) -> Quota | None:
    """Return the limit that the client is closest to, or furthest over."""
    found = [quota for quota in client.quotas if quota.value > 0]
    return max(found, key=lambda quota: quota.rate / quota.value, default=None)
