"""`/v1/client` (docs/api.md) as a value. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from proxy.explain.wants import Demand
from proxy.v1.documents import Broker, Rule, broker_of, rule_of, times_of
from proxy.v1.fields import Fields

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
