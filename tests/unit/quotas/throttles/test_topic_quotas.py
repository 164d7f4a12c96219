"""quotas.throttles.topic_quotas: all clients' bytes of one topic, paid afterwards under both policies.

The arithmetic of kip13: 1,000 bytes/s, 11 windows of 1 s of which 10 count at the start, so 10,000 bytes are free and
12,000 make (12,000 - 10,000) / 1,000 = 2 s. That of the schedule: a burst of 1 s, so 3,000 bytes make 2 s.
"""

import pytest

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity, Name
from quotas.engine import EXPIRE_MS, Engine
from quotas.limiters.virtual_time import ConnectionTime
from quotas.options import EngineOptions
from quotas.throttles import topic_quotas

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"


def limits(*names: Name, rate: float = 1000, key: str = PRODUCE) -> Definitions:
    return Definitions({Entity(topic=name): {key: rate} for name in names})


def engine(*names: Name, options: EngineOptions | None = None, rate: float = 1000) -> Engine:
    return Engine(options or EngineOptions(), limits(*names, rate=rate))


def wait_ms(quotas: Engine, topic: str, size: int, now_ms: int = 0, broker: int = 1) -> int:
    found = quotas.topics.charge(PRODUCE, broker, {topic: size}, now_ms)
    return 0 if found is None else found[1]


def test_topic_over_its_quota_mutes_for_the_excess() -> None:
    quotas = engine("t")
    assert [wait_ms(quotas, "t", size) for size in (10_000, 2000, 1000)] == [0, 2000, 3000]


def test_schedule_is_paid_afterwards_too() -> None:
    quotas = engine("t", options=EngineOptions(policy="schedule"))
    assert [wait_ms(quotas, "t", size) for size in (1000, 2000)] == [0, 2000]
    assert wait_ms(quotas, "t", 500, now_ms=2000) == 500  # the burst is just used up, 500 bytes more


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_two_channels_that_wait_share_the_rate(policy: str) -> None:
    quotas = engine("t", options=EngineOptions(policy=policy))  # type: ignore[arg-type]  # a Policy
    due = {"one": 0, "two": 0}
    passed = 0
    for now_ms in range(0, 60_000, 10):
        for channel, at_ms in due.items():
            if at_ms <= now_ms:
                passed += 500
                due[channel] = now_ms + wait_ms(quotas, "t", 500, now_ms)
    # 60 s at 1,000 bytes/s, and the windows' 10,000 or the burst's 1,000 bytes at the start.
    assert 60_000 <= passed <= 72_000


def test_topics_do_not_share_a_quota() -> None:
    quotas = engine(DEFAULT)
    assert [wait_ms(quotas, topic, 12_000) for topic in "ab"] == [2000, 2000]


def test_directions_have_separate_limits() -> None:
    quotas = engine("a")
    assert quotas.topics.charge(FETCH, 1, {"a": 99_000}, 0) is None
    assert (quotas.charges_produced_topics, quotas.charges_fetched_topics) == (True, False)


@pytest.mark.parametrize(("scope", "expected"), [("broker", [2000, 2000]), ("cluster", [2000, 14_000])])
def test_scope_decides_whether_brokers_share_a_limit(scope: str, expected: list[int]) -> None:
    quotas = engine("t", options=EngineOptions(scope=scope))  # type: ignore[arg-type]  # a Scope
    assert [wait_ms(quotas, "t", 12_000, broker=broker) for broker in (1, 2)] == expected


def test_mute_is_capped_and_the_debt_stays() -> None:
    quotas = engine("t", options=EngineOptions(policy="schedule", mute_seconds_max=5))
    assert wait_ms(quotas, "t", 9000) == 5000  # 9 s less the burst are 8
    assert wait_ms(quotas, "t", 1, now_ms=5000) == 3001


def test_observe_counts_throttles_that_are_not_enforced() -> None:
    quotas = engine("t", options=EngineOptions(mode="observe"))
    connection = ConnectionTime()
    assert quotas.topics.charge(PRODUCE, 1, {"t": 12_000}, 0, connection) is None
    assert quotas.charges_produced_topics
    connection.settle(5000)
    (view,) = quotas.views(0, "topics")
    assert (view.would_throttled_total, view.would_throttle_ms_total, view.throttled_total) == (1, 2000, 0)


def test_enforcement_begins_without_a_debt() -> None:
    quotas = engine("t", options=EngineOptions(mode="observe", policy="schedule"))
    wait_ms(quotas, "t", 20_000)
    quotas.update(EngineOptions(policy="schedule"), quotas.definitions, 0)
    assert wait_ms(quotas, "t", 300) == 300  # the burst is used up, and nothing else is owed


def test_nothing_is_walked_through_while_everything_is_off() -> None:
    quotas = engine("t")
    quotas.switch_enforcement(False)
    assert not quotas.charges_produced_topics
    quotas.switch_enforcement(True)
    assert quotas.charges_produced_topics


def test_quota_changes_live() -> None:
    quotas = engine("t")
    assert wait_ms(quotas, "t", 12_000) == 2000
    quotas.update(quotas.options, limits("t", rate=2000), 0)
    assert wait_ms(quotas, "t", 10_000) == 1000  # (22,000 - 20,000) / 2,000
    quotas.update(quotas.options, Definitions(), 0)
    assert wait_ms(quotas, "t", 99_000) == 0
    assert not quotas.charges_produced_topics


