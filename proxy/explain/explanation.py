"""One client's explanation as a document for JSON: the sentence, its time, its rule, its neighbours, its wants."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType

from commandline.amounts import rate, size
from proxy.explain import documents, parts
from proxy.explain.budgets import Budgets
from proxy.explain.documents import ClientDocument, ClientRow, Level, Neighbour
from proxy.explain.latencies import OwnReport, open_loop
from proxy.explain.latencies import main_rule as predicted_rule
from proxy.explain.parts import SECONDS, amount, part_text
from proxy.explain.report import BrokerReport, ClientReport, ConnectionReport, OwnBroker, part_of, waited_part
from proxy.explain.rules import InForce, Rule, class_of, coming, entity_text, in_force
from proxy.explain.sentence import Facts, sentence, would_bind
from proxy.explain.wants import NO_DEMAND, Demand, demand_row, wants
from quotas.definitions.classes import REPLICATION_BUCKET
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import BucketKey, Entity
from quotas.definitions.kinds import BY_NAME, BYTE_RATES, CLIENT_KEYS, REPLICATION

# ----------------------------------------------------------------------------------------------------
# The sentences about a client's waits with enforcement, while quotas are only observed.


def would_wait(client_id: str, predicted: documents.Predicted, level: Level | None = None) -> str:
    """Return sentences on how long a client would wait if quotas were enforced, and for which limit or capacity."""
    name, rule = client_id or "(no client id)", predicted.rule
    said = None if level is None else would_bind(level)
    limit = f"for {rule.key} {amount(rule.kind, rule.value)} of {rule.entity}" if said is None else said
    text = (
        f"If quotas were enforced, {name} would wait {part_text(predicted.throttled_part)} of its time {limit}, "
        f"assuming that {predicted.assumed}."
    )
    if not predicted.admitted_rate or not predicted.backlog_bytes:
        return text
    admitted, left = rate(predicted.admitted_rate), size(predicted.backlog_bytes)
    return f"{text} If it sent at its rate whatever happens, {admitted} would pass, and {left} would be left so far."


# Less is the error of a clock, or of one request.
_WAITED_MIN: Final = 0.002


class Origin(NamedTuple):
    """Who has set a limit, and when.

    Args:
        by: a principal with its address, a file's name, or the cluster.
        at: the time, in ISO 8601; "" if unknown.
    """

    by: str
    at: str


# Of replication: a setting, or a config of the cluster, which are not told apart here.
_NO_ORIGIN: Final = Origin("", "")


class Context(NamedTuple):
    """The values that an explanation needs beside the client's own report.

    Args:
        window: the window of the report: TEN_SECONDS, MINUTE or QUARTER of `proxy.explain.parts`.
        enforcing: whether quotas are enforced.
        mutations_rate: the limit of all clients' partition mutations, in partitions/s; None without one.
        origin: returns who has set an entity's limit; the entity is None for a setting.
        neighbours: returns the clients that share the budget of a rule, this one included, the largest first.
        brokers: all brokers' response times.
        own: Sluice's own CPU time and delays.
        member: whether this is one member of a fleet.
        now: the time of the report.
        backlogs: by rule, the bytes that all of its clients would have left to send if it were enforced.
        level: what has kept the client's class from using more of a capacity; None without one.
        lends: whether capacities hold in this process, if any are stated.
    """

    window: int
    definitions: Definitions
    enforcing: bool
    mutations_rate: float | None
    origin: Callable[[Entity | None, str], Origin]
    neighbours: Callable[[Rule], Sequence[Neighbour]]
    brokers: Sequence[BrokerReport]
    now: datetime
    own: OwnReport | None = None
    member: bool = False
    backlogs: Mapping[Rule, float] = {}
    level: Level | None = None
    lends: bool = True


CAPACITIES_WITHOUT_EFFECT: Final = (
    'Capacities are stated, and do not hold here: they need quotas.policy = "schedule".'
)


def explain(client: ClientReport, context: Context) -> ClientDocument:
    """Return the `/v1/client` document of one client."""
    worst = client.connections[0] if client.connections else None
    times = client.times if worst is None else worst.times
    rule = main_rule(client)
    shown = None if rule is None else _rule(rule, client, context)
    neighbours = () if rule is None else tuple(context.neighbours(rule))
    level = context.level
    asked = None
    if shown is not None:
        asked = wants(_demand(client, shown.key), _allowed(shown, level), waited_part(times))
    broker = next((one for one in context.brokers if worst and one.broker == worst.broker), None)
    facts = Facts(
        *(client, context.window, times, rule, shown, asked, neighbours, broker, context.own, context.member),
        level if shown is not None else None,
    )
    predicted = _predicted(client, context)
    said = [sentence(facts)]
    if predicted is not None:
        said.append(would_wait(client.client_id, predicted, None if context.enforcing else level))
    if not context.lends and context.definitions.capacities:
        said.append(CAPACITIES_WITHOUT_EFFECT)
    return ClientDocument(
        user=client.user,
        client_id=client.client_id,
        address=client.address,
        window_seconds=SECONDS[context.window],
        time=_times(times),
        time_of_all_connections=_times(client.times),
        rule=shown,
        waits=tuple(
            documents.Wait(kind=rule.kind, key=rule.key, name=rule.name, part=_part(ms, client.times))
            for rule, ms in sorted(client.waits, key=lambda wait: -wait[1])
        ),
        neighbours=neighbours,
        wants=asked,
        demand={key: demand_row(demand) for key, demand in zip(CLIENT_KEYS, client.demands, strict=False)},
        level=level,
        broker=None if broker is None else broker_times(broker),
        broker_ms_per_request=_mean(client.broker_ms, client.probes),
        brokers=tuple(map(_at_broker, client.brokers)),
        sluice=None if context.own is None else own_times(context.own),
        connections_total=client.connections_total,
        connections=tuple(_connection(connection, context.now) for connection in client.connections),
        telemetry=client.telemetry,
        sentence=" ".join(said),
        predicted=predicted,
        enforcing=context.enforcing,
    )


def _predicted(client: ClientReport, context: Context) -> documents.Predicted | None:
    """Return the client's waits if quotas were enforced; None while they are, or if it would not wait."""
    rule = predicted_rule(client.predicted)
    shown = None if context.enforcing or rule is None else _rule(rule, client, context)
    if rule is None or shown is None:
        return None
    admitted: tuple[float | UnsetType, float | UnsetType] = (UNSET, UNSET)
    neighbours = context.neighbours(rule)
    own = _own_rate(client, neighbours)
    if BY_NAME[rule.kind].key in BYTE_RATES and own:
        total = sum(neighbour.rate for neighbour in neighbours)
        admitted = open_loop(own, _allowed(shown, context.level), total, context.backlogs.get(rule, 0.0))
    return documents.Predicted(
        throttled_part=round(client.predicted.part, 4),
        assumed="it waits for its responses",
        rule=shown,
        admitted_rate=admitted[0],
        backlog_bytes=admitted[1],
    )


