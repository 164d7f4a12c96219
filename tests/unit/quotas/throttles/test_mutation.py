"""quotas.throttles.mutation: two buckets, eight levels, live changes (KIP-599)."""

from typing import Any

import pytest

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import EXPIRE_MS, Engine
from quotas.limiters.virtual_time import ConnectionTime
from quotas.options import EngineOptions
from quotas.throttles.mutation import MutationThrottle
from tests.support.engines import engine_with, limits_of

KEY = "controller_mutation_rate"


def options(**more: Any) -> EngineOptions:
    return EngineOptions(window_samples=10, **more)


def engine(entries: dict[Entity, float] | None = None, **more: Any) -> Engine:
    return engine_with(limits_of(KEY, entries or {}), window_samples=10, **more)


def limited(rate: float = 2, **more: Any) -> tuple[Engine, MutationThrottle]:
    """An engine with a quota of the client id "a", and the throttle of such a client."""
    quotas = engine({Entity(client_id="a"): rate}, **more)
    return quotas, quotas.client("", "a", 1).mutations


def left(throttle: MutationThrottle, now_ms: int = 0) -> float | None:
    assert throttle.limits(now_ms)
    return throttle.tokens(now_ms)


def test_nothing_is_limited_without_a_quota() -> None:
    quotas = engine()
    assert not quotas.mutations.limiting()
    assert not quotas.client("u", "a", 1).mutations.limits(0)


def test_identity_has_one_bucket_for_all_brokers_in_any_scope() -> None:
    quotas = engine({Entity(client_id="a"): 2})
    first, second = (quotas.client("u", "a", broker).mutations for broker in (1, 2))
    assert first.take(30, 0)
    assert not second.take(1, 0)
    assert (first.throttle_ms(0), second.throttle_ms(0)) == (5000, 5000)  # (30 - 20) / 2 per s


def test_user_level_is_shared_by_the_users_client_ids() -> None:
    quotas = engine({Entity(user="u"): 2, Entity(client_id=DEFAULT): 5})
    assert quotas.client("u", "a", 1).mutations.take(25, 0)
    assert left(quotas.client("u", "b", 1).mutations) == -5
    assert left(quotas.client("v", "b", 1).mutations) == 50


def test_bucket_of_all_clients_decides_where_it_is_tighter() -> None:
    quotas = engine({Entity(client_id="a"): 100}, partition_mutations_rate=1.0, partition_mutations_burst=5.0)
    limited, other = (quotas.client("", name, 1).mutations for name in "ab")
    assert limited.take(8, 0)  # 1000 - 8 and 5 - 8
    assert not other.take(1, 0)
    assert (limited.throttle_ms(0), other.throttle_ms(0)) == (3000, 3000)  # 3 / 1 per s
    assert (quotas.cluster_tokens(0), left(limited), left(other)) == (-3, 992, None)
    assert (limited.limit_now(), other.limit_now()) == (1.0, 1.0)


def test_tighter_identity_takes_nothing_from_all_clients() -> None:
    quotas, throttle = limited(1, partition_mutations_rate=100.0)
    assert throttle.take(11, 0)
    assert not throttle.take(50, 0)
    assert quotas.cluster_tokens(0) == 989  # 100 · 10 windows - 11


def test_failed_mutations_are_returned_to_both_buckets() -> None:
    quotas, throttle = limited(2, partition_mutations_rate=100.0)
    throttle.record(30, 0)
    throttle.record(-30, 0)
    assert (left(throttle), quotas.cluster_tokens(0)) == (20, 1000)


def test_changed_quota_applies_to_taken_tokens() -> None:
    quotas, throttle = limited()
    throttle.record(40, 0)
    quotas.update(options(), Definitions({Entity(client_id="a"): {KEY: 10.0}}), 0)
    assert throttle.throttle_ms(0) == 2000  # 20 / 10 per s
    quotas.update(options(), Definitions(), 0)
    assert not throttle.limits(0)
    assert throttle.throttle_ms(0) == 0


def test_all_clients_bucket_changes_live() -> None:
    quotas = engine(partition_mutations_rate=1.0, partition_mutations_burst=5.0)
    throttle = quotas.client("", "a", 1).mutations
    throttle.record(15, 0)
    assert throttle.throttle_ms(0) == 10_000
    quotas.update(options(partition_mutations_rate=10.0), Definitions(), 0)
    assert throttle.throttle_ms(0) == 1000
    quotas.update(options(), Definitions(), 0)
    assert (throttle.limits(0), quotas.cluster_tokens(0)) == (False, None)


def test_enforcement_begins_without_the_debt_of_observing() -> None:
    quotas, throttle = limited(mode="observe")
    throttle.record(70, 0)
    assert not throttle.enforcing
    quotas.update(options(), quotas.definitions, 0)
    assert (left(throttle), throttle.enforcing) == (0, True)


def test_switched_off_counts_nothing_and_forgives_nothing() -> None:
    quotas, throttle = limited()
    throttle.record(30, 0)
    quotas.switch_enforcement(False)
    assert not throttle.limits(0)
    quotas.switch_enforcement(True)
    assert left(throttle) == -10


def test_counters_tell_throttled_from_would_have_been() -> None:
    quotas, throttle = limited()
    assert throttle.limits(0)
    throttle.count(500)
    throttle.count_mutations(7)
    quotas.update(options(mode="observe"), quotas.definitions, 0)
    connection = ConnectionTime()
    throttle.predict(300, 0, connection)
    connection.settle(1000)
    (view,) = quotas.views(0, "mutations")
    assert (view.type, view.user, view.client_id) == ("ControllerMutation", "", "a")
    assert (view.quota, view.tokens) == (2, 20)
    assert (view.bytes_total, view.throttled_total, view.throttle_ms_total) == (7, 1, 500)
    assert (view.would_throttled_total, view.would_throttle_ms_total) == (1, 1000 * 300 // 1300)
    assert connection.lag_ms == 300  # it would have come so much later


def test_bucket_ends_with_its_last_client_but_not_in_debt() -> None:
    quotas = engine({Entity(user="u"): 0.001})
    first, second = quotas.client("u", "a", 1), quotas.client("u", "b", 1)
    first.mutations.record(5, 0)  # 0.01 - 5: paid back in 4,990 s
    assert second.mutations.limits(0)
    for now_ms in (0, EXPIRE_MS, EXPIRE_MS + 1):
        quotas.expire(now_ms)
    assert len(quotas) == 2
    later_ms = 5_000_000 + EXPIRE_MS
    quotas.expire(later_ms)
    quotas.expire(later_ms + EXPIRE_MS)
    assert (len(quotas), list(quotas.mutations.clients())) == (0, [])
    assert left(quotas.client("u", "a", 1).mutations, later_ms) == 0.01


@pytest.mark.parametrize("cluster_rate", [None, 1.0])
@pytest.mark.parametrize("costs", [[], [0], [5, 5, 5], [30, 0, 1, 0], [21, 1], [20, 1, 1], [10_000, 3]])
def test_tokens_are_taken_together_as_one_by_one(costs: list[int], cluster_rate: float | None) -> None:
    together, alone = (
        engine({Entity(client_id="a"): 2}, partition_mutations_rate=cluster_rate)
        .client("u", "a", 1)
        .mutations
        for _ in range(2)
    )
    refused = [place for place, cost in enumerate(costs) if cost and not alone.take(cost, 0)]
    assert together.take_each(costs, 0) == refused
    assert left(together) == left(alone)
    assert together.throttle_ms(0) == alone.throttle_ms(0)
