"""What a captured row says of times and throttles where requests and decisions overlap, and of which broker."""

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.channel import Row, complete_frame
from proxy.channel.capture import Head
from quotas.definitions.entities import Entity
from tests.support import frames
from tests.support.engines import engine_with
from tests.support.playbook import Pass, Playbook, Wait, playbook
from tests.support.reachable import reachable
from tests.unit.proxy.channel.test_captured import MS, Rows, captured

OVER = {"t": [11_989]}  # 2 s of 1,000 bytes/s; `test_topic_charges` has the arithmetic


def limited(key: str) -> tuple[Playbook, Rows]:
    engine = engine_with({Entity(topic="t"): {key: 1000.0}})
    engine.topics.names.learn(frames.topic_id("t"), "t")
    return captured(engine)


def show(talk: Playbook, who: str, *pieces: tuple[int, bytes]) -> None:
    for now_ms, piece in pieces:
        talk.orders(who, now_ms, piece)


def told(rows: Rows) -> list[tuple[int, int, str]]:
    return [(row[Row.SEQ], row[Row.THROTTLE_MS], row[Row.QUOTA]) for row in rows.rows]


@pytest.mark.parametrize("sizes", [[50_000], [50_000, 9]])
@pytest.mark.parametrize(
    "second",
    [frames.produce_to(9, {"a": [10, 10]}, correlation_id=2), frames.heartbeat()],
    ids=["produce", "heartbeat"],
)
def test_large_request_was_sent_before_the_next_one_came(sizes: Sequence[int], second: bytes) -> None:
    talk, rows = captured()
    first = frames.produce_to(9, {"a": list(sizes)}, correlation_id=1)
    show(talk, "client", (0, first[:1000]), (5, first[1000:4000]), (10, first[4000:]), (400, second))
    show(talk, "broker", (510, frames.produce_response(9, correlation_id=1)))
    assert rows.rows[0][Row.UPSTREAM_NS] == 500 * MS


def test_wait_for_the_connection_rate_is_in_no_row() -> None:
    engine = engine_with({Entity("ANONYMOUS"): {"connection_creation_rate": 1}})
    asked = frames.heartbeat()
    for _ in range(11):
        playbook(engine).asks(0, asked)
    late, rows = captured(engine)
    late.client(300, asked, Wait(1000))
    late.client(1000, b"", Pass(asked))
    late.responds(1010, frames.some_response(20))
    assert [(row[Row.THROTTLE_MS], row[Row.DELAY_MS]) for row in rows.rows] == [(0, 700)]


@pytest.mark.parametrize("cuts", [(), (1000,)])
def test_topic_throttle_of_a_fetch_is_in_no_row(cuts: tuple[int, ...]) -> None:
    talk, rows = limited("consumer_byte_rate")
    response = frames.fetched_from(16, OVER)
    show(talk, "client", (0, frames.fetch(16)))
    for begin, end in zip((0, *cuts), (*cuts, len(response)), strict=True):
        talk.orders("broker", 1, response[begin:end])
    assert talk.mute_left_ms(1) > 1000 - 1
    show(talk, "client", (60_000, frames.heartbeat()))
    show(talk, "broker", (60_001, frames.some_response(20)))
    assert told(rows) == [(0, 0, ""), (1, 0, "")]


@pytest.mark.parametrize("cut", [0, 1000])
def test_topic_throttle_is_in_the_row_of_its_produce_alone(cut: int) -> None:
    talk, rows = limited("producer_byte_rate")
    asked = frames.produce_to(9, OVER, correlation_id=2)
    show(talk, "client", (0, frames.heartbeat()), (0, asked[:cut]), (0, asked[cut:]))
    show(talk, "broker", (5, frames.some_response(20)), (6, frames.produce_response(9, correlation_id=2)))
    assert told(rows) == [(0, 0, ""), (1, 2000, "produce")]


def test_topic_throttle_after_the_response_is_reported_in_no_row() -> None:
    talk, rows = limited("producer_byte_rate")
    asked = frames.produce_to(9, OVER)
    show(talk, "client", (0, asked[:1000]))
    show(talk, "broker", (5, frames.produce_response(9)))
    show(talk, "client", (6, asked[1000:]), (60_000, frames.heartbeat()))
    show(talk, "broker", (60_001, frames.some_response(20)))
    assert told(rows) == [(0, 0, ""), (1, 0, "")]


def test_rows_are_of_the_broker_that_was_reached() -> None:
    talk, rows = captured()
    one, other = frames.heartbeat(client_id="a"), frames.heartbeat(client_id="b")
    large = frames.produce_to(9, {"a": [2000, 50_000]}, acks=0, client_id="b")
    show(talk, "client", (0, one + one + other + large[:1000]))
    talk.channel.broker_changed(4)
    show(talk, "client", (1, large[1000:]), (2, other))
    show(talk, "broker", *[(3, frames.some_response(20))] * 4)
    assert [(row[Row.SEQ], row[Row.ORIGIN].broker) for row in rows.rows] == [
        (seq, 4) for seq in (3, 0, 1, 2, 4)
    ]
    assert rows.rows[1][Row.ORIGIN] is rows.rows[2][Row.ORIGIN]
    assert [row[Row.ORIGIN].client_id for row in rows.rows] == ["b", "a", "a", "b", "b"]


@pytest.mark.parametrize("sizes", [[50_000], [50_000, 9], [9, 50_000]])
@pytest.mark.parametrize("together", [False, True])
def test_produce_without_acks_is_written_when_all_of_it_is_kept(sizes: list[int], together: bool) -> None:
    talk, rows = captured(gateway=False, frames="keep")
    asked = frames.produce_to(9, {"a": sizes}, acks=0)
    after = frames.heartbeat() if together else b""
    show(talk, "client", (0, asked[:1000]), (1, asked[1000:30_000]))
    assert rows.rows == []
    show(talk, "client", (2, asked[30_000:] + after))
    (row,) = rows.rows
    kept: Any = row[Row.FRAME]
    assert complete_frame(kept, row[Row.HEAD][Head.REQUEST_BYTES]) == asked
    rows.rows.clear()
    assert asked not in reachable(talk.channel), "nothing else holds the frame"