def summary(client: ClientReport, budgets: Budgets, *, enforcing: bool) -> ClientRow:
    """Return a client's row in `/v1/clients`, the list of all clients.

    Args:
        budgets: the budgets, to which all clients were added.
    """
    rule = main_rule(client)
    return ClientRow(
        user=client.user,
        client_id=client.client_id,
        connections=client.connections_total,
        time=_times(client.connections[0].times if client.connections else client.times),
        time_of_all_connections=_times(client.times),
        rule=None if rule is None else _short_rule(rule, client, budgets, enforcing=enforcing),
        quotas=budgets.quotas(client),
    )


def broker_times(broker: BrokerReport) -> documents.BrokerTimes:
    """Convert a broker's response times to a row of a document."""
    return documents.BrokerTimes(
        broker=broker.broker,
        timed=broker.timed,
        median_ms=round(broker.percentile_ms(0.5), 3),
        p99_ms=round(broker.percentile_ms(0.99), 3),
        median_by_time_ms=round(broker.time_percentile_ms(0.5), 3),
        slowest_ms=round(broker.slowest_ms, 3),
        under_way=broker.under_way,
        oldest_ms=broker.oldest_ms,
    )


def own_times(own: OwnReport) -> documents.OwnTimes:
    """Convert Sluice's own CPU time and delays to a part of a document."""
    return documents.OwnTimes(
        busy=round(own.busy, 4),
        cpu_ms_per_request=round(own.cpu_ms_per_request, 4),
        turn_median_ms=round(own.turn_ms(0.5), 3),
        turn_p99_ms=round(own.turn_ms(0.99), 3),
    )


