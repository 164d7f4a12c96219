"""Brokers that are lost and back, by metadata and by connections: one state, few events."""

import pytest

from proxy.events import Event
from proxy.events.broker_states import EVENT_MS, LOST_MAX, REPORT_MS, Brokers, BrokerStates, Changed

REFUSED = "10.0.0.1:9092: ECONNREFUSED"
OWN, WORKER = 0, 7
ROUND_MS = 5_000


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def states(told: list[Event]) -> BrokerStates:
    return BrokerStates(told.append)


def kinds(told: list[Event]) -> list[str]:
    return [event.kind for event in told]


def test_failed_connections_are_told_at_once_and_metadata_adds_nothing(
    states: BrokerStates, told: list[Event]
) -> None:
    states.listed([1, 2], 0)
    states.reported(OWN, 2, REFUSED, 1000)
    assert [event.text for event in told] == [f"Broker 2 is lost: connections to it fail: {REFUSED}."]
    assert told[0].fields == {"broker": 2, "problem": REFUSED}
    for number in range(1, 5):
        states.listed([1], number * ROUND_MS)
    states.reported(OWN, 2, REFUSED, 21_000)
    states.listed([1, 2], 25_000)
    states.reported(OWN, 2, "", 27_000)  # before metadata is sure
    assert kinds(told) == ["broker_lost"]
    states.listed([1, 2], 30_000)
    assert [event.text for event in told[1:]] == ["Broker 2 is back."]


def test_metadata_alone_is_enough(states: BrokerStates, told: list[Event]) -> None:
    for now_ms, live in ((0, [1, 2]), (5000, [1]), (10_000, [1]), (30_000, [1, 2]), (35_000, [1, 2])):
        states.listed(live, now_ms)
    assert kinds(told) == ["broker_lost", "broker_back"]
    assert told[0].fields == {"broker": 2, "problem": ""}


def test_broker_is_lost_while_one_process_cannot_reach_it(states: BrokerStates, told: list[Event]) -> None:
    states.reported(OWN, 2, REFUSED, 0)
    states.reported(WORKER, 2, REFUSED, 100)
    states.reported(OWN, 2, "", EVENT_MS)
    assert kinds(told) == ["broker_lost"]
    states.ended(WORKER, EVENT_MS + 100)
    assert kinds(told) == ["broker_lost", "broker_back"]


def test_report_that_is_not_repeated_is_over(states: BrokerStates, told: list[Event]) -> None:
    states.reported(OWN, 2, REFUSED, 0)
    states.reported(OWN, 2, REFUSED, 20_000)
    states.settle(20_000 + REPORT_MS)
    assert kinds(told) == ["broker_lost"]
    states.settle(20_001 + REPORT_MS)
    assert kinds(told) == ["broker_lost", "broker_back"]


def test_short_outage_is_told_to_its_end(states: BrokerStates, told: list[Event]) -> None:
    states.reported(OWN, 2, REFUSED, 0)
    states.reported(OWN, 2, "", 3000)  # and nothing is reported after that
    assert kinds(told) == ["broker_lost"]
    states.settle(EVENT_MS)
    assert kinds(told) == ["broker_lost", "broker_back"]


def test_broker_that_flaps_makes_six_events_in_a_minute(states: BrokerStates, told: list[Event]) -> None:
    for now_ms in range(0, 600_000, 100):
        states.reported(OWN, 2, REFUSED if now_ms // 100 % 2 else "", now_ms)
        if now_ms % ROUND_MS == 0:
            states.settle(now_ms)
    assert 30 <= len(told) <= 61
    assert kinds(told) == ["broker_lost", "broker_back"] * (len(told) // 2) + ["broker_lost"] * (
        len(told) % 2
    )


def test_brokers_are_bounded(states: BrokerStates, told: list[Event]) -> None:
    for broker in range(LOST_MAX + 10):
        states.reported(OWN, broker, REFUSED, 0)
    assert len(told) == LOST_MAX
    states.settle(REPORT_MS + 1)
    assert kinds(told[LOST_MAX:]) == ["broker_back"] * LOST_MAX


NOTHING, LOST, BACK = Changed((), ()), Changed((2,), ()), Changed((), (2,))
ONE, BOTH = {1}, {1, 2}


@pytest.mark.parametrize(
    ("rounds", "told"),
    [
        ([BOTH, ONE, ONE, ONE, BOTH, BOTH, BOTH], [NOTHING, NOTHING, LOST, NOTHING, NOTHING, BACK, NOTHING]),
        ([BOTH, ONE] * 100, [NOTHING] * 200),
        ([BOTH, BOTH, ONE, ONE] * 2, [NOTHING] * 3 + [LOST, NOTHING, BACK, NOTHING, LOST]),
        ([ONE, BOTH, BOTH], [NOTHING] * 3),
    ],
    ids=["lost and back once", "stale responses", "flaps: one event in two rounds at most", "new"],
)
def test_broker_is_lost_or_back_when_two_rounds_agree(rounds: list[set[int]], told: list[Changed]) -> None:
    brokers = Brokers()
    assert [brokers.seen(live) for live in rounds] == told


def test_cluster_that_names_other_brokers_each_time_is_bounded() -> None:
    brokers = Brokers()
    for first in range(0, LOST_MAX * 8, LOST_MAX):
        live = set(range(first, first + LOST_MAX))
        assert all(len(brokers.seen(live).lost) <= 2 * LOST_MAX for _ in range(3))
