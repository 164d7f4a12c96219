"""Packets of a capture: any bytes, and a conversation of Kafka's whose packets the fuzzer changes, cuts and moves."""

from collections import Counter
from functools import cache
from typing import Final

from offline.imports.connections import Connection, Connections
from offline.imports.conversation import Request
from offline.imports.packets import Dissector
from protocol.capture import NONE
from tests.fuzz.draw import Draw
from tests.support.frames import api_versions, fetch, fetched_from, heartbeat, produce_response, produce_to
from tests.support.packets import Caught, Talk

_LINK_TYPES: Final = (1, 0, 12, 113, 276)
_STEPS_US: Final = (0, 1, 1000, 2_000_000)
_KEEP, _CHANGE, _CUT, _LEAVE_OUT, _REPEAT, _SWAP, _RAW = range(7)


@cache
def _conversation() -> list[Caught]:
    said = Talk(mss=300).open()
    said.ask(api_versions(correlation_id=0), b"\0\0\0\x04\0\0\0\0")
    said.ask(produce_to(9, {"t": [700, 3]}, correlation_id=1), produce_response(9, correlation_id=1))
    said.ask(fetch(12, correlation_id=2), fetched_from(12, {"t": [500, 9]}, correlation_id=2))
    said.ask(produce_to(3, {"t": [200]}, correlation_id=3, acks=0))
    said.ask(heartbeat(correlation_id=4), b"\0\0\0\x04\0\0\0\x04")
    return said.close().caught()


def packets(data: bytes) -> None:
    """Packets, of which the fuzzer makes a capture."""
    draw = Draw(data)
    seen: list[Request] = []

    def emit(connection: Connection, request: Request) -> None:
        assert connection.origin(), "every row has both ends"
        assert request.response_bytes >= NONE, "a size, or none"
        assert 0 <= request.request_bytes <= 0x7FFFFFFF, "as a frame states it"
        assert all(entry[2] >= 0 for entry in request.partitions), "no size is below 0"
        seen.append(request)

    skipped: Counter[str] = Counter()
    link_type = draw.pick(_LINK_TYPES) if draw.byte() & 1 else 1
    dissector = Dissector(link_type, skipped)
    connections = Connections((), emit)
    for count, packet in enumerate(_changed(draw), 1):
        segment = dissector.segment(packet.data, packet.wire_bytes)
        if segment is not None:
            connections.add(segment, packet.time_us)
        assert connections.held_bytes <= 4000 * count, "what is held has come"
    connections.finish()
    assert connections.held_bytes == 0, "nothing is left"
    totals = connections.totals
    assert totals.requests == len(seen), "each request is one row"
    assert totals.kafka + totals.tls + totals.other == totals.connections, "each is of one kind"


def _changed(draw: Draw) -> list[Caught]:
    found: list[Caught] = []
    time_us = 0
    for packet in _conversation():
        order = draw.byte()
        kind = order % 16  # most stay
        time_us += _STEPS_US[order >> 6]
        data, wire_bytes = bytearray(packet.data), packet.wire_bytes
        if kind == _CHANGE:
            for _ in range(1 + draw.byte() % 4):
                data[draw.byte() * 3 % len(data)] = draw.byte()
        elif kind == _CUT:
            del data[draw.byte() * 2 :]
        elif kind == _RAW:
            data = bytearray(draw.take(draw.byte()))
            wire_bytes = len(data) + draw.byte()
        if kind != _LEAVE_OUT:
            found.append(Caught(time_us, bytes(data), wire_bytes))
        if kind == _REPEAT:
            found.append(found[-1])
        if kind == _SWAP and len(found) > 1:
            found[-1], found[-2] = found[-2], found[-1]
    while draw:
        data = bytearray(draw.take(1 + draw.byte()))
        found.append(Caught(time_us, bytes(data), len(data)))
    return found
