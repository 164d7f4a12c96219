"""quotas.engine: what clients take in memory is counted and bounded, and what is gone makes room."""

import tracemalloc
from dataclasses import replace

import pytest

from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import CLIENT_ID_CHARACTERS_MAX, EXPIRE_MS, EXPIRE_SOON_MS, OTHER, Engine
from quotas.options import EngineOptions, Mode, Policy
from quotas.throttles.figures import CLIENT_BYTES, LIMITER_BYTES

MB = 1_000_000
LONG = "x" * (CLIENT_ID_CHARACTERS_MAX + 1)
ALL = Definitions(
    {
        Entity(user=DEFAULT, client_id=DEFAULT): {
            "producer_byte_rate": MB,
            "consumer_byte_rate": MB,
            "controller_mutation_rate": 10,
            "request_percentage": 100,
        }
    }
)


def engine(definitions: Definitions | None = None, **options: object) -> Engine:
    return Engine(replace(EngineOptions(), **options), Definitions() if definitions is None else definitions)  # type: ignore[arg-type]  # any option


def use(quotas: Engine, client_id: str, times_ms: range = range(1)) -> None:
    """A connection of this client that moves something, and is closed."""
    client = quotas.client("u", client_id, 1)
    produce, fetch = client.produce.flow(), client.fetch.flow()
    for now_ms in times_ms:
        client.produce.produce(produce, 1000, now_ms)
        client.fetch.fetched(fetch, 1000, now_ms)
        if client.requests.limits(now_ms):
            client.requests.record(1000, now_ms)
        if client.mutations.limits(now_ms):
            client.mutations.record(1, now_ms)
    client.produce.leave(produce, times_ms[-1])
    client.fetch.leave(fetch, times_ms[-1])


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
@pytest.mark.parametrize("mode", ["enforce", "observe"])
@pytest.mark.parametrize("definitions", [None, ALL], ids=["unlimited", "limited"])
def test_clients_take_no_more_memory_than_they_count(
    policy: Policy, mode: Mode, definitions: Definitions | None
) -> None:
    quotas = engine(definitions, policy=policy, mode=mode)
    use(quotas, "first")  # and what is made once
    counted = quotas.client_bytes
    tracemalloc.start()
    for number in range(500):
        use(quotas, f"{number:04d}".ljust(200, "x"), range(0, 13_000, 1000))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= quotas.client_bytes - counted


def test_rates_of_clients_take_no_more_memory_than_they_count() -> None:
    quotas = engine()
    use(quotas, "first")
    counted = quotas.client_bytes
    tracemalloc.start()
    for number in range(500):
        use(quotas, f"{number:04d}".ljust(200, "x"), range(0, 6_000_000, 1_000_000))
    for second in range(0, 30, 6):
        for number in range(500):
            use(quotas, f"{number:04d}".ljust(200, "x"), range(second * 1000, second * 1000 + 1))
        quotas.expire(second * 1000)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= quotas.client_bytes - counted


def test_names_count_by_their_length() -> None:
    quotas = engine()
    quotas.client("", "a", 1)
    before = quotas.client_bytes
    quotas.client("", "b" * 500, 1)
    assert CLIENT_BYTES + 500 <= quotas.client_bytes - before < CLIENT_BYTES + 700


def test_limiters_count() -> None:
    quotas = engine(Definitions(static=StaticQuotas(producer_default=MB)))
    client = quotas.client("", "a", 1)
    before = quotas.client_bytes
    client.produce.produce(client.produce.flow(), 1, 0)
    assert quotas.client_bytes - before == LIMITER_BYTES


def test_forgotten_clients_count_no_more() -> None:
    quotas = engine(ALL)
    use(quotas, "a")
    quotas.expire(0)
    assert quotas.expire(EXPIRE_MS) == 1
    assert quotas.client_bytes == 0


def test_clients_beyond_the_bytes_share_one_budget() -> None:
    quotas = engine(client_bytes_max=2 * CLIENT_BYTES)
    names = [quotas.client("", name, 1).client_id for name in ("a", "b", "c", "d")]
    assert names == ["a", "b", OTHER, OTHER]


def test_too_long_client_id_counts_as_other() -> None:
    quotas = engine()
    long = quotas.client("u", LONG, 1)
    assert (long.user, long.client_id) == ("u", OTHER)
    assert quotas.client("u", LONG + "y", 1) is long
    assert quotas.client("u", LONG[1:], 1).client_id == LONG[1:]


def test_long_client_id_that_an_entry_names_keeps_its_quota() -> None:
    quotas = engine(Definitions({Entity(client_id=LONG): {"producer_byte_rate": MB}}))
    assert quotas.client("u", LONG, 1).client_id == LONG


def test_new_client_displaces_an_idle_one() -> None:
    quotas = engine(client_ids_max=2)
    use(quotas, "gone")
    use(quotas, "gone too")
    quotas.expire(0)
    quotas.expire(EXPIRE_SOON_MS - 1)
    assert quotas.client("u", "new", 1).client_id == OTHER
    quotas.expire(EXPIRE_SOON_MS)
    assert quotas.client("u", "new", 1).client_id == "new"


def test_client_that_is_connected_or_owes_is_not_displaced() -> None:
    quotas = engine(Definitions(static=StaticQuotas(producer_default=1)), client_ids_max=2, policy="schedule")
    connected = quotas.client("u", "connected", 1).fetch
    connected.fetched(connected.flow(), 1, 0)
    use(quotas, "owes", range(0, 20_000, 1000))  # 20,000 bytes at 1 byte/s
    for now_ms in (0, EXPIRE_SOON_MS, 2 * EXPIRE_SOON_MS):
        quotas.expire(now_ms)
    assert quotas.client("u", "new", 1).client_id == OTHER


def test_idle_clients_are_forgotten_soon_only_where_room_is_short() -> None:
    ample, short = engine(client_ids_max=8), engine(client_ids_max=4)
    for quotas in (ample, short):
        for name in ("a", "b", "c"):
            use(quotas, name)
        quotas.expire(0)
    assert (ample.expire(EXPIRE_SOON_MS), short.expire(EXPIRE_SOON_MS)) == (0, 3)


def test_idle_clients_are_never_forgotten_before_their_windows_are_empty() -> None:
    quotas = engine(client_ids_max=1, window_samples=100, window_seconds=1)
    use(quotas, "a")
    quotas.expire(0)
    assert (quotas.expire(99_999), quotas.expire(100_000)) == (0, 1)
