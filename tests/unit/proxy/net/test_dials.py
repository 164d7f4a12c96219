"""Connections to brokers that fail: what is reported of them, and how often."""

import pytest

from proxy.net.shared import FAILURES_MIN, REPORT_MS, Dials


@pytest.fixture
def reports() -> list[tuple[int, str]]:
    return []


@pytest.fixture
def dials(reports: list[tuple[int, str]]) -> Dials:
    found = Dials()
    found.report = lambda broker, problem: reports.append((broker, problem))
    return found


def test_one_failure_is_none(dials: Dials, reports: list[tuple[int, str]]) -> None:
    for now_ms in range(0, 100_000, 1000):
        dials.failed(1, "refused", now_ms)
        dials.opened(1)
    assert reports == []


def test_failures_are_reported_while_they_last_and_at_their_end(
    dials: Dials, reports: list[tuple[int, str]]
) -> None:
    for now_ms in range(0, 45_000, 100):  # the second one first, then each 20 s
        dials.failed(1, f"at {now_ms}", now_ms)
    dials.opened(1)
    dials.opened(1)
    assert reports == [(1, "at 100"), (1, "at 20100"), (1, "at 40100"), (1, "")]


def test_broker_that_flaps_is_reported_no_more_often(dials: Dials, reports: list[tuple[int, str]]) -> None:
    for now_ms in range(0, 5 * REPORT_MS, 10):
        for _ in range(FAILURES_MIN):
            dials.failed(1, "refused", now_ms)
        dials.opened(1)
    assert len(reports) == 10  # five times both


def test_brokers_are_apart_and_an_unknown_one_is_none(dials: Dials, reports: list[tuple[int, str]]) -> None:
    for broker in (1, 2, -1, -1):
        dials.failed(broker, "refused", 0)
    dials.failed(2, "refused", 1)
    dials.opened(3)
    assert reports == [(2, "refused")]
