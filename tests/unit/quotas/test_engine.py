"""quotas.engine: look-up, live changes, bounds, expiry, views."""

from dataclasses import replace
from typing import Any

import pytest

from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import EXPIRE_AT_ONCE, EXPIRE_MS, OTHER, Engine
from quotas.limiters.limiter import ADMITTED, Flow
from quotas.options import EngineOptions, Policy
from quotas.throttles.bandwidth import Throttle
from quotas.throttles.figures import GATEWAY
from tests.support.engines import engine_with

MB = 1_000_000


def limits(rate: float | None) -> Definitions:
    return Definitions(static=StaticQuotas(producer_default=rate, consumer_default=rate))


def engine(rate: float | None = 2 * MB, **options: Any) -> Engine:
    return engine_with(static=StaticQuotas(producer_default=rate, consumer_default=rate), **options)


def produces(quotas: Engine, client_id: str = "a") -> tuple[Throttle, Flow]:
    """A client's throttle, and a channel of it."""
    throttle = quotas.client("", client_id, 1).produce
    return throttle, throttle.flow()


def enforcing(quotas: Engine) -> bool:
    return quotas.enforcing


def test_each_broker_has_its_own_budget_in_scope_broker() -> None:
    quotas = engine()
    one, two = quotas.client("", "a", 1).produce, quotas.client("", "a", 2).produce
    assert one.produce(one.flow(), 22 * MB, 0).throttle_ms == 1000
    assert two.produce(two.flow(), 20 * MB, 0) is ADMITTED


def test_all_brokers_share_one_budget_in_scope_cluster() -> None:
    quotas = engine(scope="cluster")
    assert quotas.client("", "a", 1) is quotas.client("", "a", 2)


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_update_applies_to_throttles_already_in_use(policy: Policy) -> None:
    quotas = engine(None, policy=policy)
    throttle, flow = produces(quotas)
    assert throttle.produce(flow, 100 * MB, 0) is ADMITTED
    quotas.update(quotas.options, limits(2 * MB), 0)
    assert throttle.produce(flow, 100 * MB, 0).throttle_ms > 0
    assert throttle.limit == 2 * MB
    quotas.update(quotas.options, limits(None), 0)
    assert throttle.produce(flow, 100 * MB, 0) is ADMITTED
    throttle.refresh(0)
    assert throttle.limit is None


def test_policy_changes_live_without_another_burst() -> None:
    quotas = engine(policy="kip13")
    throttle = quotas.client("", "a", 1).produce
    first, second = throttle.flow(), throttle.flow()
    throttle.produce(first, 20 * MB, 0)
    quotas.update(replace(quotas.options, policy="schedule"), quotas.definitions, 0)
    assert throttle.produce(first, MB, 0).throttle_ms == 500
    held = throttle.produce(second, MB, 0)
    assert held.hold_until_ms == 500
    quotas.update(replace(quotas.options, policy="kip13"), quotas.definitions, 0)
    assert throttle.produce(second, MB, 1) is ADMITTED  # what was held passes; the window is new
    assert throttle.produce(first, MB, 1) is ADMITTED


def test_observing_begins_and_ends_live() -> None:
    quotas = engine(policy="schedule")
    throttle = quotas.client("", "a", 1).produce
    flows = [throttle.flow(), throttle.flow()]
    throttle.produce(flows[0], 10 * MB, 0)
    assert throttle.produce(flows[1], MB, 0).hold_until_ms
    quotas.update(replace(quotas.options, mode="observe"), quotas.definitions, 10)
    assert not enforcing(quotas)
    assert throttle.produce(flows[1], MB, 10) is ADMITTED  # the held one passes at its next call
    for _ in range(100):
        throttle.produce(flows[0], MB, 20)
    quotas.update(replace(quotas.options, mode="enforce"), quotas.definitions, 30)
    assert enforcing(quotas)
    assert throttle.produce(flows[1], MB, 30).throttle_ms == 500  # what passed meanwhile is no debt


