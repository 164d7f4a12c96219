"""Messages between processes as bytes."""

import msgspec
import pytest

from proxy.config import Config, ListenerOptions
from proxy.process import messages
from proxy.process.messages import (
    Beat,
    Drain,
    FrameError,
    Frames,
    Message,
    QuotaBatch,
    Response,
    Start,
    frame_of,
)
from proxy.process.shares import terms_of


def test_configuration_comes_back() -> None:
    config = Config(listeners=(ListenerOptions(),))
    start = Start(1, messages.config_bytes(config), 2, terms_of(2), enforcing=True)
    assert list(Frames().receive(frame_of(start))) == [start]


def test_messages_in_one_read_come_in_order() -> None:
    sent: list[Message] = [
        Beat(1),
        QuotaBatch({"-=:a": {"producer_byte_rate": 1.0}}, complete=True),
        Drain(hurried=False),
    ]
    assert list(Frames().receive(b"".join(map(frame_of, sent)))) == sent


def test_half_a_message_is_kept_until_the_rest_comes() -> None:
    frames, data = Frames(), frame_of(Beat(5))
    assert list(frames.receive(data[:-1])) == []
    assert len(frames) == len(data) - 1
    assert list(frames.receive(data[-1:])) == [Beat(5)]
    assert len(frames) == 0


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x00\x00\x00\x00", "a message of 0 bytes"),
        (b"\xff\xff\xff\xff", "a message of 4294967295 bytes"),
        (framed(b"abc"), "Expected `array`"),
        (framed(msgspec.msgpack.encode("text")), "Expected `array`"),
        (framed(msgspec.msgpack.encode(["Exec", 1])), "Invalid value 'Exec'"),
        (framed(msgspec.msgpack.encode(["Beat", "1"])), "Expected `int`, got `str`"),
        (framed(msgspec.msgpack.encode(["Drain", True, True])), "Expected `array` of at most length"),
        (framed(b"\x92\xacTopicsWanted\xdd\xff\xff\xff\xff\x01"), "no message"),
        (framed(b"\x92\xa4Beat\xa1\xff"), "no message"),
        (framed(b"\x92\xa6Looked" + b"\x91" * 100_000), "no message"),
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(FrameError, match=problem):
        list(Frames().receive(data))


def test_message_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "FRAME_BYTES_MAX", 1000)
    with pytest.raises(FrameError, match="a Response of 10"):
        frame_of(Response(1, bytes(1000)))
