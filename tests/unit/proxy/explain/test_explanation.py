"""The document and the sentence of one client, by cause."""

from typing import Any

import pytest
from msgspec.structs import replace

from proxy.explain import explanation, parts
from proxy.explain.documents import Neighbour, PushedTimes
from proxy.explain.latencies import Predicted
from proxy.explain.report import ClientReport, ConnectionReport, Seen, SeenSum
from proxy.explain.rules import Rule
from proxy.explain.wants import NO_DEMAND, Demand
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import DEFAULT, Entity
from tests.support import situations
from tests.support.documents import as_json

PRODUCE = Rule("produce", "producer_byte_rate")
DEFINITIONS = Definitions({Entity(client_id=DEFAULT): {"producer_byte_rate": 2_000_000}})
NEIGHBOURS = [Neighbour("", "web-1", 1_500_000.0), Neighbour("", "web-2", 500_000.0)]


def times(**named: float) -> tuple[float, ...]:
    return tuple(1000 * named.get(name, 0.0) for name in parts.NAMES)


def report(
    waits: dict[Rule, float] | None = None, probes: tuple[float, float] = (0, 0), **named: float
) -> ClientReport:
    """A client with one connection to broker 2, and a second one that has nothing to do."""
    busy, idle = times(**named), times(idle=1)
    return ClientReport(
        "",
        "web-1",
        (ConnectionReport("10.0.0.9:1", 2, 60_000, busy), ConnectionReport("10.0.0.9:2", 1, 60_000, idle)),
        2,
        tuple(map(sum, zip(busy, idle, strict=True))),
        tuple((waits or {}).items()),
        *probes,
    )


def explain(client: ClientReport, definitions: Definitions = DEFINITIONS, **fields: Any) -> dict[str, Any]:
    context = situations.context(neighbours=NEIGHBOURS, definitions=definitions, **fields)
    found: dict[str, Any] = as_json(explanation.explain(client, context))
    return found


def test_particulars_of_a_connection() -> None:
    client = report(muted=0.5, idle=0.5)
    first, second = client.connections
    waits = replace(first, library="librdkafka 2.3.0", batch_bytes=20_480.4, in_flight=5, waits_ms=1_250)
    found = explain(replace(client, connections=(waits, second)))["connections"]
    names = ("library", "batch_bytes", "in_flight", "waits_until")
    assert [found[0][name] for name in names] == ["librdkafka 2.3.0", 20_480, 5, "2026-11-22T10:40:01.250Z"]
    assert [found[1][name] for name in names] == ["", None, 0, None]


def test_what_the_clients_library_says_is_beside_what_was_seen_of_it() -> None:
    said = PushedTimes(kind="produce", average_ms=118.0, longest_ms=480.0, seconds_ago=12.0)
    found = explain(replace(report(muted=0.5, idle=0.5), telemetry=(said,)))
    assert found["telemetry"] == [
        {"kind": "produce", "average_ms": 118.0, "longest_ms": 480.0, "seconds_ago": 12.0}
    ]


def test_observed_client_has_what_it_would_wait_for_and_what_would_pass() -> None:
    client = replace(report(broker=0.5, idle=0.5), predicted=Predicted(0.62, ((PRODUCE, 620.0),)))
    found = explain(client, enforcing=False, backlogs={PRODUCE: 16_000_000.0})
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
    assert explain(client)["predicted"] is None
    assert explain(report(idle=1), enforcing=False)["predicted"] is None


def test_throttled_client_has_its_rule_its_wants_and_its_neighbours() -> None:
    client = report({PRODUCE: 620}, (10, 30), muted=0.62, broker=0.02, idle=0.36)
    demand = Demand(1.5e6, 1.6e6, 1.5e6 / (1 - 0.62), True)
    found = explain(replace(client, demands=(demand, *[NO_DEMAND] * 3)))
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
        "changes_at": "",
        "then": None,
        "enforced": True,
    }
    # It has three quarters of the budget: 1.5 / (1 - 0.62) = 3.95 MB/s, and of 1.5 MB/s it waits 62 %.
    assert found["wants"]["rate"] == pytest.approx(3_947_368.421)
    assert found["wants"]["wait_seconds_per_minute"] == {"1": 37.2, "1.5": 25.8, "2": 14.4}
    assert found["demand"]["producer_byte_rate"] == {"taken": 1.5e6, "highest": 1.6e6, "most": 3_947_368.421}
    assert (found["time"]["muted"], found["time_of_all_connections"]["muted"]) == (0.62, 0.31)
    assert [one["client_id"] for one in found["neighbours"]] == ["web-1", "web-2"]
    assert [one["peer"] for one in found["connections"]] == ["10.0.0.9:1", "10.0.0.9:2"]


def test_static_setting_is_named() -> None:
    definitions = Definitions(static=StaticQuotas(producer_default=9_000_000))
    found = explain(report({PRODUCE: 900}, held=0.9, idle=0.1), definitions)
    assert found["rule"]["setting"] == "producer_default"


def test_wait_below_a_clocks_error_has_no_rule() -> None:
    assert explain(report({PRODUCE: 1.9}, muted=0.0019, idle=0.9981))["rule"] is None


def test_reports_of_several_processes_are_added_up() -> None:
    one = Seen((report({PRODUCE: 300}, (1, 5), muted=0.5, idle=0.5),), {}, (situations.broker(ms10=50),))
    neighbours = {PRODUCE: (Neighbour("", "b", 2.0), Neighbour("", "a", 1.0))}
    other = Seen(
        (report({PRODUCE: 600}, (3, 7), muted=0.9, idle=0.1),), neighbours, (situations.broker(ms10=7),)
    )
    whole = SeenSum()
    for seen in (one, other, other):
        whole.add(seen)
    merged = whole.sum(whole.clients())
    (client,) = merged.clients
    assert client.connections_total == 6
    assert dict(client.waits) == {PRODUCE: 1500}
    assert (client.probes, client.broker_ms) == (7, 19)
    assert client.connections[0].times[parts.MUTED] == 900
    assert merged.neighbours[PRODUCE] == (Neighbour("", "b", 4.0), Neighbour("", "a", 2.0))
    assert [(broker.requests, broker.timed) for broker in merged.brokers] == [(64, 300)]


def test_capacities_that_do_not_hold_are_named_whatever_the_client_waits_for() -> None:
    stated = Definitions({Entity(capacity="cluster"): {"producer_byte_rate": 8e6}})
    said = ' Capacities are stated, and do not hold here: they need quotas.policy = "schedule".'
    for client in (report({PRODUCE: 620}, muted=0.62, idle=0.38), report(idle=1)):
        assert explain(client, stated, lends=False)["sentence"].endswith(said)
        assert said not in explain(client, stated)["sentence"]
        assert said not in explain(client, lends=False)["sentence"]
