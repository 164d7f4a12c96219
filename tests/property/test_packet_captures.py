"""However a conversation is cut into packets, and in whatever order they are captured: the same rows. And any bytes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline.imports import connections, reassembly
from offline.imports.conversation import Request
from offline.imports.packets import Dissector
from tests.fuzz.packets import packets
from tests.support.frames import (
    api_versions,
    fetch,
    fetched_from,
    heartbeat,
    produce_response,
    produce_to,
    request,
    some_response,
)
from tests.support.packets import BEGIN_US, Caught, Talk, read

# What each side says in turn: requests and responses of a kilobyte and less, so that cuts meet all parts of them.
TURNS: Sequence[tuple[bytes, bytes]] = (
    (api_versions(correlation_id=0), some_response(40, correlation_id=0)),
    (produce_to(9, {"t": [700, 3], "u": [1]}, correlation_id=1), produce_response(9, correlation_id=1)),
    (produce_to(7, {"t": [90]}, correlation_id=2), produce_response(7, correlation_id=2, throttle_ms=5)),
    (fetch(12, correlation_id=3), fetched_from(12, {"t": [500, 0, 300]}, correlation_id=3)),
    (fetch(4, correlation_id=4), fetched_from(4, {"t": [400], "u": [9]}, correlation_id=4)),
    (produce_to(9, {"t": [50]}, correlation_id=5, acks=0), b""),
    (heartbeat(correlation_id=6), some_response(10, correlation_id=6)),
)


def conversation(sizes: Sequence[int] = (1448,)) -> list[Caught]:
    """The packets of the turns, cut into pieces of these sizes in turn."""
    said = Talk().open()
    number = 0
    for turn in TURNS:
        for way, data in enumerate(turn):
            at = 0
            while at < len(data):
                size = sizes[number % len(sizes)]
                number += 1
                said.say(way, data[at : at + size])
                said.now_us -= 1000  # all of a message at one time
                at += size
        said.now_us += 1000
    return said.close().caught()


PLAIN = read(conversation()).tuples()


def test_the_plain_conversation_has_a_row_for_each_turn() -> None:
    assert len(PLAIN) == len(TURNS)


@given(sizes=st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_cuts_change_nothing(sizes: list[int]) -> None:
    found = read(conversation(sizes))
    assert found.tuples() == PLAIN
    assert (found.totals.lost, found.totals.retransmitted, found.totals.out_of_step) == (0, 0, 0)


@given(
    sizes=st.lists(st.integers(20, 400), min_size=1, max_size=8),
    moves=st.lists(st.tuples(st.integers(3, 200), st.integers(1, 12)), max_size=12),
    twice=st.lists(st.tuples(st.integers(3, 200), st.integers(1, 12)), max_size=6),
)
def test_order_within_the_window_and_duplicates_change_no_content(
    sizes: list[int], moves: list[tuple[int, int]], twice: list[tuple[int, int]]
) -> None:
    """Packets after the handshake are moved back and forth, and some come twice; each gets the time of its place."""
    caught = conversation(sizes)
    head, body = caught[:3], caught[3:-3]
    for at, by in twice:
        copy = body[at % len(body)]
        body.insert((at + by) % (len(body) + 1), copy)
    for at, by in moves:
        moved = body.pop(at % len(body))
        body.insert((at + by) % (len(body) + 1), moved)
    mixed = [replace(packet, time_us=BEGIN_US + number) for number, packet in enumerate(head + body)]
    found = read(mixed)
    assert [timeless(row) for row in found.tuples()] == [timeless(row) for row in PLAIN]
    assert found.totals.lost == found.totals.out_of_step == found.totals.unanswered == 0


def timeless(row: tuple[object, ...]) -> tuple[object, ...]:
    """A row without its three times."""
    return row[:6] + row[8:11] + row[12:]


# Hostile captures: nothing escapes, and nothing grows.


@settings(max_examples=300)
@given(data=st.binary(max_size=600))
def test_packets_of_any_bytes_raise_nothing(data: bytes) -> None:
    packets(data)


@given(
    cuts=st.lists(st.integers(1, 300), min_size=1, max_size=9),
    way=st.integers(0, 1),
    payload=st.binary(max_size=3000),
    begun=st.booleans(),
)
def test_payloads_of_any_bytes_raise_nothing(cuts: list[int], way: int, payload: bytes, begun: bool) -> None:
    said = Talk()
    if begun:
        said.open()
    said.ask(heartbeat(), some_response())
    at = 0
    while at < len(payload):
        size = cuts[at % len(cuts)]
        said.say(way, payload[at : at + size])
        at += size
    found = read(said.caught())
    assert found.requests[0][1].response_bytes == 20
    assert found.totals.requests == len(found.requests)


def test_a_frame_of_16_mib_is_not_kept() -> None:
    """It passes by its number: what is held stays below what a header takes."""
    produced = produce_to(9, {"t": [16 * 1024 * 1024]})
    packets_of_it = Talk(mss=60_000).open().ask(produced, produce_response(9)).caught()
    held = Held()
    found = held.read(packets_of_it)
    assert found[0].partitions == [(b"t", 0, 16 * 1024 * 1024, -1)]
    assert held.most < 10_000


class Held:
    """Reads packets, and notes the most bytes that were held."""

    def __init__(self) -> None:
        self.most = 0
        self.connections: connections.Connections | None = None

    def read(self, caught: Sequence[Caught]) -> list[Request]:
        found: list[Request] = []
        dissector = Dissector(1, Counter())
        self.connections = connections.Connections((), lambda _, request: found.append(request))
        for packet in caught:
            segment = dissector.segment(packet.data, packet.wire_bytes)
            assert segment is not None
            self.connections.add(segment, packet.time_us)
            self.most = max(self.most, self.connections.held_bytes)
        self.connections.finish()
        return found


def test_a_client_that_is_never_answered_is_bounded() -> None:
    """30,000 requests, of which 10,000 may wait for a response, each counted as a kilobyte."""
    said = Talk(mss=1 << 15).open()
    for number in range(30_000):
        said.say(0, heartbeat(correlation_id=number))
    held = Held()
    found = held.read(said.caught())
    assert len(found) == 30_000
    assert [one.seq for one in found] == list(range(30_000))
    assert held.most < 1.2 * 10_000 * 1024


def test_bytes_that_wait_for_lost_ones_are_bounded() -> None:
    """A packet is missing, and is never acknowledged: at most 4 MiB wait for it."""
    size = 9 * 1024 * 1024
    said = Talk(mss=30_000).open().say(0, produce_to(9, {"t": [size]}))
    caught = said.caught()
    del caught[4]
    held = Held()
    (row,) = held.read(caught)
    assert row.partitions == [(b"t", 0, size, -1)]
    assert reassembly.HELD_MAX - 60_000 < held.most <= reassembly.HELD_MAX


def test_memory_is_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 500 connections sends half of a request of 20 kB; there is room for 50 halves."""
    monkeypatch.setattr(connections, "HELD_BYTES_MAX", 500_000)
    caught = []
    for number in range(500):
        said = Talk(client=("10.1.0.1", 1024 + number)).open()
        caught += said.say(0, request(17, 1, size=20_000)[:10_000]).caught()
    held = Held()
    assert held.read(caught) == []
    assert held.most < 500_000 + 10_500
    assert held.connections is not None
    assert held.connections.totals.evicted == 450


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 100)
    caught = [
        packet for number in range(1, 301) for packet in Talk(client=("10.1.0.1", number)).open().caught()
    ]
    held = Held()
    held.read(caught)
    assert held.connections is not None
    assert (held.connections.totals.connections, held.connections.totals.evicted) == (300, 200)
