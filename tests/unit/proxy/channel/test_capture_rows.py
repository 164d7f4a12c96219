"""Whole requests beside their rows: which are kept, and that no secret is."""

from itertools import pairwise
from typing import Any

import pytest

from protocol.api import API_NAMES, HEARTBEAT, PRODUCE, SASL_HANDSHAKE
from proxy.channel import BATCH_WEIGHT, Head, Row, complete_frame
from proxy.channel import capture as module
from proxy.channel.capture import Keeper
from tests.support import frames
from tests.unit.proxy.channel.test_captured import captured

SECRET_KEYS = (36, 33, 38, 39, 40, 41, 44, 51, 58)


def kept(mode: str, key: int, frame: bytes, client_id: str = "a") -> bytes:
    body = 14 + len(client_id)
    head: Any = (len(frame) - 4, key, 0, 1, len(client_id))
    return bytes(Keeper(mode, lambda _size: True).keep(bytearray(frame), 0, len(frame), body, head, 0))


@pytest.mark.parametrize("mode", ["blank", "keep"])
def test_ordinary_request_is_kept_as_it_is(mode: str) -> None:
    assert kept(mode, HEARTBEAT, frames.heartbeat()) == frames.heartbeat()


def test_payload_is_kept_in_mode_keep_alone() -> None:
    frame = frames.produce_to(9, {"a": [100]})
    assert (kept("blank", PRODUCE, frame), kept("keep", PRODUCE, frame)) == (b"", frame)


@pytest.mark.parametrize("key", [*SECRET_KEYS, 999])
@pytest.mark.parametrize("mode", ["blank", "keep"])
def test_secrets_become_zeros(mode: str, key: int) -> None:
    frame = frames.request(key, 0, b"\x05my secret")
    found = kept(mode, key, frame)
    assert len(found) == len(frame)
    assert found[:15] == frame[:15]
    assert not any(found[15:])


def test_requests_with_secrets_are_these_and_no_others() -> None:
    names = {API_NAMES[key] for key in SECRET_KEYS}
    assert {"SaslAuthenticate", "AlterUserScramCredentials", "CreateDelegationToken"} < names
    secret = b"\x05my secret"
    zeroed = {key for key in API_NAMES if secret not in kept("keep", key, frames.request(key, 0, secret))}
    assert zeroed == set(SECRET_KEYS)


def test_sasl_handshake_is_kept_as_it_is() -> None:
    frame = frames.request(SASL_HANDSHAKE, 1, b"\0\5PLAIN")
    assert kept("blank", SASL_HANDSHAKE, frame) == frame


@pytest.mark.parametrize("cuts", [(), (100,), (20, 30_000), (50, 1000, 1001, 40_000)])
def test_large_request_is_put_together_as_it_passes(cuts: tuple[int, ...]) -> None:
    dialogue, rows = captured(gateway=False, frames="keep")
    first = frames.produce_to(9, {"a": [50_000], "b": [7]}, correlation_id=1)
    second = frames.produce_to(9, {"a": [30_000]}, correlation_id=2)
    stream = first + second + frames.heartbeat(correlation_id=3)
    edges = [0, *cuts, len(first) + 10, len(first) + 9000, len(stream)]
    for begin, end in pairwise(edges):
        dialogue.orders("client", 0, stream[begin:end])
    for number in (1, 2):
        dialogue.orders("broker", 0, frames.produce_response(9, correlation_id=number))
    dialogue.orders("broker", 0, frames.some_response(20, correlation_id=3))
    found = [complete_frame(row[Row.FRAME], row[Row.HEAD][Head.REQUEST_BYTES]) for row in rows.rows]
    assert found == [first, second, frames.heartbeat(correlation_id=3)]
    assert rows.kept_bytes == len(stream)


def test_request_that_finds_no_room_is_a_row_without_a_frame() -> None:
    dialogue, rows = captured(gateway=False, frames="keep")
    rows.room = 60_000
    large = frames.produce_to(9, {"a": [50_000]})
    for request in (large, large, frames.heartbeat()):
        dialogue.orders("client", 0, request[:1000])
        dialogue.orders("client", 0, request[1000:])
    assert rows.kept_bytes == len(large) + len(frames.heartbeat())  # before any response
    for response in (frames.produce_response(9), frames.produce_response(9), frames.some_response(20)):
        dialogue.orders("broker", 0, response)
    assert [len(row[Row.FRAME]) for row in rows.rows] == [len(large), 0, len(frames.heartbeat())]
    assert rows.left == BATCH_WEIGHT - 3 - len(large) // 2048


def test_large_request_is_not_kept_blank() -> None:
    dialogue, rows = captured(gateway=False, frames="blank")
    frame = frames.request(HEARTBEAT, 4, size=50_000)
    dialogue.orders("client", 0, frame[:1000])
    dialogue.orders("client", 0, frame[1000:])
    dialogue.orders("broker", 0, frames.some_response(20))
    assert (rows.rows[0][Row.FRAME], rows.kept_bytes) == (b"", 0)


def test_incomplete_frame_is_not_kept() -> None:
    assert complete_frame(bytearray(b"half"), 100) == b""
    assert complete_frame(b"1234", 0) == b"1234"


@pytest.mark.interpreted
def test_frames_beyond_size_and_number_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRAME_BYTES_MAX", 30)
    assert kept("keep", HEARTBEAT, frames.heartbeat()) == b""
    head: Any = (20, HEARTBEAT, 4, 1, 1)
    keeper = Keeper("keep", lambda _size: True)
    assert keeper.keep(bytearray(24), 0, 24, 15, head, module.RESERVED_ROWS_MAX) == b""
