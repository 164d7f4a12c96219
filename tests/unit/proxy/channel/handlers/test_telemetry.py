"""PushTelemetry passes byte for byte, whatever is in it; few pushes are read, and what is kept is a few numbers."""

import pytest

from protocol.api import PUSH_TELEMETRY
from protocol.messages.telemetry import METRICS_BYTES_MAX, TELEMETRY_BYTES_MAX, ThrottleTimes
from proxy.channel import Telemetry
from proxy.channel.handlers.telemetry import PUSH_EVERY_MS
from proxy.system.stats import Stats
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


def test_process_reads_ten_a_second_and_two_at_once() -> None:
    stats = Stats()
    for now_ms, read in [
        (0, 2),
        (99, 2),
        (100, 3),
        (199, 3),
        (200, 4),
        (5_000, 6),
        (5_100, 7),
        (5_199, 7),
        (5_200, 8),
    ]:
        for _ in range(4 if now_ms in (0, 5_000) else 1):
            playbook(stats=stats).asks(now_ms, PUSH)
        assert stats.telemetry_pushes["read"] == read, now_ms
    assert stats.telemetry_pushes == {"read": 8, "often": 2 * 4 + 7 - 8}


def test_connection_is_read_as_often_whatever_its_client_ids_are() -> None:
    """More of them than a connection's identities that are kept."""
    talk = playbook()
    for number in range(50):
        talk.asks(number * 100, push(gauge(PRODUCE_AVG, 1.0), client_id=f"c{number}"))
    assert talk.stats.telemetry_pushes == {"read": 1, "often": 49}


def test_times_belong_to_the_client_id_that_has_pushed_them() -> None:
    talk = playbook()
    talk.asks(0, PUSH)
    talk.asks(PUSH_EVERY_MS, push(gauge(PRODUCE_AVG, 1.0), client_id="b"))
    assert said(talk) == Telemetry(PUSH_EVERY_MS, {"produce": ThrottleTimes(1.0, None)})
    talk.asks(PUSH_EVERY_MS + 1, request(2, 7, size=60))  # of "a" again
    assert said(talk) == Telemetry(0, TIMES)
