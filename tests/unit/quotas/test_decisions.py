"""quotas.decisions: a decision is data, and letting pass makes none."""

import dataclasses

import pytest

from quotas.decisions import ADMITTED, Decision


def test_admitted_neither_holds_nor_throttles() -> None:
    assert (ADMITTED.hold_until_ms, ADMITTED.throttle_ms, ADMITTED.reason) == (0, 0, "")


def test_decision_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ADMITTED.throttle_ms = 1  # type: ignore[misc]  # this is what the test is about


def test_decision_has_no_dictionary() -> None:
    assert not hasattr(Decision(throttle_ms=5), "__dict__")
