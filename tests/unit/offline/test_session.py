"""Ctrl-C while Spark starts: it waits for the JVM, once, and PySpark's own handler is left alone."""

import signal
from collections.abc import Iterator

import pytest

from offline.session import held_interrupt


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(times: int, done: list[str]) -> None:
    """Start something that is interrupted so often, and note each interrupt that it outlasts."""
    with held_interrupt():
        for number in range(times):
            signal.raise_signal(signal.SIGINT)
            done.append(f"interrupt {number + 1}")


def test_interrupt_waits_for_the_end_of_the_block(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(1, done)
    assert done == ["interrupt 1"]
    assert capsys.readouterr().err == (
        "sluice-offline: ending once Spark has started; Ctrl-C again ends at once\n"
    )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_second_interrupt_acts_at_once() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(2, done)
    assert done == ["interrupt 1"]


def test_without_an_interrupt_the_handler_is_as_before() -> None:
    with held_interrupt():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handler_that_the_block_installs_stays() -> None:
    with held_interrupt():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_error_of_the_block_passes_and_restores_the_handler() -> None:
    with pytest.raises(RuntimeError, match="no Java"), held_interrupt():
        raise RuntimeError("no Java")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