def main_rule(client: ClientReport) -> Rule | None:
    """Return the rule that the client waits for most; None if it waits for none."""
    whole = sum(client.times)
    rule, ms = max(client.waits, key=lambda wait: wait[1], default=(None, 0.0))
    return rule if whole and ms / whole >= _WAITED_MIN else None


def waited_class(
    client: ClientReport, definitions: Definitions, *, enforcing: bool
) -> tuple[str, BucketKey, int | None] | None:
    """Return the class of a capacity in which the client waits, or would wait; None for none.

    That is its quota key, its bucket, and of replication the broker.
    """
    rule = main_rule(client) if enforcing else predicted_rule(client.predicted)
    if rule is None or definitions.capacity(rule.key) is None:
        return None
    if rule.kind == REPLICATION.name:
        return rule.key, REPLICATION_BUCKET, int(rule.name)
    if rule.name:
        return None
    return rule.key, class_of(definitions, rule.key, client.user, client.client_id), None


def _allowed(rule: documents.Rule, level: Level | None) -> float:
    """Return the limit of a rule; in a capacity, what the class had instead while it waited."""
    return rule.value if level is None else max(level.has + level.lent, 1.0)


def _demand(client: ClientReport, key: str) -> Demand:
    """Return the client's demand of the kind of a quota key; an empty `Demand` for kinds without a rate."""
    return client.demands[CLIENT_KEYS.index(key)] if client.demands and key in CLIENT_KEYS else NO_DEMAND


def _own_rate(client: ClientReport, neighbours: Sequence[Neighbour]) -> float:
    name = client.user, client.client_id
    return sum(one.rate for one in neighbours if (one.user, one.client_id) == name)


def _at_broker(one: OwnBroker) -> documents.AtBroker:
    return documents.AtBroker(
        broker=one.broker,
        connections=one.connections,
        waited=round(waited_part(one.times), 4),
        at_broker=round(part_of(one.times, parts.BROKER), 4),
        ms_per_request=_mean(one.ms, one.requests),
    )


def _mean(ms: float, requests: float) -> float | None:
    return round(ms / requests, 3) if requests else None


def _times(times: Sequence[float]) -> documents.Times:
    return documents.Times(*(round(part_of(times, index), 4) for index in range(len(parts.NAMES))))


def _part(ms: float, times: Sequence[float]) -> float:
    whole = sum(times)
    return round(ms / whole, 4) if whole else 0.0


def _rule(rule: Rule, client: ClientReport, context: Context) -> documents.Rule | None:
    """Return a rule with the limit that applies to the client now; None if the limit is gone."""
    found = in_force(rule, context.definitions, client.user, client.client_id, context.mutations_rate)
    if found is None:
        return None
    origin = origin_of(found, context.origin)
    changes_at, then = coming(found, context.definitions, context.now)
    return documents.Rule(
        kind=rule.kind,
        key=rule.key,
        entity=entity_text(found),
        value=found.value,
        setting=found.setting,
        set_by=origin.by,
        set_at=origin.at,
        changes_at=changes_at,
        then=then,
        enforced=context.enforcing,
    )


def origin_of(found: InForce, origin: Callable[[Entity | None, str], Origin]) -> Origin:
    """Return who has set a limit; unknown for replication, whose limits are not set in Sluice."""
    return _NO_ORIGIN if found.rule.kind == REPLICATION.name else origin(found.entity, found.setting)


def _short_rule(
    rule: Rule, client: ClientReport, budgets: Budgets, *, enforcing: bool
) -> documents.ShortRule:
    found = budgets.in_force(rule, client)
    return documents.ShortRule(
        kind=rule.kind,
        key=rule.key,
        name=rule.name,
        entity="" if found is None else entity_text(found),
        value=None if found is None else found.value,
        enforced=enforcing,
    )


def _connection(connection: ConnectionReport, now: datetime) -> documents.ConnectionRow:
    until = now + timedelta(milliseconds=connection.waits_ms) if connection.waits_ms else None
    return documents.ConnectionRow(
        peer=connection.peer,
        broker=connection.broker,
        seconds=round(connection.open_ms / 1000, 1),
        time=_times(connection.times),
        library=connection.library,
        batch_bytes=round(connection.batch_bytes) or None,
        in_flight=connection.in_flight,
        in_flight_max=connection.in_flight_max,
        acks_all=connection.acks_all,
        waits_until=None
        if until is None
        else until.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )
