"""quotas.turn: one channel's place at a throttle."""

from quotas.turn import Turn


def test_turn_begins_with_nothing_held_and_nothing_admitted() -> None:
    turn = Turn()
    assert (turn.limiter, turn.held_since_ms, turn.admitted, turn.queued) == (None, -1, -1, False)


def test_turn_forgets_its_place_and_keeps_the_size_of_the_last_fetch() -> None:
    turn = Turn()
    turn.tag, turn.queued, turn.held_since_ms, turn.expected, turn.passed = 7, True, 5, 1000, True
    turn.forget()
    assert (turn.tag, turn.queued, turn.held_since_ms, turn.passed) == (0, False, -1, False)
    assert turn.expected == 1000
