"""The limits that match clients, with their rates; and the table of all limits."""

from typing import Any

from msgspec.structs import replace

from proxy.explain.budgets import Budgets, RuleTable
from proxy.explain.documents import RULES_MAX, Quota, RuleRow, ShortRule
from proxy.explain.explanation import Origin, summary
from proxy.explain.report import ClientReport
from proxy.explain.rules import ClientRates, Rates, Rule
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.kinds import CLIENT_KINDS
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.support import situations

DEFINITIONS = Definitions(
    {
        Entity(client_id=DEFAULT): {"producer_byte_rate": 2000},
        Entity("ann"): {"producer_byte_rate": 5000, "request_percentage": 50},
        Entity("unused"): {"consumer_byte_rate": 7},
        Entity(topic="orders"): {"producer_byte_rate": 1000},
        Entity(ip="10.0.0.1"): {"connection_creation_rate": 3},
    }
)


def rates_of(produce: float = 0.0, **by_kind: float) -> Rates:
    by_kind["produce"] = produce
    return tuple(by_kind.get(kind.name, 0.0) for kind in CLIENT_KINDS)


def client(user: str, client_id: str, rates: Rates, waits: dict[Rule, float] | None = None) -> ClientReport:
    found = situations.client(situations.connection(muted=0.6), waits=waits, name=(user, client_id))
    return replace(found, rates=rates)


def budgets(*clients: ClientReport, mutations_rate: float | None = None) -> Budgets:
    found = Budgets(DEFINITIONS, mutations_rate)
    for one in clients:
        found.add(one)
    return found


def rules(*clients: ClientReport, definitions: Definitions = DEFINITIONS) -> list[RuleRow]:
    table = RuleTable(definitions, budgets(*clients))
    for one in clients:
        table.add(one)
    return list(table.rows(lambda _: Origin("ops", ""), situations.NOW, enforced=True))


A = client("ann", "a", rates_of(3000, request=10), {Rule("produce", "producer_byte_rate"): 600})
B = client("ann", "b", rates_of(1000))
C = client("", "c", rates_of(500, fetch=100), {Rule("topic", "producer_byte_rate", "orders"): 600})


def test_part_is_of_what_all_clients_of_the_budget_use() -> None:
    ann: dict[str, Any] = {"entity": "user 'ann'", "shared_by": "user"}
    assert budgets(A, B, C).quotas(A) == (
        Quota(kind="produce", key="producer_byte_rate", value=5000, rate=3000, part=0.75, **ann),
        Quota(kind="request", key="request_percentage", value=50, rate=10, part=1.0, **ann),
    )


def test_client_of_the_default_has_its_budget_for_itself_and_its_whole_rate_of_a_topic() -> None:
    own: dict[str, Any] = {"key": "producer_byte_rate", "rate": 500}
    assert budgets(A, B, C).quotas(C) == (
        Quota(
            kind="produce", entity="client-id <default>", value=2000, part=1.0, shared_by="client_id", **own
        ),
        Quota(kind="topic", entity="topic 'orders'", value=1000, part=None, shared_by="all", **own),
    )


def test_topic_without_a_limit_any_more_is_left_out() -> None:
    waits = {Rule("topic", "consumer_byte_rate", "orders"): 600.0}
    found = budgets().quotas(client("", "d", rates_of(1), waits))
    assert [one.kind for one in found] == ["produce"]


def test_three_topics_are_listed_those_that_it_waits_for_longest() -> None:
    limits = Definitions({Entity(topic=DEFAULT): {"producer_byte_rate": 1000}})
    waits = {Rule("topic", "producer_byte_rate", f"t{number}"): 100.0 + number for number in range(5)}
    found = Budgets(limits, None).quotas(client("", "e", rates_of(1), waits))
    assert [one.entity for one in found] == ["topic <default>"] * 3


def test_part_is_unknown_while_nothing_moves() -> None:
    idle = client("", "idle", rates_of())
    (quota,) = budgets(idle).quotas(idle)
    assert (quota.rate, quota.part) == (0, None)


def test_limit_of_all_clients_mutations() -> None:
    creates, other = client("", "x", rates_of(mutation=3)), client("", "y", rates_of(mutation=1))
    found = budgets(creates, other, mutations_rate=10).quotas(creates)[-1]
    assert (found.entity, found.value, found.part) == ("all clients together", 10, 0.75)


def test_row_of_a_client_has_the_entity_of_its_rule_and_its_quotas() -> None:
    row = summary(C, budgets(A, B, C), enforcing=False)
    assert row.rule == ShortRule(
        kind="topic",
        key="producer_byte_rate",
        name="orders",
        entity="topic 'orders'",
        value=1000,
        enforced=False,
    )
    assert [quota.kind for quota in row.quotas] == ["produce", "topic"]


def test_rules_that_most_clients_wait_for_come_first() -> None:
    found = rules(A, B, C)
    assert [(row.kind, row.entity, row.clients, row.waiting, row.rate, row.highest) for row in found] == [
        ("produce", "user 'ann'", 2, 1, 4000, 4000),
        ("topic", "topic 'orders'", 1, 1, None, None),
        ("request", "user 'ann'", 2, 0, 10, 10),
        ("produce", "client-id <default>", 1, 0, 500, 500),
        ("fetch", "user 'unused'", 0, 0, 0, 0),
        ("connection", "ip '10.0.0.1'", 0, 0, None, None),
    ]
    assert found[0].set_by == "ops"


def test_rules_are_bounded() -> None:
    many = {Entity(client_id=str(number)): {"producer_byte_rate": 5.0} for number in range(RULES_MAX + 9)}
    assert len(rules(definitions=Definitions(many))) == RULES_MAX


def test_rates_are_of_all_brokers_and_kinds() -> None:
    engine = Engine(EngineOptions(), DEFINITIONS)
    for broker in (1, 2):
        throttle = engine.client("ann", "a", broker).produce
        flow = throttle.flow()
        for second in range(6):
            throttle.produce(flow, 1000 if second else 0, 1000 * second)
    mutations = engine.client("ann", "a", 1).mutations
    assert not mutations.limits(0)
    mutations.count_mutations(20)
    rates = ClientRates()
    assert sum(1 for _ in rates.look(engine, {("ann", "a")}, 5000)) > 0
    assert rates.of("ann", "a") == rates_of(2000, mutation=4)
    assert rates.of("", "a") == rates_of()


def test_rates_are_looked_up_of_the_wanted_clients_only() -> None:
    """A peer may come with 100,000 client ids; the list has those that are watched, 20,000 at most."""
    engine = Engine(EngineOptions(), DEFINITIONS)
    for number in range(1000):
        throttle = engine.client("mallory", str(number), 1).produce
        throttle.produce(throttle.flow(), 1000, 1000)
    assert sum(one is not None for one in engine.rates(2000, {("mallory", "7"), ("mallory", "none")})) == 1
    rates = ClientRates()
    assert sum(1 for _ in rates.look(engine, {("mallory", "7")}, 2000)) == 1000  # a turn may end at each
    assert rates.of("mallory", "7")[0] > 0
    assert rates.of("mallory", "8") == rates_of()
