"""The rows of a captured channel, as dialogues: one a request, whatever becomes of it."""

import struct
from typing import Any

import pytest

from protocol.api import HEARTBEAT, PRODUCE
from proxy.channel import BATCH_WEIGHT, Head, Row, RowOrigin, Tap
from proxy.channel.capture import CLIENT_ID_MAX, NONE_NS
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.support import frames
from tests.support.mutation_frames import create
from tests.support.playbook import Drop, Insert, Pass, Passthrough, Playbook, Wait, playbook

MS = 1_000_000


class Rows:
    """A recorder that keeps everything."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.add = self.rows.append
        self.batches = 0
        self.left = BATCH_WEIGHT
        self.room = 10**9
        self.kept_bytes = 0

    def full(self) -> None:
        self.batches += 1
        self.left = BATCH_WEIGHT

    def reserve(self, size: int) -> bool:
        if self.kept_bytes + size > self.room:
            return False
        self.kept_bytes += size
        return True


def captured(
    engine: Engine | None = None, *, frames: str = "off", partition_sample: float = 1.0, **told: Any
) -> tuple[Playbook, Rows]:
    """A dialogue whose requests are captured, and their rows."""
    rows = Rows()
    tap = Tap(rows, 7, "10.0.0.1", "clients", frames, partition_sample)
    return playbook(engine, tap=tap, **told), rows


def test_row_has_the_client_the_request_and_its_duration() -> None:
    talk, rows = captured()
    request, response = frames.heartbeat(client_id="c"), frames.some_response(20)
    talk.asks(100, request)
    assert rows.rows == []
    talk.responds(107, response)
    origin = RowOrigin(7, "10.0.0.1", "clients", 1, "ANONYMOUS", "c")
    assert rows.rows == [
        [(len(request) - 4, HEARTBEAT, 4, 1, 1), origin, 0, 100 * MS, 100 * MS, 20, 7 * MS, 0, 0, "", 0, ()]
    ]


def test_requests_are_numbered_and_client_ids_told_apart() -> None:
    talk, rows = captured()
    for number, client in enumerate(("a", "b", "b")):
        talk.asks(number, frames.heartbeat(client_id=client, correlation_id=number))
        talk.responds(number, frames.some_response(20, correlation_id=number))
    assert [(row[Row.SEQ], row[Row.ORIGIN].client_id) for row in rows.rows] == [(0, "a"), (1, "b"), (2, "b")]
    assert rows.rows[1][Row.ORIGIN] is rows.rows[2][Row.ORIGIN]


def test_produce_names_its_partitions() -> None:
    talk, rows = captured()
    request, response = frames.produce_to(9, {"a": [100, 20], "b": [3]}), frames.produce_response(9)
    talk.asks(0, request)
    talk.responds(5, response)
    (row,) = rows.rows
    assert row[Row.HEAD][: Head.API_VERSION] == (len(request) - 4, PRODUCE)
    assert [found[:3] for found in row[Row.PARTITIONS]] == [(b"a", 0, 100), (b"a", 1, 20), (b"b", 0, 3)]


def test_large_produce_is_sent_when_its_last_byte_is() -> None:
    talk, rows = captured()
    request, response = frames.produce_to(9, {"a": [50_000]}), frames.produce_response(9)
    head, rest = request[:1000], request[1000:]
    talk.client(0, head, Pass(head), Passthrough(len(rest)))
    talk.asks(30, rest)
    talk.responds(42, response)
    (row,) = rows.rows
    assert (row[Row.HANDLED_NS], row[Row.SENT_NS], row[Row.UPSTREAM_NS]) == (0, 30 * MS, 12 * MS)
    assert [found[:3] for found in row[Row.PARTITIONS]] == [(b"a", 0, 50_000)]


def test_produce_without_response_is_a_row_at_its_end() -> None:
    talk, rows = captured()
    request = frames.produce_to(9, {"a": [100], "b": [50_000]}, acks=0)
    head, rest = request[:200], request[200:]
    talk.client(0, head, Pass(head), Passthrough(len(rest)))
    row = rows.rows[0]
    assert (row[Row.RESPONSE_BYTES], row[Row.UPSTREAM_NS]) == (-1, NONE_NS)
    assert [found[:3] for found in row[Row.PARTITIONS]] == [(b"a", 0, 100), (b"b", 0, 50_000)]


def test_produce_over_its_quota_says_so() -> None:
    talk, rows = captured(producer_default=1000)
    request, response = frames.produce_to(9, {"a": [20_000]}), frames.produce_response(9)
    # (20,000 and the fields - 11 s of quota) / 1000 B/s
    throttle_ms = len(request) - 4 - 11_000 + 1000
    talk.client(0, request, Pass(request), Wait(throttle_ms))
    told = frames.with_throttle_time(response, 9 + 1, throttle_ms - 5)
    talk.broker(5, response, Insert(told), Drop(len(response)))
    row = rows.rows[0]
    assert (row[Row.THROTTLE_MS], row[Row.QUOTA], row[Row.DELAY_MS]) == (throttle_ms, "produce", 0)


def test_delay_is_the_mute_for_a_request_that_is_there_when_it_ends() -> None:
    talk, rows = captured(producer_default=1000)
    request, response = frames.produce_to(9, {"a": [20_000]}), frames.produce_response(9)
    delays = []
    now_ms = 50
    for late_ms in (0, 3, 1000):
        now_ms += late_ms
        talk.orders("client", now_ms, request)
        talk.orders("broker", now_ms, response)
        delays.append(rows.rows[-1][Row.DELAY_MS])
        now_ms += talk.mute_left_ms(now_ms)
        talk.orders("client", now_ms, b"")
    # The second is read 3 ms after the mute of 10,033 ms, the third a second after one.
    assert delays == [0, 10_033 + 3, 0]


def test_delay_of_a_held_produce_is_exact() -> None:
    options = EngineOptions(policy="schedule", hold_seconds_max=15)
    talk, rows = captured(options=options, producer_default=10_000)
    playbook(talk.engine).orders("client", 0, frames.produce_to(9, {"a": [60_000]}))
    until_ms = talk.held_until(100, frames.produce_to(9, {"a": [10_000]}))
    talk.orders("broker", until_ms, frames.produce_response(9))
    (row,) = rows.rows
    assert (row[Row.DELAY_MS], row[Row.QUOTA]) == (until_ms - 100, "produce")
    assert row[Row.DELAY_MS] > 0


@pytest.mark.parametrize("gateway", [True, False])
def test_fetch_response_names_its_partitions(gateway: bool) -> None:
    talk, rows = captured(gateway=gateway)
    response = frames.fetched_from(16, {"a": [100, 40_000]})
    talk.asks(0, frames.fetch(16))
    orders = talk.orders("broker", 9, response[:1000])
    orders += talk.orders("broker", 10, response[1000:])
    (row,) = rows.rows
    # Kafka charges neither the prefix nor the tag section of the header.
    assert (row[Row.RESPONSE_BYTES], row[Row.UPSTREAM_NS]) == (len(response) - 5, 9 * MS)
    a = frames.topic_id("a")
    assert [found[:3] for found in row[Row.PARTITIONS]] == [(a, 0, 100), (a, 1, 40_000)]
    assert sum(order.count for order in orders if isinstance(order, Passthrough)) > 0


def test_fetch_responded_to_here_asked_no_broker() -> None:
    talk, rows = captured(consumer_default=1000)
    talk.orders("client", 0, frames.join_group(9, 10_000))  # a mute is a fifth of it, and leaves a debt
    talk.orders("broker", 0, frames.some_response(20))
    rows.rows.clear()
    response = frames.fetched_from(11, {"a": [30_000]})
    talk.orders("client", 0, frames.fetch(11))
    talk.orders("broker", 1, response)
    reported_ms = rows.rows[0][Row.THROTTLE_MS]
    assert (reported_ms, rows.rows[0][Row.QUOTA]) == (talk.mute_left_ms(1), "fetch")
    again_ms = 1 + talk.mute_left_ms(1)
    talk.orders("client", again_ms, frames.fetch(11, correlation_id=2))
    talk.orders("broker", again_ms, b"")
    row = rows.rows[1]
    assert (row[Row.UPSTREAM_NS], row[Row.QUOTA]) == (NONE_NS, "fetch")
    assert row[Row.RESPONSE_BYTES] > 0
    assert row[Row.THROTTLE_MS] > 0


def test_created_partitions_are_counted_without_a_quota() -> None:
    talk, rows = captured()
    talk.asks(0, create(5, {"ten": 10, "five": 5}))
    talk.responds(1, frames.some_response(30))
    assert rows.rows[0][Row.MUTATIONS] == 10 + 5


def test_sampled_large_requests_are_recorded_with_all_partitions() -> None:
    talk, rows = captured(gateway=False, partition_sample=0.25)
    large = frames.produce_to(9, {"a": [40_000, 10_000]}, acks=0)
    small = frames.produce_to(9, {"a": [400, 100]}, acks=0)
    for request in (large, large, small, large, large, large):
        talk.orders("client", 0, request[:1000])
        talk.orders("client", 1, request[1000:])
    # Every fourth large one, and all that are small.
    partitions = [[found[1] for found in row[Row.PARTITIONS]] for row in rows.rows]
    assert partitions == [[0, -1], [0, -1], [0, 1], [0, 1], [0, -1], [0, -1]]


def test_requests_that_get_no_response_are_rows_too() -> None:
    talk, rows = captured()
    talk.asks(0, frames.heartbeat() * 2)
    talk.channel.close(5)
    found = [(row[Row.SEQ], row[Row.RESPONSE_BYTES], row[Row.UPSTREAM_NS]) for row in rows.rows]
    assert found == [(0, -1, NONE_NS), (1, -1, NONE_NS)]


def test_response_cut_short_is_a_row() -> None:
    talk, rows = captured()
    request, response = frames.fetch(11), frames.fetched_from(11, {"a": [100, 40_000, 5]})
    talk.asks(0, request)
    talk.orders("broker", 9, response[:1000])
    assert rows.rows == []
    talk.channel.close(10)
    assert [found[1:3] for found in rows.rows[0][Row.PARTITIONS]] == [(0, 100), (1, 40_000)]


def test_full_batch_is_handed_over() -> None:
    talk, rows = captured()
    rows.left = 1
    request, response = frames.heartbeat(), frames.some_response(20)
    talk.asks(0, request)
    talk.orders("broker", 0, response)
    assert (len(rows.rows), rows.batches, rows.rows[-1][Row.HEAD][Head.API_KEY]) == (1, 1, HEARTBEAT)


def test_row_weighs_as_many_as_it_has_partitions() -> None:
    talk, rows = captured()
    for sizes in ([], [1], [1, 2, 3]):
        talk.orders("client", 0, frames.produce_to(9, {"a": sizes}, acks=0))
    assert (len(rows.rows), rows.left) == (3, BATCH_WEIGHT - 1 - 1 - 3)


def test_client_id_is_cut_and_weighs() -> None:
    talk, rows = captured()
    for raw in (b"\xff" * 32_000, "é".encode() * 600, b"a" * CLIENT_ID_MAX):
        body = struct.pack(">hhih", HEARTBEAT, 0, 1, len(raw)) + raw
        talk.orders("client", 0, struct.pack(">i", len(body)) + body)
    assert rows.left == BATCH_WEIGHT - 4 - 2 - 4
    talk.channel.close(1)
    names = [row[Row.ORIGIN].client_id for row in rows.rows]
    assert names == ["\\xff" * (CLIENT_ID_MAX // 4), "é" * 512, "a" * CLIENT_ID_MAX]
