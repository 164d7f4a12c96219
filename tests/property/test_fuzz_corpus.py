"""Inputs that the fuzzer has found, once more and without it: nothing escapes a reader, and no call takes long.

The time is the thread's own, at its best of three, and ten times what a call may take: an input that costs seconds is
found here, one that costs 6 ms by `make fuzz`.
"""

import pytest

from protocol.primitives import uvarint_bytes
from tests.fuzz import corpus, minimise, stopwatch
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


def test_minimiser_keeps_what_reaches_something_else() -> None:
    def run(data: bytes) -> None:
        uvarint_bytes(1 << 7 * len(data))

    assert minimise.cover(run, [b"four", b"", b"1", b"22"]) == [
        b"",
        b"1",
        b"22",
    ]  # no turn of its loop, one, more


def test_what_fails_is_left_out_of_the_corpus() -> None:
    def run(data: bytes) -> None:
        if data == b"bad":
            raise AssertionError

    assert b"bad" not in minimise.cover(run, [b"bad"])