def test_switch_turns_enforcement_off_and_on_in_any_mode() -> None:
    quotas = engine()
    quotas.switch_enforcement(on=False)
    assert not enforcing(quotas)
    throttle, flow = produces(quotas)
    assert throttle.produce(flow, 100 * MB, 0) is ADMITTED
    quotas.update(quotas.options, quotas.definitions, 0)  # a reload does not turn it on again
    assert not enforcing(quotas)
    quotas.switch_enforcement(on=True)
    assert enforcing(quotas)
    quotas.update(replace(quotas.options, mode="observe"), quotas.definitions, 0)
    assert not enforcing(quotas)


def test_scope_cannot_be_changed() -> None:
    quotas = engine(scope="broker")
    quotas.update(replace(quotas.options, scope="cluster"), quotas.definitions, 0)
    assert quotas.options.scope == "broker"
    assert quotas.client("", "a", 1) is not quotas.client("", "a", 2)


def test_clients_beyond_the_bound_share_one_budget() -> None:
    quotas = engine(client_ids_max=2)
    assert [quotas.client("", name, 1).client_id for name in ("a", "b", "c", "d")] == ["a", "b", OTHER, OTHER]
    assert quotas.client("", "c", 1) is quotas.client("", "d", 1)
    throttle, flow = produces(quotas, "e")
    assert throttle.produce(flow, 22 * MB, 0).throttle_ms == 1000  # and it takes the default


def test_named_client_gets_its_own_budget_beyond_the_bound() -> None:
    definitions = Definitions({Entity(client_id="vip"): {"producer_byte_rate": 9 * MB}})
    quotas = Engine(EngineOptions(client_ids_max=1), definitions)
    quotas.client("", "a", 1)
    assert quotas.client("", "b", 1).client_id == OTHER
    assert quotas.client("", "vip", 1).client_id == "vip"


def test_user_beyond_the_bound_takes_the_default_users_quota() -> None:
    definitions = Definitions({Entity(user=DEFAULT): {"producer_byte_rate": 2 * MB}})
    quotas = Engine(EngineOptions(client_ids_max=1), definitions)
    quotas.client("u", "a", 1)
    assert quotas.client("v", "b", 1).user == OTHER


def test_user_that_an_entry_names_keeps_its_budget_beyond_the_bound() -> None:
    definitions = Definitions({Entity(user="u"): {"producer_byte_rate": 2 * MB}})
    quotas = Engine(EngineOptions(client_ids_max=1), definitions)
    first = quotas.client("u", "a", 1).produce
    first.produce(first.flow(), 22 * MB, 0)
    beyond = quotas.client("u", "b", 1)
    assert (beyond.user, beyond.client_id) == ("u", OTHER)
    assert beyond is quotas.client("u", "c", 1)
    assert beyond.produce.produce(beyond.produce.flow(), 0, 0).hold_until_ms == 1000  # one bucket with "a"


@pytest.mark.parametrize(
    ("user", "client_id", "named"),
    [
        ("", "web-2", ("", f"web-{OTHER}")),
        ("", "web-" + "x" * 2000, ("", f"web-{OTHER}")),
        ("svc-2", "b", (f"svc-{OTHER}", OTHER)),
        ("v", "b", (OTHER, OTHER)),
    ],
)
def test_member_by_a_prefix_stays_in_its_group_beyond_the_bound(
    user: str, client_id: str, named: tuple[str, str]
) -> None:
    members = {Entity(client_id="web-*", group="g"): {"member": 1}, Entity("svc-*", group="g"): {"member": 1}}
    definitions = Definitions({**members, Entity(group="g"): {"producer_byte_rate": 2 * MB}})
    quotas = Engine(EngineOptions(client_ids_max=1), definitions)
    first = quotas.client("", "web-1", 1).produce
    first.produce(first.flow(), 22 * MB, 0)
    beyond = quotas.client(user, client_id, 1)
    assert (beyond.user, beyond.client_id) == named
    held = beyond.produce.produce(beyond.produce.flow(), 0, 0).hold_until_ms
    assert held == (0 if user == "v" else 1000)  # one bucket with "web-1"


def test_client_that_never_moved_anything_is_forgotten_soon() -> None:
    quotas = engine()
    client = quotas.client("ANONYMOUS", "a", 1)
    flows = client.produce.flow(), client.fetch.flow()
    assert quotas.expire(0) == quotas.expire(1000) == 0  # a channel still speaks for it
    client.produce.leave(flows[0], 0)
    client.fetch.leave(flows[1], 0)
    assert quotas.expire(2000) == 1


