"""Connection rates of addresses: Kafka's arithmetic, by broker, bounded."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity, Name
from quotas.engine import Engine
from quotas.options import EngineOptions
from quotas.throttles import connections
from quotas.throttles.connections import DEBT_SECONDS_MAX, USERS_MAX, ConnectionDecision, ConnectionRates
from tests.support.engines import engine_with, limits_of

KEY = "connection_creation_rate"
HOME, OTHER = "192.0.2.1", "192.0.2.2"
RATES = Definitions({Entity(ip=DEFAULT): {KEY: 5}})


def rates(definitions: Definitions = RATES, **options: object) -> tuple[ConnectionRates, Engine]:
    engine = Engine(replace(EngineOptions(), **options), definitions)  # type: ignore[arg-type]  # options by name
    return ConnectionRates(engine), engine


def admitted(rates: ConnectionRates, ip: str, count: int, now_ms: int = 0, broker: int = 1) -> int:
    """How many of so many connections at once are let in."""
    return sum(not rates.connect(ip, broker, now_ms).wait_ms for _ in range(count))


def test_wait_is_kafkas() -> None:
    found, _ = rates()
    admitted(found, HOME, 50)
    # O = 51 / 10 = 5.1; (5.1 - 5) / 5 * 10 s
    assert found.connect(HOME, 1, 0) == ConnectionDecision(wait_ms=200)
    # What is refused does not count, so the next one waits no longer; and later ones less.
    assert [found.connect(HOME, 1, now_ms).wait_ms for now_ms in (0, 150)] == [200, 50]


def test_each_address_has_a_rate_of_its_own() -> None:
    found, _ = rates()
    assert admitted(found, HOME, 100) == admitted(found, OTHER, 100) == 50


def test_address_without_a_quota_is_not_even_remembered() -> None:
    found, _ = rates(Definitions({Entity(ip=OTHER): {KEY: 50}}))
    assert admitted(found, HOME, 1000) == 1000
    assert len(found) == 0


def test_rate_holds_at_each_broker_or_over_all() -> None:
    each, _ = rates()
    assert admitted(each, HOME, 100, broker=1) + admitted(each, HOME, 100, broker=2) == 100
    over_all, _ = rates(scope="cluster")
    assert admitted(over_all, HOME, 100, broker=1) + admitted(over_all, HOME, 100, broker=2) == 50


def test_observed_connection_is_accepted_and_counted() -> None:
    found, _ = rates(mode="observe")
    assert admitted(found, HOME, 51) == 51
    assert found.connect(HOME, 1, 0) == ConnectionDecision(would_wait_ms=200)


def test_raised_quota_holds_at_once() -> None:
    found, engine = rates()
    admitted(found, HOME, 51)
    engine.update(engine.options, Definitions({Entity(ip=HOME): {KEY: 6}}), 0)
    assert admitted(found, HOME, 100) == 10  # 60 less those that were let in
    engine.update(engine.options, Definitions(), 0)
    assert admitted(found, HOME, 1000) == 1000


def test_address_is_forgotten_when_its_window_is_over() -> None:
    found, _ = rates()
    for number in range(100):
        admitted(found, f"192.0.2.{number}", 1, now_ms=number)
    assert len(found) == 100
    for second in range(60):
        admitted(found, HOME, 1, now_ms=20_000 + second)
    assert len(found) == 1


@pytest.mark.interpreted
def test_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ADDRESSES_MAX", 10)  # a hundred thousand take a second
    found, _ = rates()
    for number in range(100):
        admitted(found, f"192.0.2.{number}", 1)
    assert len(found) == 10


@given(st.integers(1, 20), st.lists(st.integers(0, 300), min_size=1, max_size=300))
def test_never_more_than_the_rate_and_one_burst_are_let_in(rate: int, pauses: list[int]) -> None:
    found, _ = rates(Definitions({Entity(ip=HOME): {KEY: rate}}))
    now_ms = let_in = 0
    for pause in pauses:
        now_ms += pause
        let_in += not found.connect(HOME, 1, now_ms).wait_ms
    assert let_in <= rate * (now_ms / 1000 + 10) + 1


def engine(rates: dict[Name, float], **more: Any) -> Engine:
    entries = limits_of(KEY, {Entity(user): rate for user, rate in rates.items()})
    return engine_with(entries, window_samples=10, **more)


def waits(
    quotas: Engine, user: str, count: int, now_ms: int = 0, broker: int = 1, *, exactly: bool = False
) -> list[int]:
    found = [quotas.connections.connect(user, broker, STATS, now_ms, exactly=exactly) for _ in range(count)]
    return [0 if over is None else over[1] for over in found]


STATS = Stats()


def test_connections_beyond_the_burst_wait_for_their_token() -> None:
    assert waits(engine({"u": 1}), "u", 13)[9:] == [0, 1000, 2000, 3000]


def test_tokens_are_refilled_over_time() -> None:
    quotas = engine({"u": 2})
    assert waits(quotas, "u", 21)[-1] == 500
    assert waits(quotas, "u", 2, now_ms=1500) == [0, 0]  # -1 + 3 tokens
    assert waits(quotas, "u", 1, now_ms=1500) == [500]


def test_default_user_quota_gives_each_user_a_bucket() -> None:
    quotas = engine({DEFAULT: 1, "rich": 100})
    assert [waits(quotas, user, 11)[-1] for user in ("u", "v", "rich")] == [1000, 1000, 0]


def test_anonymous_counts_only_if_named() -> None:
    assert waits(engine({DEFAULT: 1}), "ANONYMOUS", 20, exactly=True)[-1] == 0
    assert waits(engine({DEFAULT: 9, "ANONYMOUS": 1}), "ANONYMOUS", 11, exactly=True)[-1] == 1000


def test_user_without_a_name_is_not_counted() -> None:
    assert waits(engine({DEFAULT: 1}), "", 20)[-1] == 0


def test_scope_decides_whether_brokers_share_a_limit() -> None:
    for scope, expected in (("broker", 0), ("cluster", 1000)):
        quotas = engine({"u": 1}, scope=scope)
        waits(quotas, "u", 6, broker=1)
        assert waits(quotas, "u", 5, broker=2)[-1] == expected


def test_debt_is_bounded() -> None:
    quotas = engine({"u": 1})
    assert waits(quotas, "u", 500)[-1] == DEBT_SECONDS_MAX * 1000
    assert waits(quotas, "u", 1, now_ms=10_000) == [51_000]


def test_observe_counts_and_mutes_no_user() -> None:
    quotas = engine({"u": 1}, mode="observe")
    before = STATS.connections_would_throttle
    assert waits(quotas, "u", 15)[-1] == 0
    assert STATS.connections_would_throttle - before == 5
    quotas.update(EngineOptions(window_samples=10), quotas.definitions, 0)
    assert waits(quotas, "u", 1) == [1000]  # what passed unenforced is no debt


def test_rate_changes_live() -> None:
    quotas = engine({"u": 1})
    over = [quotas.connections.connect("u", 1, STATS, 0, exactly=False) for _ in range(11)][-1]
    assert over is not None
    assert over[0].limit_now() == 1
    quotas.update(quotas.options, Definitions(), 0)
    assert over[0].limit_now() is None
    assert waits(quotas, "u", 20)[-1] == 0


def test_switched_off_counts_nothing() -> None:
    quotas = engine({"u": 1})
    quotas.switch_enforcement(False)
    assert waits(quotas, "u", 20)[-1] == 0
    assert len(quotas.connections) == 0


def test_users_with_a_full_bucket_are_removed() -> None:
    quotas = engine({DEFAULT: 1})
    for number in range(5):
        waits(quotas, f"u{number}", 1)
    waits(quotas, "late", 1, now_ms=1000)
    assert len(quotas.connections) == 4  # two are looked at with each connection
    assert len(quotas.connections) <= USERS_MAX
