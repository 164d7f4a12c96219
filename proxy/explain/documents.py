"""The documents of `/v1` (docs/api.md): one struct each, for the process that writes it and for all readers. Pure.

A field may be added, and none is removed or changes its type, since members of several versions are read together:
a reader ignores fields that it does not know, and a field that an older version does not write has a default. What
identifies a row has none: a row without it is not Sluice's.

Readers bound the bytes of a document before they decode it, and the rows of a list after (`*_MAX`).
"""

import json
import re
from collections.abc import Iterable
from heapq import nlargest
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from commandline.amounts import duration
from proxy.explain.parts import IDLE, NAMES, summed, time_text

LIST_BYTES_MAX: Final = 32 * 1024**2  # of /v1/clients: 10,000 rows are about 8 MB
RESPONSE_BYTES_MAX: Final = 2 * 1024**2  # of every other document
CLIENTS_MAX: Final = 10_000  # of one list
RULES_MAX: Final = 1_000  # of one list
EVENTS_MAX: Final = 1_000  # of one list
BROKERS_MAX: Final = 1_000
CONNECTIONS_MAX: Final = 100  # of one client: those that wait longest
QUOTAS_MAX: Final = 8  # that match one client
DISAGREEMENTS_MAX: Final = 8  # of one member of a fleet
CAPACITIES_MAX: Final = 200  # of one list
CLASSES_MAX: Final = 50  # of one capacity
WAITS_MAX: Final = 50  # of one client
MEMBERS_MAX: Final = 64  # of a fleet; further ones are counted, and not asked
WORKERS_MAX: Final = 256
_OVER_MIN: Final = 1.1  # of a limit
SLOW_MS: Final = 100.0  # a broker whose p99 is below that does not make a client slow
_KINDS_MAX: Final = 64
_NOTHING_SEEN: Final = (0.0,) * IDLE + (1.0,)

_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_T = TypeVar("_T")
Text = Annotated[str, Meta(max_length=40_000)]  # a client id has at most 32,767 bytes
Part = Annotated[float, Meta(ge=0, le=1)]
Whole = Annotated[
    int, Meta(ge=-(2**53), le=2**53)
]  # what a float can hold: sums and medians of members stay numbers


class DocumentError(Exception):
    """What a member sends is not a document as docs/api.md describes it; the message names the field."""


def encode(document: msgspec.Struct | msgspec.Raw) -> bytes:
    """Return a document as JSON.

    >>> encode(Missing(2, "it does not run"))
    b'{"worker":2,"problem":"it does not run"}'
    """
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:  # half of a surrogate pair, as in the name of a file that is not UTF-8
        return json.dumps(msgspec.to_builtins(document)).encode()


def decode(body: bytes, kind: type[_T]) -> _T:
    """Decode the JSON of a `/v1` document into `kind`; unknown fields are ignored. The caller bounds its length.

    >>> decode(b'{"worker": 2, "problem": "it has ended", "new": 1}', Missing)
    Missing(worker=2, problem='it has ended', member=UNSET)
    >>> decode(b'{"worker": "2"}', Missing)
    Traceback (most recent call last):
    proxy.explain.documents.DocumentError: Expected `int`, got `str` - at `$.worker`

    Raises:
        DocumentError: it is not such a document.
    """
    try:
        return _decode(body, kind)
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        raise DocumentError("it is not JSON") from None
    # Half of a surrogate pair is valid in JSON and in no page.
    return _decode(_SURROGATE.sub(lambda half: f"\\\\u{ord(half[0]):04x}", text).encode(), kind)


