"""quotas.throttles.connections: a token bucket for each user. 10 windows of 1 s, so a rate of 1/s lets 10 in at
once.
"""

from typing import Any

from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity, Name
from quotas.engine import Engine
from quotas.options import EngineOptions
from quotas.throttles.connections import DEBT_SECONDS_MAX, USERS_MAX
from tests.support.engines import engine_with, limits_of

KEY = "connection_creation_rate"


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
    assert over[0].rate() == 1
    quotas.update(quotas.options, Definitions(), 0)
    assert over[0].rate() is None
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
