"""Connections to brokers that fail: what is reported of them, and how often."""

import errno
import fcntl
import logging
import os

import pytest

from proxy.net.shared import FAILURES_MIN, REPORT_MS, Dials, Pipe, Pipes
from proxy.system.stats import Stats


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


def taken(pool: Pipes) -> Pipe:
    pipe = pool.take()
    assert pipe is not None
    return pipe


def refuse(*_: object) -> int:
    raise PermissionError(errno.EPERM, "over the limit of this user")


def test_pipe_carries_bytes_and_is_lent_again_when_it_is_given_back() -> None:
    pool = Pipes(2, Stats())
    pipe = taken(pool)
    os.write(pipe.write_fd, b"abc")
    assert os.read(pipe.read_fd, 3) == b"abc"
    pool.give_back(pipe)
    assert pool.take() is pipe
    pipe.close()


def test_pool_is_bounded_and_a_discarded_pipe_makes_room() -> None:
    stats = Stats()
    pool = Pipes(1, stats)
    first = taken(pool)
    assert (pool.take(), stats.pipe_fallbacks) == (None, 1)
    pool.discard(first)
    taken(pool).close()


def test_refused_width_falls_back_to_a_narrower_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.fcntl

    def narrow(fd: int, command: int, width: int) -> int:
        return refuse() if command == fcntl.F_SETPIPE_SZ and width > 1 << 16 else real(fd, command, width)

    monkeypatch.setattr(fcntl, "fcntl", narrow)
    pipe = taken(Pipes(1, Stats()))
    assert pipe.width == 1 << 16
    pipe.close()


def test_pipe_of_no_chosen_width_is_lent_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    taken(Pipes(1, Stats())).close()


def test_refused_pipes_are_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "pipe2", refuse)
    stats = Stats()
    pool = Pipes(1, stats)
    with caplog.at_level(logging.WARNING):
        assert [pool.take(), pool.take(), stats.pipe_fallbacks] == [None, None, 2]
    assert len(caplog.records) == 1


def test_machine_without_splice_has_no_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "splice")
    assert Pipes(2, Stats()).take() is None
