"""The documents of /v1 (docs/api.md) as values. Pure; what a version does not offer is empty or None."""

from typing import Final, NamedTuple

from proxy.explain.parts import HELD, IDLE, MUTED, NAMES
from proxy.v1.bounds import CLIENTS_MAX, MEMBERS_MAX
from proxy.v1.fields import Fields

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
