"""One client's explanation as a document for JSON: the sentence, its time, its rule, its neighbours, its wants."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from proxy.explain import parts
from proxy.explain.neighbours import Neighbour
from proxy.explain.report import BrokerReport, ClientReport, ConnectionReport, part_of, waited_part
from proxy.explain.rules import InForce, Rule, entity_text, in_force
from proxy.explain.sentence import Facts, sentence
from proxy.explain.wants import Wants, wants
from proxy.explain.windows import SECONDS
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity

__all__ = ["Context", "Origin", "broker_document", "explain", "summary"]

# Less is the error of a clock, or of one request.
_WAITED_MIN: Final = 0.002


class Origin(NamedTuple):
    """Who has set a limit, and when.

    Args:
        by: a principal with its address, a file's name, or the cluster.
        at: in ISO 8601; "" if unknown.
    """

    by: str
    at: str


class Context(NamedTuple):
    """What an explanation needs beside the client's own report.

    Args:
        window: the window of the report.
        enforcing: whether quotas are enforced.
        mutations_rate: the limit of all clients' partition mutations.
        origin: returns who has set an entity's limit; the entity is None for a setting.
        neighbours: the clients that share the budget of a rule, the largest first, with this one.
        brokers: all brokers' response times.
    """

    window: int
    definitions: Definitions
    enforcing: bool
    mutations_rate: float | None
    origin: Callable[[Entity | None, str], Origin]
    neighbours: Callable[[Rule], Sequence[Neighbour]]
    brokers: Sequence[BrokerReport]


def explain(client: ClientReport, context: Context) -> dict[str, Any]:
    """Return the document of one client; `docs/api.md` has its schema."""
    worst = client.connections[0] if client.connections else None
    times = client.times if worst is None else worst.times
    rule = main_rule(client)
    found = None
    if rule is not None:
        found = in_force(rule, context.definitions, client.user, client.client_id, context.mutations_rate)
    neighbours = () if rule is None else context.neighbours(rule)
    asked = None if found is None else _wants(client, found, neighbours, waited_part(times))
    broker = None if worst is None else _broker(worst, context.brokers)
    document: dict[str, Any] = {
        "user": client.user,
        "client_id": client.client_id,
        "window_seconds": SECONDS[context.window],
        "time": _times(times),
        "time_of_all_connections": _times(client.times),
        "rule": None if found is None else _rule_document(found, context),
        "waits": [
            {"kind": rule.kind, "key": rule.key, "name": rule.name, "part": _part(ms, client.times)}
            for rule, ms in sorted(client.waits, key=lambda wait: -wait[1])
        ],
        "neighbours": [neighbour._asdict() for neighbour in neighbours],
        "wants": None if asked is None else _wants_document(asked),
        "broker": None if broker is None else broker_document(broker),
        "broker_ms_per_request": round(client.broker_ms / client.probes, 3) if client.probes else None,
        "connections_total": client.connections_total,
        "connections": [_connection(connection) for connection in client.connections],
    }
    document["sentence"] = sentence(Facts(client, times, context, found, document["rule"], asked, broker))
    return document


def summary(client: ClientReport) -> dict[str, Any]:
    """Return a client's row in the list of all."""
    worst = client.connections[0] if client.connections else None
    times = client.times if worst is None else worst.times
    rule = main_rule(client)
    return {
        "user": client.user,
        "client_id": client.client_id,
        "connections": client.connections_total,
        "time": _times(times),
        "time_of_all_connections": _times(client.times),
        "rule": None if rule is None else {"kind": rule.kind, "key": rule.key, "name": rule.name},
    }


def broker_document(broker: BrokerReport) -> dict[str, Any]:
    """Return a broker's response times."""
    return {
        "broker": broker.broker,
        "timed": broker.timed,
        "median_ms": round(broker.percentile_ms(0.5), 3),
        "p99_ms": round(broker.percentile_ms(0.99), 3),
    }


def main_rule(client: ClientReport) -> Rule | None:
    """Return the rule that the client waits for most; None if it waits for none."""
    whole = sum(client.times)
    rule, ms = max(client.waits, key=lambda wait: wait[1], default=(None, 0.0))
    return rule if whole and ms / whole >= _WAITED_MIN else None


def _wants(
    client: ClientReport, found: InForce, neighbours: Sequence[Neighbour], waited: float
) -> Wants | None:
    """Return what the client would take, of its part of the budget."""
    total = sum(neighbour.rate for neighbour in neighbours)
    name = client.user, client.client_id
    own = sum(one.rate for one in neighbours if (one.user, one.client_id) == name)
    if not own:
        return None
    return wants(own, found.value * own / total, waited)


def _broker(connection: ConnectionReport, brokers: Sequence[BrokerReport]) -> BrokerReport | None:
    return next((one for one in brokers if one.broker == connection.broker), None)


def _times(times: Sequence[float]) -> dict[str, float]:
    return {name: round(part_of(times, index), 4) for index, name in enumerate(parts.NAMES)}


def _part(ms: float, times: Sequence[float]) -> float:
    whole = sum(times)
    return round(ms / whole, 4) if whole else 0.0


def _rule_document(found: InForce, context: Context) -> Mapping[str, Any]:
    origin = context.origin(found.entity, found.setting)
    return {
        "kind": found.rule.kind,
        "key": found.rule.key,
        "entity": entity_text(found.entity),
        "value": found.value,
        "setting": found.setting,
        "set_by": origin.by,
        "set_at": origin.at,
        "enforced": context.enforcing,
    }


def _wants_document(asked: Wants) -> Mapping[str, Any]:
    return {
        "rate": round(asked.rate, 3),
        "at_least": asked.at_least,
        "assumed": "the client waits for its responses",
        "wait_seconds_per_minute": {f"{times:g}": seconds for times, seconds in asked.waits.items()},
    }


def _connection(connection: ConnectionReport) -> Mapping[str, Any]:
    return {
        "peer": connection.peer,
        "broker": connection.broker,
        "seconds": round(connection.open_ms / 1000, 1),
        "time": _times(connection.times),
    }
