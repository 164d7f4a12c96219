"""The counting relay's view of a connection, however the bytes are cut."""

import struct

import pytest

from tests.bench.accuracy.relay import FETCH, PRODUCE, Ledger, Walk


def request(api_key: int, correlation_id: int, client_id: str, body: int) -> bytes:
    name = client_id.encode()
    head = struct.pack(">hhih", api_key, 12, correlation_id, len(name)) + name + bytes(body)
    return struct.pack(">i", len(head)) + head


def response(correlation_id: int, body: int) -> bytes:
    return struct.pack(">ii", 4 + body, correlation_id) + bytes(body)


@pytest.mark.parametrize("step", [1, 3, 7, 10_000])
def test_walk_finds_the_same_frames_however_they_are_cut(step: int) -> None:
    stream = request(0, 1, "a", 500) + response(2, 0) + request(1, 3, "b", 10)
    walk = Walk()
    frames = [
        frame for at in range(0, len(stream), step) for frame in walk.feed(stream[at : at + step], float(at))
    ]
    assert [frame.length for frame in frames] == [511, 4, 21]
    assert [frame.head[:2] for frame in frames] == [b"\0\0", b"\0\0", b"\0\1"]


def test_walk_remembers_when_a_frame_began() -> None:
    walk = Walk()
    assert walk.feed(request(0, 1, "a", 100)[:50], now=1.0) == []
    (frame,) = walk.feed(request(0, 1, "a", 100)[50:], now=2.0)
    assert frame.began == 1.0


def test_ledger_counts_produce_requests_and_fetch_responses_only() -> None:
    ledger = Ledger()
    ledger.to_broker(request(3, 1, "a", 9) + request(0, 2, "a", 989) + request(1, 3, "a", 9), 5.0)
    produced, fetched = ledger.to_client(response(1, 70) + response(2, 30) + response(3, 996), 6.0)
    assert (produced.api_key, produced.size, produced.client_id) == (PRODUCE, 1000, "a")  # 11 bytes of header
    assert (produced.began, produced.ended) == (5.0, 6.0)
    assert (fetched.api_key, fetched.size, fetched.began, fetched.ended) == (FETCH, 1000, 6.0, 6.0)


def test_ledger_does_not_count_a_request_without_a_response() -> None:
    ledger = Ledger()
    ledger.to_broker(request(0, 2, "a", 989), 5.0)
    assert ledger.to_client(response(1, 70), 6.0) == []


def test_ledger_gives_a_produce_when_it_has_come_to_those_who_count_it_then() -> None:
    ledger = Ledger()
    whole = request(3, 1, "a", 9) + request(0, 2, "a", 989) + request(1, 3, "a", 9)
    assert ledger.to_broker(whole[:500], 5.0) == []
    (produced,) = ledger.to_broker(whole[500:], 6.0)
    assert (produced.began, produced.ended, produced.size, produced.client_id) == (5.0, 6.0, 1000, "a")
