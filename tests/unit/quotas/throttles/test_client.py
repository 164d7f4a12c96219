"""quotas.throttles.client: what is made when it is asked for, and when a client may be forgotten."""

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine, EngineOptions
from quotas.throttles.client import ClientQuota

LIMITS = {"request_percentage": 1.0, "controller_mutation_rate": 1.0}


def client() -> ClientQuota:
    return Engine(EngineOptions(), Definitions({Entity(client_id=DEFAULT): LIMITS})).client("u", "a", 1)


def test_rare_throttles_are_created_at_their_first_use() -> None:
    quota = client()
    before = quota.measured
    made = quota.requests
    assert (before, quota.measured, quota.requests) == (None, made, made)
    assert quota.mutations is quota.mutations


def test_everything_that_counts_moves_it() -> None:
    quota = client()
    seen = {quota.moved()}
    quota.produce.produce(quota.produce.flow(), 10, 0)
    seen.add(quota.moved())
    quota.requests.record(10, 0)
    seen.add(quota.moved())
    quota.mutations.done(10)
    seen.add(quota.moved())
    assert len(seen) == 4


def test_flow_and_owed_mutations_keep_it() -> None:
    quota = client()
    assert not quota.busy(0)
    flow = quota.fetch.flow()
    assert quota.busy(0)
    quota.fetch.leave(flow, 0)
    quota.mutations.record(1000, 0)
    assert quota.busy(0)


def test_detached_it_holds_nothing() -> None:
    quota = client()
    first = quota.requests
    assert first.limits(0)
    quota.detach()
    assert (quota.measured, first.limits(0)) == (None, False)
