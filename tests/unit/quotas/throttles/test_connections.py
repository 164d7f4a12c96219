"""Connection rates of addresses: Kafka's arithmetic, by broker, bounded."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.options import EngineOptions
from quotas.throttles import connections
from quotas.throttles.connections import ConnectionDecision, ConnectionRates

KEY = "connection_creation_rate"
HOME, OTHER, DEAR = "192.0.2.1", "192.0.2.2", "2001:db8::1"
RATES = Definitions({Entity(ip=DEFAULT): {KEY: 5}, Entity(ip="2001:DB8:0::1"): {KEY: 50}})


def rates(definitions: Definitions = RATES, **options: object) -> tuple[ConnectionRates, Engine]:
    engine = Engine(replace(EngineOptions(), **options), definitions)  # type: ignore[arg-type]  # options by name
    return ConnectionRates(engine), engine


def admitted(rates: ConnectionRates, ip: str, count: int, now_ms: int = 0, broker: int = 1) -> int:
    """How many of so many connections at once are let in."""
    return sum(not rates.connect(ip, broker, now_ms).wait_ms for _ in range(count))


def test_window_of_ten_seconds_is_let_in_at_once() -> None:
    found, _ = rates()
    assert admitted(found, HOME, 100) == 50  # 5/s * (11 - 1) samples of 1 s


def test_wait_is_kafkas() -> None:
    found, _ = rates()
    admitted(found, HOME, 50)
    # O = 51 / 10 = 5.1; (5.1 - 5) / 5 * 10 s
    assert found.connect(HOME, 1, 0) == ConnectionDecision(wait_ms=200)
    # What is refused does not count, so the next one waits no longer; and later ones less.
    assert [found.connect(HOME, 1, now_ms).wait_ms for now_ms in (0, 150)] == [200, 50]


def test_refused_connections_do_not_count() -> None:
    found, _ = rates()
    admitted(found, HOME, 1000)
    assert admitted(found, HOME, 100, now_ms=10_200) == 1  # 5 * 10.2 = 51


def test_each_address_has_a_rate_of_its_own() -> None:
    found, _ = rates()
    assert admitted(found, HOME, 100) == admitted(found, OTHER, 100) == 50


def test_named_address_beats_the_default_however_it_is_written() -> None:
    found, _ = rates()
    assert admitted(found, DEAR, 1000) == 500


def test_address_without_a_quota_is_not_even_remembered() -> None:
    found, _ = rates(Definitions({Entity(ip=DEAR): {KEY: 50}}))
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


def test_addresses_are_bounded() -> None:
    found, _ = rates()
    bound = connections.ADDRESSES_MAX
    try:
        connections.ADDRESSES_MAX = 10  # type: ignore[misc]  # a hundred thousand take a second
        for number in range(100):
            admitted(found, f"192.0.2.{number}", 1)
        assert len(found) == 10
    finally:
        connections.ADDRESSES_MAX = bound  # type: ignore[misc]


@given(st.integers(1, 20), st.lists(st.integers(0, 300), min_size=1, max_size=300))
def test_never_more_than_the_rate_and_one_burst_are_let_in(rate: int, pauses: list[int]) -> None:
    found, _ = rates(Definitions({Entity(ip=HOME): {KEY: rate}}))
    now_ms = let_in = 0
    for pause in pauses:
        now_ms += pause
        let_in += not found.connect(HOME, 1, now_ms).wait_ms
    assert let_in <= rate * (now_ms / 1000 + 10) + 1
