"""proxy.system.priority: a busy process has SCHED_BATCH, an idle one the default, and another policy is left alone."""

import os
from collections.abc import Iterator
from typing import Final

import pytest

from proxy.system.priority import Priority

SECOND_NS: Final = 1_000_000_000


@pytest.fixture(autouse=True)
def policy() -> Iterator[None]:
    """Restore this process's own policy."""
    before = os.sched_getscheduler(0)
    yield
    os.sched_setscheduler(0, before, os.sched_param(0))


class Clock:
    """Tells a `Priority` how much CPU each second took."""

    def __init__(self) -> None:
        self.used_ns = self.now_ns = 10**18
        self.priority = Priority()
        self.second(0)

    def second(self, share: float) -> int:
        self.now_ns += SECOND_NS
        self.used_ns += round(share * SECOND_NS)
        self.priority.adapt(self.used_ns, self.now_ns)
        return os.sched_getscheduler(0)


def test_policy_follows_the_load_with_hysteresis() -> None:
    clock = Clock()
    clock.second(0)
    shares = [0.09, 0.11, 0.06, 0.04, 0.06, 1.0]
    assert [clock.second(share) == os.SCHED_BATCH for share in shares] == [
        False,
        True,
        True,
        False,
        False,
        True,
    ]


def test_policy_that_an_operator_sets_is_left_alone() -> None:
    clock = Clock()
    clock.second(0)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    assert {clock.second(1.0), clock.second(0.0), clock.second(1.0)} == {os.SCHED_IDLE}


def test_policy_of_the_start_is_left_alone() -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    clock = Clock()
    assert {clock.second(0.0), clock.second(1.0), clock.second(0.0)} == {os.SCHED_BATCH}


def test_policy_that_cannot_be_read_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def lack(_: int) -> int:
        raise OSError(38, "Function not implemented")

    with monkeypatch.context() as context:
        context.setattr(os, "sched_getscheduler", lack)
        priority = Priority()
        priority.adapt(10**18, 10**18)
        priority.adapt(2 * 10**18, 2 * 10**18)
    assert not priority.batch


def test_refused_policy_is_tried_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "a sandbox")

    clock = Clock()
    clock.second(0)
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    clock.second(1.0)
    clock.second(1.0)
    monkeypatch.undo()
    assert (len(caplog.records), clock.priority.batch) == (1, False)
