"""The document and the sentence of one client, by cause."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.explain import explanation, parts
from proxy.explain.budgets import Budgets
from proxy.explain.documents import Neighbour
from proxy.explain.explanation import Context, Origin, summary
from proxy.explain.latencies import Latencies, Predicted
from proxy.explain.parts import MINUTE
from proxy.explain.report import (
    NOTHING,
    BrokerReport,
    ClientReport,
    ConnectionReport,
    Seen,
    brokers_of,
    merge_seen,
)
from proxy.explain.rules import Rule
from proxy.explain.wants import NO_DEMAND, Demand
from proxy.explain.watch import Watch
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import DEFAULT, Entity
from tests.support.documents import as_json

PRODUCE = Rule("produce", "producer_byte_rate")
DEFINITIONS = Definitions(
    {
        Entity(client_id=DEFAULT): {"producer_byte_rate": 2_000_000, "request_percentage": 5},
        Entity("ann", DEFAULT): {"producer_byte_rate": 3_000_000},
        Entity(topic="orders"): {"producer_byte_rate": 1000},
        Entity(DEFAULT): {"connection_creation_rate": 4},
    }
)


def times(**named: float) -> tuple[float, ...]:
    return tuple(1000 * named.get(name, 0.0) for name in parts.NAMES)


def report(
    waits: dict[Rule, float] | None = None,
    user: str = "",
    probes: tuple[float, float] = (0, 0),
    **named: float,
) -> ClientReport:
    """A client with one connection to broker 2, and a second one that has nothing to do."""
    busy, idle = times(**named), times(idle=1)
    return ClientReport(
        user,
        "web-1",
        (ConnectionReport("10.0.0.9:1", 2, 60_000, busy), ConnectionReport("10.0.0.9:2", 1, 60_000, idle)),
        2,
        tuple(map(sum, zip(busy, idle, strict=True))),
        tuple((waits or {}).items()),
        *probes,
    )


def brokers(took_ms: int = 1900, count: int = 50) -> list[BrokerReport]:
    latencies = Latencies()
    for _ in range(count):
        latencies.add(2, took_ms * 1_000_000, 0)
    return _reports(latencies)


def _reports(latencies: Latencies) -> list[BrokerReport]:
    watch = Watch()
    watch.latencies = latencies
    return brokers_of(watch, MINUTE, 0)


def context(definitions: Definitions = DEFINITIONS, **fields: Any) -> Context:
    found = Context(
        MINUTE,
        definitions,
        True,
        None,
        lambda _entity, _setting: Origin("User:ops from 10.0.0.4", "2026-11-22T10:31:00Z"),
        lambda _rule: [Neighbour("", "web-1", 1_500_000.0), Neighbour("", "web-2", 500_000.0)],
        brokers(),
        datetime(2026, 11, 22, 10, 40, tzinfo=UTC),
    )
    return found._replace(**fields)


def explain(client: ClientReport, context: Context) -> dict[str, Any]:
    found: dict[str, Any] = as_json(explanation.explain(client, context))
    return found


def test_particulars_of_a_connection() -> None:
    client = report(muted=0.5, idle=0.5)
    first, second = client.connections
    waits = replace(first, library="librdkafka 2.3.0", batch_bytes=20_480.4, in_flight=5, waits_ms=1_250)
    found = explain(replace(client, connections=(waits, second)), context())["connections"]
    names = ("library", "batch_bytes", "in_flight", "waits_until")
    assert [found[0][name] for name in names] == ["librdkafka 2.3.0", 20_480, 5, "2026-11-22T10:40:01.250Z"]
    assert [found[1][name] for name in names] == ["", None, 0, None]


def test_observed_client_has_what_it_would_wait_for_and_what_would_pass() -> None:
    client = replace(report(broker=0.5, idle=0.5), predicted=Predicted(0.62, ((PRODUCE, 620.0),)))
    found = explain(client, context(enforcing=False, backlogs={PRODUCE: 16_000_000.0}))
    predicted = found["predicted"]
    assert (found["rule"], predicted["rule"]["enforced"]) == (None, False)
    assert (predicted["throttled_part"], predicted["assumed"]) == (0.62, "it waits for its responses")
    # It sends 1.5 of 2.0 MB/s, so three quarters of the limit and of what is left.
    assert (predicted["admitted_rate"], predicted["backlog_bytes"]) == (1_500_000, 12_000_000)
    assert found["sentence"].endswith(
        " If quotas were enforced, web-1 would wait 62% of its time for "
        "producer_byte_rate 2.0 MB/s of client-id <default>, assuming that it waits for its responses. "
        "If it sent at its rate whatever happens, 1.5 MB/s would pass, and 12.0 MB would be left so far."
    )


def test_nothing_is_predicted_while_quotas_are_enforced() -> None:
    client = replace(report(broker=0.5, idle=0.5), predicted=Predicted(0.62, ((PRODUCE, 620.0),)))
    assert explain(client, context())["predicted"] is None
    assert explain(report(idle=1), context(enforcing=False))["predicted"] is None


def test_throttled_client_has_its_rule_its_wants_and_its_neighbours() -> None:
    client = report({PRODUCE: 620}, probes=(10, 30), muted=0.62, broker=0.02, idle=0.36)
    demand = Demand(1.5e6, 1.6e6, 1.5e6 / (1 - 0.62), True)
    found = explain(replace(client, demands=(demand, NO_DEMAND, NO_DEMAND, NO_DEMAND)), context())
    assert found["sentence"] == (
        "web-1 waited 62% of the last minute for producer_byte_rate 2.0 MB/s of client-id <default>, "
        "set 2026-11-22T10:31:00Z by User:ops from 10.0.0.4. It asks for at most about 3.9 MB/s. "
        "web-2 takes 25% of that budget. The broker takes 3.0 ms of 96 ms per request."
    )
    assert found["rule"] == {
        "kind": "produce",
        "key": "producer_byte_rate",
        "entity": "client-id <default>",
        "value": 2_000_000,
        "setting": "",
        "set_by": "User:ops from 10.0.0.4",
        "set_at": "2026-11-22T10:31:00Z",
        "enforced": True,
    }
    # It has three quarters of the budget: 1.5 / (1 - 0.62) = 3.95 MB/s, and of 1.5 MB/s it waits 62 %.
    assert found["wants"]["rate"] == pytest.approx(3_947_368.421)
    assert found["wants"]["wait_seconds_per_minute"] == {"1": 37.2, "1.5": 25.8, "2": 14.4}
    assert found["demand"]["producer_byte_rate"] == {"taken": 1.5e6, "highest": 1.6e6, "most": 3_947_368.421}
    assert found["time"]["muted"] == 0.62
    assert found["time_of_all_connections"]["muted"] == 0.31
    assert [one["client_id"] for one in found["neighbours"]] == ["web-1", "web-2"]
    assert [one["peer"] for one in found["connections"]] == ["10.0.0.9:1", "10.0.0.9:2"]


@pytest.mark.parametrize(
    ("rule", "entity", "limit"),
    [
        (Rule("topic", "producer_byte_rate", "orders"), "topic 'orders'", "producer_byte_rate 1.0 kB/s"),
        (Rule("request", "request_percentage"), "client-id <default>", "request_percentage 5 %"),
        (
            Rule("connection", "connection_creation_rate", "bob"),
            "user <default>",
            "connection_creation_rate 4 connections/s",
        ),
        (
            Rule("mutation", "controller_mutation_rate"),
            "all clients together",
            "controller_mutation_rate 7 partitions/s",
        ),
    ],
)
def test_each_kind_is_attributed_to_its_entity(rule: Rule, entity: str, limit: str) -> None:
    found = explain(
        report({rule: 900}, muted=0.9, idle=0.1), context(mutations_rate=7.0, neighbours=lambda _: ())
    )
    assert found["rule"]["entity"] == entity
    assert f"web-1 waited 90% of the last minute for {limit} of {entity}, set" in found["sentence"]
    assert found["wants"] is None


def test_users_own_level_is_named() -> None:
    found = explain(report({PRODUCE: 900}, user="ann", held=0.9, idle=0.1), context())
    assert found["rule"]["entity"] == "user 'ann', client-id <default>"
    assert found["sentence"].startswith(
        "web-1 of user ann waited 90% of the last minute for producer_byte_rate 3.0"
    )


def test_static_setting_is_named() -> None:
    definitions = Definitions(static=StaticQuotas(producer_default=9_000_000))
    found = explain(report({PRODUCE: 900}, held=0.9, idle=0.1), context(definitions))
    assert found["rule"]["setting"] == "producer_default"


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"broker": 0.96, "idle": 0.04}, "96% of the time is broker 2, whose p99 is 2.1 s for all clients."),
        (
            {"poll": 0.9, "idle": 0.1},
            "90% of the time its Fetches wait for new records, or its group for members, as they ask to.",
        ),
        ({"client": 0.9, "idle": 0.1}, "90% of the time the client is slow"),
        ({"sluice": 0.9, "idle": 0.1}, "90% of the time its requests wait in Sluice."),
        ({"idle": 0.99, "broker": 0.01}, "99% of the time it asks for nothing."),
    ],
)
def test_client_that_is_not_throttled(named: dict[str, float], text: str) -> None:
    found = explain(report({}, "", (0, 0), **named), context())
    assert found["rule"] is None
    assert found["sentence"].startswith(f"web-1 is not throttled: {text}")


def test_client_without_a_visit_in_the_window() -> None:
    assert explain(report(), context())["sentence"] == "web-1: nothing was seen of it in the last minute."


def test_wait_below_a_clocks_error_has_no_rule() -> None:
    assert explain(report({PRODUCE: 1.9}, muted=0.0019, idle=0.9981), context())["rule"] is None


def test_limit_that_is_gone_meanwhile() -> None:
    found = explain(report({PRODUCE: 900}, muted=0.9, idle=0.1), context(Definitions()))
    assert found["rule"] is None
    assert found["sentence"] == (
        "web-1 waited 90% of the last minute for producer_byte_rate; that limit is gone now."
    )


def test_row_in_the_list_of_all() -> None:
    row = as_json(
        summary(report({PRODUCE: 620}, muted=0.62, idle=0.38), Budgets(DEFINITIONS, None), enforcing=True)
    )
    assert row["rule"] == {
        "kind": "produce",
        "key": "producer_byte_rate",
        "name": "",
        "entity": "client-id <default>",
        "value": 2_000_000,
        "enforced": True,
    }
    assert [quota["kind"] for quota in row["quotas"]] == ["produce", "request"]


def test_reports_of_several_processes_are_added_up() -> None:
    one = Seen((report({PRODUCE: 300}, probes=(1, 5), muted=0.5, idle=0.5),), {}, tuple(brokers(10)))
    other = Seen(
        (report({PRODUCE: 600}, probes=(3, 7), muted=0.9, idle=0.1),),
        {PRODUCE: (Neighbour("", "b", 2.0), Neighbour("", "a", 1.0))},
        tuple(brokers(10, count=7)),
    )
    merged = merge_seen([one, other, other])
    (client,) = merged.clients
    assert client.connections_total == 6
    assert dict(client.waits) == {PRODUCE: 1500}
    assert (client.probes, client.broker_ms) == (7, 19)
    assert client.connections[0].times[parts.MUTED] == 900
    assert merged.neighbours[PRODUCE] == (Neighbour("", "b", 4.0), Neighbour("", "a", 2.0))
    assert [broker.timed for broker in merged.brokers] == [64]
    assert merge_seen([one]) == one
    assert merge_seen([]) == NOTHING