def _decode(body: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise DocumentError(str(error)) from None


class Missing(msgspec.Struct, frozen=True):
    """A worker process whose figures a document lacks.

    Args:
        worker: its number, from 1.
        problem: why they are missing, such as "no response within 4 s".
        member: the fleet member whose worker it is; only set by a command that reads several members.
    """

    worker: Whole
    problem: Text
    member: str | UnsetType = UNSET


class Document(msgspec.Struct, kw_only=True):
    """A document of `/v1`: the base class with the fields that all of them have."""

    missing: tuple[Missing, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """The JSON of an error response (status 404 or 503), which says why there is no such document now."""

    error: Text
    missing: tuple[Missing, ...] = ()


# ----------------------------------------------------------------------------------------------------
# Rows that several documents have.


class Times(msgspec.Struct, frozen=True):
    """A connection's time as shares (0 to 1) of the parts of `proxy.explain.parts`; all 0 if nothing was seen of it."""

    held: Part = 0.0
    muted: Part = 0.0
    sluice: Part = 0.0
    broker: Part = 0.0
    poll: Part = 0.0
    client: Part = 0.0
    idle: Part = 0.0

    @property
    def parts(self) -> tuple[float, ...]:
        """The shares (0 to 1) in the order of `parts.NAMES`; only idle where nothing was seen.

        >>> Times(muted=0.5, idle=0.5).parts, Times().parts[IDLE]
        ((0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.5), 1.0)
        """
        found = (self.held, self.muted, self.sluice, self.broker, self.poll, self.client, self.idle)
        return found if any(found) else _NOTHING_SEEN

    @property
    def waited(self) -> float:
        """The share of the time (0 to 1) that the connection waits for quotas: it is held or muted."""
        return self.held + self.muted

    @property
    def waiting_order(self) -> tuple[float, float]:
        """Sort key, higher for connections that wait for quotas for a larger share of time, then for less idle ones."""
        return self.waited, -self.parts[IDLE]


assert Times.__struct_fields__ == NAMES


class _Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The kind, key and entity of a limit, which several documents have.

    Args:
        kind: produce, fetch, request, mutation, topic, connection or replication.
        key: the quota key.
        entity: whose limit it is, for people.
    """

    kind: Text
    key: Text
    entity: Text = ""
    enforced: bool = True

    @property
    def holder(self) -> str:
        """The entity that has the limit, as text for people."""
        return self.entity


class Rule(_Limit, frozen=True, kw_only=True):
    """A limit in force, and who has set it.

    Args:
        value: the limit, in the key's unit.
        setting: the setting in `[quotas]` that has the limit; "" if a quota entry has it.
        set_by, set_at: who has set it, and when (ISO 8601); "" if unknown.
        changes_at: when it changes by the times of its entries (ISO 8601), if within a week; "" otherwise.
        then: the limit from `changes_at` on; None if there is none then.
    """

    value: float
    setting: Text = ""
    set_by: Text = ""
    set_at: Text = ""
    changes_at: Text = ""
    then: float | None = None


class ShortRule(_Limit, frozen=True, kw_only=True):
    """The limit that a client in a list waits for.

    Args:
        name: the topic, user or broker that has it; "" for other kinds.
        value: the limit, in the key's unit; None, with an empty entity, if there is no such limit any more.
    """

    value: float | None = None
    name: Text = ""

    @property
    def holder(self) -> str:
        """The entity that has the limit, as text for people."""
        return self.entity or self.name


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that matches a client, with the client's own rate.

    Args:
        value, rate: the limit, and the client's rate, in the key's unit.
        part: the client's share (0 to 1) of the rate of all clients of the budget; None if that rate is 0 or unknown.
        shared_by: whose clients share it: client (none but this one), user, client_id, or all; "" if unknown.
    """

    kind: Text
    key: Text = ""
    entity: Text = ""
    value: float
    rate: float = 0.0
    part: float | None = None
    shared_by: Text = ""

    @property
    def is_over(self) -> bool:
        """Whether the client's own rate is above the limit (`is_over`)."""
        return is_over(self.rate, self.value)


def is_over(rate: float, limit: float) -> bool:
    """Whether a rate is clearly above a limit: by more than 10 %, which windows and bursts do not explain."""
    return rate > _OVER_MIN * limit


class Neighbour(msgspec.Struct, frozen=True):
    """A client that shares a budget, with its rate in bytes/s, percent, or partitions/s."""

    user: Text
    client_id: Text
    rate: float


def largest(neighbours: Iterable[Neighbour], at_most: int) -> tuple[Neighbour, ...]:
    """Return the clients with the highest rates, after adding up the rates of each client."""
    rates = summed(((one.user, one.client_id), one.rate) for one in neighbours)
    return tuple(
        Neighbour(*name, rate) for name, rate in nlargest(at_most, rates.items(), key=lambda item: item[1])
    )


class BrokerTimes(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's response times.

    Args:
        timed: how many of its responses were timed.
        median_by_time_ms: half of the summed time of all requests belongs to requests that took at least this long.
        under_way: how many requests it has now for longer than the time between two visits (`proxy.explain.watch`).
        oldest_ms: the age of the oldest of them, in ms.
    """

    broker: Whole
    timed: Whole = 0
    median_ms: float = 0.0
    p99_ms: float = 0.0
    median_by_time_ms: float = 0.0
    slowest_ms: float = 0.0
    under_way: Whole = 0
    oldest_ms: Whole = 0


# ----------------------------------------------------------------------------------------------------
# /v1/clients, /v1/rules, /v1/brokers


class ClientRow(msgspec.Struct, kw_only=True):
    """One client in the list of all clients.

    Args:
        time: the time of the connection that waits longest.
        rule: the limit that it waits for most; None if it waits for none.
        quotas: the limits that match it, with its rates.
        members: the members where it is connected; only set by a command that reads several members.
    """

    user: Text
    client_id: Text
    connections: Whole = 0
    time: Times = Times()
    time_of_all_connections: Times = Times()
    rule: ShortRule | None = None
    quotas: tuple[Quota, ...] = ()
    members: tuple[str, ...] | UnsetType = UNSET


class ClientsDocument(Document, kw_only=True):
    """`/v1/clients`: all clients, or those of one user."""

    window_seconds: Whole = 0
    enforcing: bool = True
    clients_total: Whole = 0
    clients: tuple[ClientRow, ...] = ()


class RuleRow(Rule, frozen=True, kw_only=True):
    """A limit in the list of all limits, with how much of it is used.

    Args:
        clients: how many clients it applies to; for topics and connection rates, how many have waited for it.
        waiting: how many clients have waited for it in the window.
        rate: the rate of all its clients together, in the key's unit; None for topics and connection rates.
        highest: the rate of its busiest budget, in the key's unit; None for topics and connection rates. A default
            limit has a budget for each client.
    """

    clients: Whole = 0
    waiting: Whole = 0
    rate: float | None = None
    highest: float | None = None


class RulesDocument(Document, kw_only=True):
    """`/v1/rules`: all limits, with the number of their clients."""

    window_seconds: Whole = 0
    enforcing: bool = True
    entities_total: Whole = 0
    rules: tuple[RuleRow, ...] = ()


class BrokersDocument(Document, kw_only=True):
    """`/v1/brokers`: each broker's response times over the last minute."""

    enforcing: bool = True
    brokers: tuple[BrokerTimes, ...] = ()


# ----------------------------------------------------------------------------------------------------
# /v1/capacities


class ClassRow(msgspec.Struct, frozen=True, kw_only=True):
    """A class of a capacity: clients that share a bucket, with what it may use now, in bytes/s.

    Args:
        entity: whose bucket it is, for people.
        key: the quota key of its rate.
        broker: the broker at which its requests are counted; -1 for all brokers together.
        rate: the promised rate; 0 if none is promised.
        ceiling: the rate up to which it may borrow.
        weight: its part of what is left, in proportion to the weights of the others.
        exempt: whether it is counted and never delayed.
        has: what it has of its rate.
        lent: what it has beyond its rate.
        demand: what it could use, at most its ceiling.
        waits: whether it could use more than it has.
    """

    entity: Text
    key: Text = ""
    broker: Whole = -1
    rate: float = 0.0
    ceiling: float = 0.0
    weight: float = 1.0
    exempt: bool = False
    has: float = 0.0
    lent: float = 0.0
    demand: float = 0.0
    waits: bool = False


class CapacityRow(msgspec.Struct, frozen=True, kw_only=True):
    """A capacity, and how it is divided now, in bytes/s.

    Args:
        key: producer_byte_rate for what brokers take from clients, consumer_byte_rate for what they give.
        broker: the broker's id; -1 for all brokers together.
        value: the capacity.
        promised: what classes have of their rates.
        lent: what they have beyond their rates.
        left: what no class can use.
        shrunk: the part (0 to 1) of its rate that each class has: 1 unless more is promised than there is.
        classes_total, waiting: how many classes have a demand, and how many of them could use more.
        classes: those that have or want the most.
    """

    key: Text
    broker: Whole = -1
    value: Annotated[float, Meta(gt=0)]
    promised: float = 0.0
    lent: float = 0.0
    left: float = 0.0
    shrunk: float = 1.0
    classes_total: Whole = 0
    waiting: Whole = 0
    classes: tuple[ClassRow, ...] = ()

    @property
    def place(self) -> str:
        """Whose capacity it is, for people."""
        return "the brokers together" if self.broker < 0 else f"broker {self.broker}"


class CapacitiesDocument(Document, kw_only=True):
    """`/v1/capacities`: the capacities in use, and how they are divided among classes.

    Args:
        divided_by: the member of the fleet that divides them; "" for the process itself.
        problem: why they are not known; "" if they are.
    """

    enforcing: bool = True
    divided_by: Text = ""
    problem: Text = ""
    capacities: tuple[CapacityRow, ...] = ()


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """What has kept a class from using more while it waited, with the means of what it had then, in bytes/s.

    Args:
        binds: `rate` (it borrows nothing), `ceiling`, `capacity` (others use what is left), or `shrunk` (more is
            promised than there is).
        entity: the class, for people.
        shared: whether several client ids count in it.
        broker: whose capacity it is: the broker's id; -1 for all brokers together.
        capacity: the capacity.
        rate, ceiling: those of the class.
        has: what it had of its rate.
        lent: what it had beyond its rate.
        spare: what all rates left of the capacity, to be lent by weight.
        shrunk: the part (0 to 1) of its rate that it had.
    """

    binds: Text
    entity: Text
    shared: bool = False
    broker: Whole = -1
    capacity: float
    rate: float = 0.0
    ceiling: float = 0.0
    has: float = 0.0
    lent: float = 0.0
    spare: float = 0.0
    shrunk: float = 1.0


# ----------------------------------------------------------------------------------------------------
# /v1/client


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that the client has waited for; `part`: the share (0 to 1) of all its connections' time that it took."""

    kind: Text
    key: Text
    name: Text = ""
    part: float = 0.0


class Wants(msgspec.Struct, frozen=True, kw_only=True):
    """How much the client asks for, of the quota that it waits for.

    Args:
        rate: the most that it would take without the limit; with `at_least`, the most that it was seen to take.
        assumed: the assumption behind these bounds, for people.
        wait_seconds_per_minute: the longest that it would wait with 1, 1.5 and 2 times the present limit (the keys);
            None if that is not known.
    """

    rate: float
    at_least: bool = False
    assumed: Text = ""
    wait_seconds_per_minute: Annotated[dict[Text, float], Meta(max_length=_KINDS_MAX)] | None = None


class DemandRow(msgspec.Struct, frozen=True, kw_only=True):
    """The client's demand for one kind of quota, as rates in the quota's unit per second.

    Args:
        taken: the mean rate that it took over the window.
        highest: the highest mean rate that it took over 10 s, or over a minute of a longer window.
        most: the most that it would take without a limit; None if that is not known.
    """

    taken: float = 0.0
    highest: float = 0.0
    most: float | None = None


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """The client's waits if quotas were enforced.

    Args:
        throttled_part: the share of time (0 to 1) that its most waiting connection would wait.
        assumed: the assumption behind it, for people.
        rule: the quota for which it would wait.
        admitted_rate, backlog_bytes: of byte quotas, the rate that would pass, and the bytes that would be left to
            send, if the client kept sending at its rate while throttled.
    """

    throttled_part: float
    assumed: Text
    rule: Rule
    admitted_rate: float | UnsetType = UNSET
    backlog_bytes: float | UnsetType = UNSET


class AtBroker(msgspec.Struct, frozen=True, kw_only=True):
    """The client's connections and requests at one broker.

    Args:
        waited: the share (0 to 1) of its connections' time in which they are throttled (held or muted).
        at_broker: the share (0 to 1) of its connections' time in which the broker has a request.
        ms_per_request: the broker's mean time for a request, in ms; None if none was timed.
    """

    broker: Whole
    connections: Whole = 0
    waited: float = 0.0
    at_broker: float = 0.0
    ms_per_request: float | None = None


class OwnTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Sluice's own load: its CPU time as a share of one core (`busy`), and how long turns of its event loop take."""

    busy: float
    cpu_ms_per_request: float = 0.0
    turn_median_ms: float = 0.0
    turn_p99_ms: float = 0.0


class ConnectionRow(msgspec.Struct, kw_only=True):
    """One connection of the client.

    Args:
        peer: the client's address and port.
        broker: the broker's id; -1 if it is not known.
        seconds: the time since it was opened, in s.
        library: the name and version of the client's software; "" if it has not said them.
        batch_bytes: mean bytes of its Produce requests, or of what it fetches; None before the first.
        in_flight: how many of its requests await a response.
        acks_all: whether its last timed Produce has acks=all.
        waits_until: the end of its present throttle, in ISO 8601; None while it is not throttled.
        member: the member that it is connected to; only set by a command that reads several members.
    """

    peer: Text
    broker: Whole = -1
    seconds: float = 0.0
    time: Times = Times()
    library: Text = ""
    batch_bytes: Whole | None = None
    in_flight: Whole | None = None
    in_flight_max: Whole = 0
    acks_all: bool = False
    waits_until: Text | None = None
    member: str | UnsetType = UNSET


class PushedTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What a client's own library says of the throttle times that it was sent (KIP-714); a client may make it up.

    Args:
        kind: of the requests: produce or fetch.
        average_ms: over all responses of the library's window (Java: 30 to 60 s); None if it does not say it.
        longest_ms: the longest of the same responses; None if it does not say it.
        seconds_ago: when it has said so.
    """

    kind: Text
    average_ms: float | None = None
    longest_ms: float | None = None
    seconds_ago: float = 0.0

    @property
    def text(self) -> str:
        """A sentence without its end.

        >>> PushedTimes(kind="produce", average_ms=118.2, longest_ms=480.0, seconds_ago=12.0).text
        'Its own client library says of its Produce requests: throttled 118 ms on average, 480 ms at most, 12.0 s ago'
        """
        said = ((self.average_ms, "on average"), (self.longest_ms, "at most"))
        times = ", ".join(f"{time_text(ms)} {what}" for ms, what in said if ms is not None)
        which = f"of its {self.kind.capitalize()} requests"
        return f"Its own client library says {which}: throttled {times}, {duration(self.seconds_ago)} ago"


def last_pushed(rows: Iterable[PushedTimes]) -> tuple[PushedTimes, ...]:
    """Return of each kind of request what was said last."""
    found = {one.kind: one for one in sorted(rows, key=lambda one: -one.seconds_ago)}
    return tuple(found[kind] for kind in sorted(found))


class MemberTimes(msgspec.Struct, frozen=True, kw_only=True):
    """A client's connections and time at one member; `admin`: its admin port, as given on the command line."""

    admin: str
    connections_total: Whole
    time: Times


class ClientDocument(Document, kw_only=True):
    """`/v1/client`: where one client's time goes, and why; of one member, or merged from several.

    Args:
        address: the address whose connections it is about; "" for all.
        time: the time of the connection that waits longest; if none waits, of the one that is idle least.
        rule: the limit that it waits for most; None if it waits for none.
        waits: all limits that it has waited for.
        neighbours: of the clients that share the rule's budget, this one included, those with the highest rates.
        wants: how much it asks for of `rule`; None if that is not known.
        demand: its demand for each kind of quota, by quota key.
        level: what its class may use of a capacity; None without a capacity, or if it did not wait.
        broker: the response times of the broker of the connection that `time` is about.
        connections: those of its connections that wait longest.
        telemetry: what its own library has last said of its throttle times, by kind of request.
        members, members_missing: the members that know it, and the `--admin` of those that do not respond; only set
            by a command that reads several members.
    """

    user: Text
    client_id: Text
    address: Text = ""
    window_seconds: Whole
    time: Times = Times()
    time_of_all_connections: Times = Times()
    rule: Rule | None = None
    waits: tuple[Wait, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    wants: Wants | None = None
    demand: Annotated[dict[Text, DemandRow], Meta(max_length=_KINDS_MAX)] = {}
    level: Level | None = None
    broker: BrokerTimes | None = None
    broker_ms_per_request: float | None = None
    brokers: tuple[AtBroker, ...] = ()
    sluice: OwnTimes | None = None
    connections_total: Whole = 0
    connections: tuple[ConnectionRow, ...] = ()
    telemetry: Annotated[tuple[PushedTimes, ...], Meta(max_length=_KINDS_MAX)] = ()
    sentence: Text
    predicted: Predicted | None = None
    enforcing: bool = True
    members: tuple[MemberTimes, ...] | UnsetType = UNSET
    members_missing: tuple[str, ...] | UnsetType = UNSET


# ----------------------------------------------------------------------------------------------------
# /v1/fleet, /v1/status, /v1/enforcement, /v1/events


class UserQuota(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that the clients of a user share, with the sum of their rates."""

    kind: str
    entity: str
    value: float
    rate: float


class UserClient(msgspec.Struct, frozen=True, kw_only=True):
    """One of a user's clients, in the list that `sluice explain --user` prints.

    Args:
        waited: the share of the time (0 to 1) that its most waiting connection waits for quotas.
        members: the members where it is connected.
    """

    client_id: str
    connections: Whole
    waited: float
    time: Times
    rule: ShortRule | None
    members: tuple[str, ...]


class UserDocument(Document, kw_only=True):
    """What `sluice explain --user` prints.

    Args:
        sentence: the explanation, for people.
        waiting: how many clients waited for a hundredth of their time or more.
        quotas: the limits that its clients share.
        clients: its clients, those that wait longest first.
        members, members_missing: the admin ports of the members that responded, and of the others.
    """

    user: str
    window_seconds: Whole
    enforcing: bool
    sentence: str
    clients_total: Whole
    waiting: Whole
    connections_total: Whole
    quotas: tuple[UserQuota, ...]
    clients: tuple[UserClient, ...]
    members: tuple[str, ...]
    members_missing: tuple[str, ...]


class FleetMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member as the fleet's holder sees it.

    Args:
        address: where other members reach it; "" if it cannot be the holder.
        admin: the URL of its admin port; "" if it is not known or has none.
        share: the share (0 to 1) that it may use of each budget that is not in `shares`; None for other members than
            the responding one.
        shares: the shares of budgets that are divided differently, by key.
        reachable: whether the holder has heard of it in the last 5 s.
    """

    name: Text
    run: Text = ""
    address: Text = ""
    admin: Text = ""
    version: Text = ""
    mode: Text = ""
    share: float | None = None
    shares: dict[str, float] = {}
    reachable: bool = True
    silent_seconds: float = 0.0


class FleetDocument(Document, kw_only=True):
    """`/v1/fleet`: what this member knows of its fleet.

    Args:
        member: whether the process is a member of a fleet.
        holder: the address of the fleet's holder.
        problem: why the holder cannot be reached; "" if it can.
        disagreements: a sentence for each fact in which members differ.
    """

    member: bool
    name: Text = ""
    holder: Text = ""
    problem: Text = ""
    members: tuple[FleetMember, ...] = ()
    disagreements: tuple[Text, ...] = ()


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """The last switch of enforcement: when quotas were last switched off or on, by whom and why.

    Args:
        enforcing: whether it was switched on.
        at: the time, in ISO 8601.
        from_: the address that the switch came from; "" if it has none.
    """

    enforcing: bool = False
    at: Text
    by: Text = ""
    from_: Text = msgspec.field(name="from", default="")
    reason: Text = ""

    @property
    def text(self) -> str:
        """When it was switched, by whom and why."""
        by = f" by {self.by}" if self.by else ""
        whence = f" from {self.from_}" if self.from_ else ""
        return f"{self.at}{by}{whence}{f': {self.reason}' if self.reason else ''}"


class StatusDocument(Document, kw_only=True):
    """`/v1/status`: a process's version, mode and state.

    Args:
        member: its name in the fleet; "" for none.
        mode: `enforce` or `observe`.
        enforcing: whether quotas are enforced now.
        ready: why clients cannot be served; "" if they can.
        switched: the last switch of enforcement; None if it was never switched.
        started_at: when the process started, in ISO 8601.
    """

    version: Text = ""
    member: Text = ""
    mode: Text = ""
    enforcing: bool = True
    policy: Text = ""
    scope: Text = ""
    workers: Whole = 1
    ready: Text = ""
    switched: Switched | None = None
    started_at: Text = ""


class EnforcementDocument(StatusDocument, kw_only=True):
    """The response to `POST /v1/enforcement`.

    Args:
        changed: whether the request has changed anything; False if enforcement was so already.
        kept: whether it stays so after a restart of Sluice; else `problem` says why not.
    """

    changed: bool
    kept: bool
    problem: Text


class EventRow(msgspec.Struct, frozen=True):
    """An event; in JSON it also has the fields of its kind (a struct of `proxy.events.kinds`).

    Args:
        at: when it happened, in ISO 8601, UTC.
        text: the event as one sentence, for people.
    """

    id: Whole
    at: Text
    kind: Text
    text: Text


class EventsDocument(Document, kw_only=True):
    """`/v1/events`: the events after a given id, or the latest ones.

    Args:
        run: identifies this start of the process: ids begin with 1 at each.
        last: the id of the latest event.
        lost: how many events after the requested id are no longer kept.
        left_out: by kind, how many were not kept because too many of their kind came.
    """

    run: Text
    last: Whole
    lost: Whole = 0
    left_out: dict[str, Whole] = {}
    enforcing: bool = True
    events: tuple[EventRow, ...] = ()
