"""quotas.throttles.client: what is made when it is asked for, and when a client may be forgotten."""

from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.kinds import CLIENT_KINDS
from quotas.throttles.client import ClientQuota
from tests.support.engines import engine_with

LIMITS = {"request_percentage": 1.0, "controller_mutation_rate": 1.0, "catch_up_byte_rate": 1000.0}


def client() -> ClientQuota:
    return engine_with({Entity(client_id=DEFAULT): LIMITS}).client("u", "a", 1)


def test_rare_throttles_are_created_at_their_first_use_in_the_order_of_the_table() -> None:
    quota = client()
    assert quota.throttles() == [quota.produce, quota.fetch]
    made = quota.requests, quota.mutations, quota.catch_up(0)
    assert quota.by_kind() == (quota.produce, quota.fetch, *made)
    assert tuple(throttle.kind for throttle in quota.throttles()) == CLIENT_KINDS


def test_any_traffic_marks_the_client_as_used() -> None:
    quota = client()
    seen = {quota.activity()}
    quota.produce.produce(quota.produce.flow(), 10, 0)
    seen.add(quota.activity())
    quota.requests.record(10, 0)
    seen.add(quota.activity())
    quota.mutations.count_mutations(10)
    seen.add(quota.activity())
    assert len(seen) == 4


def test_flow_and_owed_mutations_keep_the_client() -> None:
    quota = client()
    assert not quota.in_use(0)
    flow = quota.fetch.flow()
    assert quota.in_use(0)
    quota.fetch.leave(flow, 0)
    quota.mutations.record(1000, 0)
    assert quota.in_use(0)


def test_detached_client_holds_no_limiter() -> None:
    quota = client()
    first = quota.requests
    assert first.limits(0)
    quota.detach()
    assert (quota.by_kind()[2], first.limits(0)) == (None, False)


def test_limit_and_lag_of_catch_up_reads_follow_the_definitions() -> None:
    entity = Entity(client_id="a")
    engine = engine_with({entity: {"catch_up_byte_rate": 1000.0, "catch_up_lag": 5.0}})
    quota = engine.client("u", "a", 1)
    throttle = quota.catch_up(0)
    assert throttle is not None
    assert (throttle.limits(0), throttle.limit, quota.catch_up_lag) == (True, 1000.0, 5)
    engine.definitions.put(entity, {"catch_up_byte_rate": 2000.0})
    engine.update(engine.options, engine.definitions, 1)
    assert (quota.catch_up(1), throttle.limit, quota.catch_up_lag) == (throttle, 2000.0, 10_000)
    engine.definitions.put(entity, {})
    engine.update(engine.options, engine.definitions, 2)
    assert (quota.catch_up(2), throttle.limit, engine.limits_catch_up) == (None, None, False)
