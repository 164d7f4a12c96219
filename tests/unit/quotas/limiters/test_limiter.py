"""quotas.limiters.limiter: a decision is data, letting pass makes none; a flow is one channel's place at a limiter."""

import dataclasses

import pytest

from quotas.limiters.limiter import ADMITTED, Decision, Flow


def test_admitted_neither_holds_nor_throttles() -> None:
    assert (ADMITTED.hold_until_ms, ADMITTED.throttle_ms, ADMITTED.reason) == (0, 0, "")


def test_decision_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ADMITTED.throttle_ms = 1  # type: ignore[misc]  # this is what the test is about


def test_decision_has_no_dictionary() -> None:
    assert not hasattr(Decision(throttle_ms=5), "__dict__")


def test_flow_begins_with_nothing_held_and_nothing_admitted() -> None:
    flow = Flow()
    assert (flow.limiter, flow.held_since_ms, flow.admitted, flow.queued) == (None, -1, -1, False)


def test_flow_forgets_its_place_and_keeps_the_size_of_the_last_fetch() -> None:
    flow = Flow()
    flow.tag, flow.queued, flow.held_since_ms, flow.expected, flow.passed = 7, True, 5, 1000, True
    flow.forget()
    assert (flow.tag, flow.queued, flow.held_since_ms, flow.passed) == (0, False, -1, False)
    assert flow.expected == 1000