def test_idle_client_is_forgotten_after_an_hour() -> None:
    quotas = engine()
    throttle, flow = produces(quotas)
    throttle.produce(flow, 1, 0)
    throttle.leave(flow, 0)
    assert quotas.expire(0) == 0
    assert quotas.expire(EXPIRE_MS - 1) == 0
    assert quotas.expire(EXPIRE_MS) == 1
    assert len(quotas) == 0
    throttle.produce(flow, 22 * MB, EXPIRE_MS)  # a channel still has it: it works on
    assert throttle.total == 22 * MB + 1


def test_client_with_a_channel_or_with_traffic_is_not_forgotten() -> None:
    quotas = engine()
    with_channel, with_traffic = quotas.client("", "a", 1).produce, quotas.client("", "b", 1).produce
    with_channel.flow()
    flow = with_traffic.flow()
    with_traffic.leave(flow, 0)
    for now_ms in range(0, 3 * EXPIRE_MS, EXPIRE_MS // 2):
        with_traffic.produce(flow, 1, now_ms)
        assert quotas.expire(now_ms) == 0


def test_expiry_looks_at_a_bounded_number_of_clients() -> None:
    quotas = engine()
    for number in range(EXPIRE_AT_ONCE + 5):
        throttle, flow = produces(quotas, str(number))
        throttle.produce(flow, 1, 0)
        throttle.leave(flow, 0)
    quotas.expire(0)
    quotas.expire(0)
    assert quotas.expire(EXPIRE_MS) == EXPIRE_AT_ONCE
    assert quotas.expire(EXPIRE_MS) == 5


def test_views_show_counts_and_the_quota_in_force() -> None:
    quotas = engine()
    client = quotas.client("", "a", 1)
    client.produce.produce(client.produce.flow(), 22 * MB, 0)
    quotas.client("", "b", 1)
    views = list(quotas.views(0))
    assert [view.client_id + " " + view.type for view in views] == [
        "a Produce",
        "a Fetch",
        "b Produce",
        "b Fetch",
    ]
    assert (views[0].bytes_total, views[0].throttle_ms_total, views[0].throttled_total) == (22 * MB, 1000, 1)
    assert (views[0].quota, views[0].debt_bytes, views[1].debt_bytes) == (2 * MB, 2 * MB, 0)
    quotas.update(quotas.options, limits(3 * MB), 0)
    assert next(iter(quotas.views(0))).quota == 3 * MB


def test_views_say_at_which_broker() -> None:
    for scope, brokers in (("broker", [1, 2]), ("cluster", [GATEWAY])):
        quotas = Engine(EngineOptions(scope=scope), limits(2 * MB))  # type: ignore[arg-type]  # one of the two
        for broker in (1, 2):
            quotas.client("", "a", broker)
        assert [view.broker for view in quotas.views(0) if view.type == "Produce"] == brokers


def test_rates_are_kept_by_expiring() -> None:
    quotas = engine()
    quotas.expire(1_000_000)  # a clock that began long ago
    client = quotas.client("", "a", 1)
    flow = client.produce.flow()
    for second in range(20):
        client.produce.produce(flow, MB, 1_000_000 + second * 1000)
        quotas.expire(1_000_500 + second * 1000)
    # Since the mark at 11.5 s, when 12 of the 20 had passed.
    assert next(iter(quotas.views(1_019_500))).byte_rate == 8 * MB / 8


def test_views_may_be_taken_while_clients_come_and_go() -> None:
    quotas = engine()
    quotas.client("", "a", 1)
    views = quotas.views(0)
    next(views)
    quotas.client("", "b", 1)
    assert len(list(views)) == 1


def test_limiter_without_throttles_is_removed() -> None:
    quotas = engine()
    throttle, flow = produces(quotas)
    throttle.produce(flow, 22 * MB, 0)
    quotas.update(quotas.options, limits(None), 0)
    assert throttle.produce(flow, 1, 0) is ADMITTED
    quotas.update(quotas.options, limits(2 * MB), 0)
    assert throttle.produce(flow, 1, 0) is ADMITTED  # metrics tags changed, the counter restarts (§1.3)