def test_entry_put_later_is_seen_at_the_update() -> None:
    definitions = Definitions()
    quotas = Engine(EngineOptions(), definitions)
    definitions.put(Entity(topic="t"), {FETCH: 5})
    quotas.update(quotas.options, definitions, 0)
    assert (quotas.charges_produced_topics, quotas.charges_fetched_topics) == (False, True)
    definitions.put(Entity(topic="t"), {})
    quotas.update(quotas.options, definitions, 0)
    assert not quotas.charges_fetched_topics


@pytest.mark.interpreted
def test_topics_beyond_the_bound_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_quotas, "TOPICS_MAX", 2)
    definitions = Definitions(
        {Entity(topic=DEFAULT): {PRODUCE: 1000}, Entity(topic="named"): {PRODUCE: 1000}}
    )
    quotas = Engine(EngineOptions(), definitions)
    # a and b have their own, c and d one together, and whom an entry names always has his own.
    assert [wait_ms(quotas, topic, 7000) for topic in ("a", "b", "c", "d", "named")] == [0, 0, 0, 4000, 0]
    assert len(quotas.topics) == 4


def test_topics_without_traffic_are_forgotten_after_an_hour() -> None:
    quotas = engine("a", "b")
    wait_ms(quotas, "a", 1)
    wait_ms(quotas, "b", 1, now_ms=1)
    quotas.expire(EXPIRE_MS)
    assert [view.client_id for view in quotas.views(EXPIRE_MS, "topics")] == ["b"]


def expired(quotas: Engine, now_ms: int) -> list[str]:
    """The clients that the default topic's quota still holds."""
    quotas.topics.expire(now_ms)
    return [throttle.topic for throttle in quotas.topics.throttles()]


def test_topic_that_only_requests_name_is_forgotten_after_a_minute() -> None:
    quotas = Engine(
        EngineOptions(),
        Definitions(
            {Entity(topic=DEFAULT): {PRODUCE: 1000, FETCH: 1000}, Entity(topic="own"): {PRODUCE: 1000}}
        ),
    )
    wait_ms(quotas, "invented", 9000)
    wait_ms(quotas, "own", 1)
    quotas.topics.charge(FETCH, 1, {"fetched": 1}, 0)
    assert expired(quotas, 59_999) == ["invented", "own", "fetched"]
    assert expired(quotas, 60_000) == ["own", "fetched"]
    assert expired(quotas, EXPIRE_MS) == []


@pytest.mark.parametrize(
    ("options", "size", "until_ms"),
    [
        (EngineOptions(window_samples=10, window_seconds=10), 1, 100_000),  # as long as the window remembers
        (
            EngineOptions(policy="schedule", mute_seconds_max=200),
            100_000,
            99_000,
        ),  # what is beyond the burst takes 99 s to be paid
    ],
    ids=["window", "debt"],
)
def test_topic_that_owes_is_kept(options: EngineOptions, size: int, until_ms: int) -> None:
    quotas = engine(DEFAULT, options=options)
    wait_ms(quotas, "t", size)
    assert expired(quotas, until_ms - 1) == ["t"]
    assert expired(quotas, until_ms) == []


@pytest.mark.interpreted
def test_idle_topics_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_quotas, "TOPICS_MAX", 3)
    entries = {Entity(topic=DEFAULT): {PRODUCE: 1000, FETCH: 1000}, Entity(topic="own"): {PRODUCE: 1000}}
    quotas = Engine(EngineOptions(), Definitions(entries))
    for topic in ("own", "a"):
        wait_ms(quotas, topic, 1)
    quotas.topics.charge(FETCH, 1, {"a": 1}, 0)
    for topic, now_ms in (("b", 0), ("a", 1000), ("b", 59_000), ("b", 60_000)):
        wait_ms(quotas, topic, 1, now_ms)
    # At 60,000 ms what was fetched from a has gone, and b has its own; `<other>`, used the moment before, has not.
    kept = [(throttle.key, throttle.topic) for throttle in quotas.topics.throttles()]
    assert kept == [(PRODUCE, "own"), (PRODUCE, "a"), (PRODUCE, topic_quotas.OTHER)]


@pytest.mark.interpreted
def test_invented_topics_push_no_real_one_out_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_quotas, "TOPICS_MAX", 50)
    quotas = engine(DEFAULT)
    for number in range(60):
        wait_ms(quotas, f"invented-{number}", 1)
    wait_ms(quotas, "real", 1)
    assert "real" not in expired(quotas, 0)
    wait_ms(quotas, "real", 1, now_ms=60_000)
    assert "real" in expired(quotas, 60_000)


def test_view_has_every_figure() -> None:
    quotas = engine("t")
    wait_ms(quotas, "t", 12_000)
    (view,) = quotas.views(0, "topics")
    assert (view.type, view.client_id, view.quota, view.bytes_total) == ("Produce", "t", 1000, 12_000)
    assert (view.throttled_total, view.throttle_ms_total, view.debt_bytes) == (1, 2000, 2000)
