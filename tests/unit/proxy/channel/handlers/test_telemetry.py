"""PushTelemetry passes byte for byte, whatever is in it; few pushes are read, and what is kept is a few numbers."""

import pytest

from protocol.api import PUSH_TELEMETRY
from protocol.messages.telemetry import METRICS_BYTES_MAX, TELEMETRY_BYTES_MAX, ThrottleTimes
from proxy.channel import Telemetry
from proxy.channel.handlers.telemetry import PUSH_EVERY_MS
from tests.support.frames import request, some_response
from tests.support.playbook import More, Pass, Passthrough, Playbook, playbook
from tests.support.pushes import (
    GZIP,
    LZ4,
    PRODUCE_AVG,
    PRODUCE_MAX,
    ZSTD,
    compressed,
    gauge,
    metrics_data,
    push,
    push_body,
)

TIMES = {"produce": ThrottleTimes(118.0, 480.0)}
PUSH = push(gauge(PRODUCE_AVG, 118.0), gauge(PRODUCE_MAX, 480), compression=ZSTD)


def said(talk: Playbook, now_ms: int = 0) -> Telemetry | None:
    return talk.channel.condition(now_ms, time_requests=False).telemetry


def body(data: bytes, compression: int = 0) -> bytes:
    return request(PUSH_TELEMETRY, 0, push_body(data, compression))


def test_push_and_its_response_pass_and_its_times_are_kept() -> None:
    talk = playbook()
    assert said(talk) is None
    talk.asks(5, PUSH)
    assert said(talk) == Telemetry(5, TIMES)
    assert talk.stats.telemetry_pushes == {"read": 1}
    talk.broker(6, some_response(), Pass(some_response()))
    assert talk.owed == 0


@pytest.mark.parametrize(
    ("asked", "result"),
    [
        (push(gauge(PRODUCE_AVG, float("nan"))), "nothing"),
        (push(gauge(PRODUCE_AVG, -1.0)), "malformed"),
        (body(b"\x0a\x05"), "malformed"),
        (body(b"no gzip", GZIP), "malformed"),
        (body(b"any", LZ4), "compression"),
        (body(b"any", 77), "compression"),
        (body(compressed(bytes(METRICS_BYTES_MAX + 1), GZIP), GZIP), "large"),
        (body(b"\x08\0" * 4001), "large"),  # three steps each
        (request(PUSH_TELEMETRY, 0), "malformed"),  # without fields
        (request(PUSH_TELEMETRY, 1, push_body(metrics_data([gauge(PRODUCE_AVG, 1.0)]))), "version"),
        (body(bytes(TELEMETRY_BYTES_MAX)), "large"),
    ],
)
def test_push_that_is_not_read_passes_and_is_counted(asked: bytes, result: str) -> None:
    talk = playbook()
    talk.asks(0, asked)
    assert talk.stats.telemetry_pushes == {result: 1}
    assert not (said(talk) or Telemetry(0, {})).times
    talk.broker(1, some_response(), Pass(some_response()))


def test_push_is_read_when_all_of_it_is_here_and_a_large_one_passes_at_once() -> None:
    talk = playbook()
    talk.client(0, PUSH[:40], More(len(PUSH)))
    talk.client(1, PUSH[40:], Pass(PUSH))
    assert talk.stats.telemetry_pushes == {"read": 1}
    large = body(bytes(TELEMETRY_BYTES_MAX))
    talk.client(2, large[:40], Pass(large[:40]), Passthrough(len(large) - 40))
    assert talk.stats.telemetry_pushes == {"read": 1, "large": 1}


def test_connection_is_read_every_ten_seconds_also_if_it_could_not_be_read() -> None:
    talk = playbook()
    talk.asks(0, body(b"\x0a\x05"))
    talk.asks(PUSH_EVERY_MS - 1, PUSH)
    assert talk.stats.telemetry_pushes == {"malformed": 1, "often": 1}
    talk.client(PUSH_EVERY_MS - 1, PUSH[:40], Pass(PUSH[:40]), Passthrough(len(PUSH) - 40))
    talk.passthrough("client", PUSH_EVERY_MS - 1, len(PUSH) - 40)
    talk.asks(PUSH_EVERY_MS, PUSH)
    assert talk.stats.telemetry_pushes == {"malformed": 1, "often": 2, "read": 1}
    assert said(talk) == Telemetry(PUSH_EVERY_MS, TIMES)


def test_process_reads_ten_a_second_and_three_at_once() -> None:
    """Of client ids in turn, as of connections in turn."""
    talk = playbook()
    pushes = iter([push(gauge(PRODUCE_AVG, 1.0), client_id=f"c{number}") for number in range(30)])
    for now_ms, read in [(0, 3), (99, 3), (100, 4), (199, 4), (200, 5), (5_000, 8), (5_299, 10), (5_300, 11)]:
        for _ in range(4 if now_ms in (0, 5_000, 5_299) else 1):
            talk.asks(now_ms, next(pushes))
        assert talk.stats.telemetry_pushes["read"] == read, now_ms
    assert sum(talk.stats.telemetry_pushes.values()) == 3 * 4 + 5


def test_times_belong_to_the_client_id_that_has_pushed_them() -> None:
    talk = playbook()
    talk.asks(0, PUSH)
    talk.asks(1, push(gauge(PRODUCE_AVG, 1.0), client_id="b"))
    assert said(talk) == Telemetry(1, {"produce": ThrottleTimes(1.0, None)})
    talk.asks(2, request(2, 7, size=60))  # of "a" again
    assert said(talk) == Telemetry(0, TIMES)
