"""Brokers that are lost and back, round by round."""

from proxy.events.broker_states import LOST_MAX, ROUNDS, Brokers, Changed

NOTHING = Changed((), ())


def rounds(brokers: Brokers, *seen: set[int]) -> list[Changed]:
    return [brokers.seen(live) for live in seen]


def test_broker_is_lost_and_back_once() -> None:
    brokers = Brokers()
    assert rounds(brokers, {1, 2}, {1}, {1}, {1}) == [NOTHING, NOTHING, Changed((2,), ()), NOTHING]
    assert rounds(brokers, {1, 2}, {1, 2}, {1, 2}) == [NOTHING, Changed((), (2,)), NOTHING]


def test_stale_answer_is_no_event() -> None:
    assert rounds(Brokers(), {1, 2}, {1}, {1, 2}, {1}, {1, 2}) == [NOTHING] * 5


def test_broker_that_flaps_makes_few_events() -> None:
    brokers = Brokers()
    told = rounds(brokers, *([{1, 2}, {1, 2}, {1}, {1}] * 100))
    assert sum(found != NOTHING for found in told) <= len(told) // ROUNDS
    brokers = Brokers()
    assert rounds(brokers, *([{1, 2}, {1}] * 100)) == [NOTHING] * 200


def test_new_broker_is_no_event() -> None:
    assert rounds(Brokers(), {1}, {1, 2}, {1, 2}) == [NOTHING] * 3


def test_cluster_that_names_other_brokers_each_time_is_bounded() -> None:
    brokers = Brokers()
    for first in range(0, LOST_MAX * 8, LOST_MAX):
        live = set(range(first, first + LOST_MAX))
        assert all(len(found.lost) <= 2 * LOST_MAX for found in rounds(brokers, live, live, live))
