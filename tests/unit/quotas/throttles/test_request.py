"""quotas.throttles.request: Kafka's vectors, sharing, live changes (kafka-quotas.md §2)."""

from typing import Any

import pytest

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.limiters.virtual_time import ConnectionTime
from quotas.options import EngineOptions
from quotas.throttles.request import RequestThrottle
from tests.support.engines import engine_with, limits_of

KEY = "request_percentage"
ANY_CLIENT = {Entity(client_id=DEFAULT): 1.0}


def definitions(entries: dict[Entity, float]) -> Definitions:
    return Definitions({entity: {KEY: percent} for entity, percent in entries.items()})


def engine(entries: dict[Entity, float] | None = None, **options: Any) -> Engine:
    return engine_with(limits_of(KEY, entries or {}), **options)


def limited() -> tuple[Engine, RequestThrottle]:
    """An engine that gives any client 1 %, and the throttle of one."""
    quotas = engine(ANY_CLIENT)
    return quotas, quotas.client("u", "a", 1).requests


def throttle(entries: dict[Entity, float] | None = None, **options: Any) -> RequestThrottle:
    return engine(ANY_CLIENT if entries is None else entries, **options).client("u", "a", 1).requests


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_kafkas_vector_of_a_small_excess(policy: str) -> None:
    requests = throttle(policy=policy)
    assert [requests.record(4_000, second * 1000) for second in range(10)] == [0] * 10
    # 40 + 67.1 ms in 10.5 s, 10 ms/s allowed: 107.1 / 10 - 10.5 = 0.21 s.
    assert requests.record(67_100, 10_500) == 210


def test_kafkas_vector_of_a_spike() -> None:
    requests = throttle()
    assert requests.record(500_000, 0) == 1000  # 50 - 10 s, at most one window
    probes = [requests.record(0, second * 1000) for second in range(1, 12)]
    assert probes == [1000] * 10 + [0]


def test_cap_is_the_length_of_one_window() -> None:
    assert throttle(window_seconds=2.5, window_samples=4).record(10_000_000, 0) == 2500


def test_pipelined_requests_extend_the_mute_up_to_the_debt() -> None:
    requests = throttle()
    # 125 ms in 10 s: 12.5 - 10 = 2.5 s of debt.
    assert [
        requests.record(spent, 0, muted) for spent, muted in ((125_000, 0), (0, 1000), (0, 2000), (0, 2500))
    ] == [1000, 2000, 2500, 2500]


def test_client_without_a_quota_is_not_limited() -> None:
    quotas = engine({Entity(client_id="b"): 1})
    assert quotas.requests.limiting()
    assert not quotas.client("u", "a", 1).requests.limits(0)
    assert not engine().requests.limiting()


def test_tiny_quota_throttles_and_overflows_nothing() -> None:
    assert throttle({Entity(client_id="a"): 5e-324}).record(1, 0) == 1000


def test_clients_of_one_user_share_its_limiter() -> None:
    quotas = engine({Entity(user="u"): 1})
    first, second = (quotas.client("u", name, 1).requests for name in ("a", "b"))
    assert first.record(500_000, 0) == 1000
    assert second.record(0, 1) == 1000
    assert quotas.client("v", "a", 1).requests.record(500_000, 1) == 0


@pytest.mark.parametrize(("scope", "elsewhere"), [("broker", 0), ("cluster", 1000)])
def test_scope_decides_whether_brokers_share_a_window(scope: str, elsewhere: int) -> None:
    quotas = engine(ANY_CLIENT, scope=scope)
    assert quotas.client("u", "a", 1).requests.record(500_000, 0) == 1000
    assert quotas.client("u", "a", 2).requests.record(0, 1) == elsewhere


def test_changed_quota_applies_from_the_next_request_and_keeps_recorded_time() -> None:
    quotas, requests = limited()
    assert requests.record(90_000, 0) == 0
    quotas.update(EngineOptions(), definitions({Entity(client_id=DEFAULT): 0.8}), 0)
    assert requests.record(0, 0) == 1000  # 90 / 8 - 10 = 1.25 s
    quotas.update(EngineOptions(), definitions({Entity(client_id=DEFAULT): 10}), 0)
    assert requests.record(0, 0) == 0
    quotas.update(EngineOptions(), definitions({}), 0)
    assert not requests.limits(0)
    assert requests.record(10_000_000, 0) == 0
    assert not len(quotas.requests)


def test_changed_windows_keep_recorded_time() -> None:
    quotas, requests = limited()
    assert requests.record(90_000, 0) == 0
    quotas.update(EngineOptions(window_samples=5), definitions(ANY_CLIENT), 0)
    assert requests.record(0, 0) == 1000  # 9 - 4 s


def test_nothing_is_counted_while_everything_passes_unseen() -> None:
    quotas, requests = limited()
    assert requests.limits(0)
    quotas.switch_enforcement(on=False)
    assert not quotas.requests.limiting()
    assert (requests.limits(0), requests.record(500_000, 0)) == (False, 0)
    quotas.switch_enforcement(on=True)
    assert requests.record(0, 0) == 0


def test_observed_throttle_is_counted_separately() -> None:
    requests = throttle(mode="observe")
    assert not requests.enforcing
    connection = ConnectionTime()
    requests.predict(500_000, 0, connection)
    connection.settle(5000)
    assert (requests.would_throttled_total, requests.would_throttle_ms_total) == (1, 1000)
    assert (requests.throttled_total, requests.throttle_ms_total) == (0, 0)


def test_limiter_goes_with_its_last_client() -> None:
    quotas = engine({Entity(user="u"): 1})
    for name in ("a", "b"):
        assert quotas.client("u", name, 1).requests.limits(0)
    assert len(quotas.requests) == 1
    orphan = quotas.client("u", "a", 1).requests
    quotas.client("u", "a", 1).detach()
    assert len(quotas.requests) == 1
    quotas.client("u", "b", 1).detach()
    assert not len(quotas.requests)
    # A response that was owed when its client was forgotten.
    assert orphan.record(500_000, 0) == 0
    assert not len(quotas.requests)


def test_client_that_a_request_quota_names_keeps_its_own_beyond_the_bound() -> None:
    quotas = engine({Entity(client_id="b"): 1}, client_ids_max=1)
    assert [quotas.client("", name, 1).client_id for name in ("a", "b", "c")] == ["a", "b", "<other>"]


def test_view_tells_percent_and_microseconds() -> None:
    quotas = engine({Entity(client_id="a"): 1})
    requests = quotas.client("u", "a", 1).requests
    assert not quotas.client("u", "b", 1).requests.limits(0)  # it has no quota, and no view
    assert requests.limits(0)
    assert [view.byte_rate for view in quotas.views(0, "requests")] == [0.0]
    requests.count(requests.record(500_000, 500))
    (view,) = quotas.views(2000, "requests")
    assert (view.type, view.user, view.client_id) == ("Request", "u", "a")
    assert (view.byte_rate, view.quota, view.bytes_total) == (25.0, 1.0, 500_000)  # 0.5 s in 2 s
    assert (view.throttled_total, view.throttle_ms_total) == (1, 1000)
