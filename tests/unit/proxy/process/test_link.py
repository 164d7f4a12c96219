"""Messages between processes as bytes."""

import pickle

import pytest

from proxy.channel import Forward
from proxy.config import Config, ListenerOptions
from proxy.process import link
from proxy.process.link import FrameError, Frames, frame_of
from proxy.process.messages import Answer, Beat, Drain, QuotaBatch, Start
from proxy.process.shares import terms_of


def test_message_comes_back() -> None:
    message = Answer(7, Forward(45, b"frame", ("plan", 1)))
    assert list(Frames().receive(frame_of(message))) == [message]


def test_configuration_with_read_only_mappings_comes_back() -> None:
    start = Start(1, Config(listeners=(ListenerOptions(),)), 2, terms_of(2), enforcing=True)
    assert list(Frames().receive(frame_of(start))) == [start]


def test_messages_in_one_read_come_in_order() -> None:
    sent = [Beat(1), QuotaBatch({"-=:a": {"producer_byte_rate": 1.0}}, complete=True), Drain(hurried=False)]
    assert list(Frames().receive(b"".join(map(frame_of, sent)))) == sent


def test_half_a_message_is_kept_until_the_rest_comes() -> None:
    frames, data = Frames(), frame_of(Beat(5))
    assert list(frames.receive(data[:-1])) == []
    assert len(frames) == len(data) - 1
    assert list(frames.receive(data[-1:])) == [Beat(5)]
    assert len(frames) == 0


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x03abc",
        len(pickle.dumps("text")).to_bytes(4, "big") + pickle.dumps("text"),
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        list(Frames().receive(data))


def test_message_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "FRAME_BYTES_MAX", 1000)
    with pytest.raises(FrameError, match="a Answer of 10"):
        frame_of(Answer(1, bytes(1000)))


def test_value_that_is_no_message_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="str is no message"):
        frame_of("text")
