"""Inputs that the fuzzer has found, once more and without it: nothing escapes a reader, and no call takes long.

The time is the thread's own, at its best of three, and ten times what a call may take: an input that costs seconds is
found here, one that costs 6 ms by `make fuzz`.
"""

from pathlib import Path

import pytest

from protocol.primitives import uvarint_bytes
from tests.fuzz import corpus, minimise, stopwatch
from tests.fuzz.run import Findings
from tests.fuzz.targets import TARGETS

SLOWER = 10
CORPUS_BYTES_MAX = 300_000


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_raise_nothing_and_take_no_time(name: str) -> None:
    target = TARGETS[name]
    inputs = corpus.read(name)
    assert inputs, "every target has inputs to begin with"
    for one in inputs:
        if target.bound_seconds:
            found = stopwatch.confirm(target.run, one, SLOWER * target.bound_seconds)
            assert found == stopwatch.Slowest(), one.hex()
        else:
            target.run(one)


def test_corpus_is_small_and_of_targets_alone() -> None:
    files = {path.stem: path.stat().st_size for path in corpus.CORPUS.iterdir()}
    assert files.keys() == TARGETS.keys()
    assert sum(files.values()) < CORPUS_BYTES_MAX


def test_minimiser_keeps_inputs_with_new_coverage() -> None:
    def run(data: bytes) -> None:
        uvarint_bytes(1 << 7 * len(data))

    assert minimise.cover(run, [b"four", b"", b"1", b"22"]) == [
        b"",
        b"1",
        b"22",
    ]  # no turn of its loop, one, more


def test_failing_inputs_are_left_out_of_the_corpus() -> None:
    def run(data: bytes) -> None:
        if data == b"bad":
            raise AssertionError

    assert b"bad" not in minimise.cover(run, [b"bad"])


@pytest.mark.parametrize(("times_ms", "found"), [((9, 6, 7), 0.006), ((9, 4, 7), 0.0)])
def test_call_is_slow_that_is_slow_every_time(
    monkeypatch: pytest.MonkeyPatch, times_ms: tuple[int, ...], found: float
) -> None:
    now = 0.0
    left = list(times_ms)

    def call() -> None:
        nonlocal now
        now += left.pop(0) / 1000

    monkeypatch.setattr(stopwatch, "thread_time", lambda: now)
    slowest = stopwatch.confirm(lambda _: stopwatch.timed("a call", call), b"", 0.005)
    assert slowest.seconds == pytest.approx(found)
    assert slowest.label == ("a call" if found else "")


def test_finding_of_a_kind_is_kept_at_its_smallest(tmp_path: Path) -> None:
    findings = Findings(tmp_path)
    for data in (b"larger", b"small", b"largest"):
        findings.slow(data, "request plain Fetch version 12", 0.06)
    (kept,) = tmp_path.glob("*.bin")
    assert kept.read_bytes() == b"small"
    assert kept.with_suffix(".txt").read_text().startswith("request plain Fetch version 12\n60.0 ms")
